"""An OpenEnv project on disk: its ``.build.json``, its files, and what they need.

``.build.json`` is what ``vf-build`` leaves in a project::

    {"image": "registry/echo:1", "port": 8000, "start_command": "uvicorn server.app:app --port 8000", "contract": "gym"}
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nightjar.errors import ConfigError

MANIFEST = ".build.json"
_LEFT_OUT = frozenset({".git", ".venv", "venv", "__pycache__", ".pytest_cache", "node_modules"})
_IN_THE_IMAGE = (("/app/env", "{project}"), ("/app/.venv/bin/uvicorn", "python3 -m uvicorn"), ("/app/.venv/bin/", ""))


class OpenEnvError(ConfigError, RuntimeError):
    """An OpenEnv project, its server or its prompt renderer is not as it should be."""


class BuildManifest(BaseModel):
    """What a project says about its server. Each description says what a field must be."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    image: str = Field(min_length=1, description="a non-empty string")
    port: int = Field(default=8000, description="an integer")
    start_command: str = Field(min_length=1, description="a non-empty string")
    contract: Literal["gym", "mcp"] = Field(description="either 'gym' or 'mcp'")
    """``gym`` takes actions, ``mcp`` tool calls."""

    def local_command(self, project: str) -> str:
        """Returns the start command for a copy of the project at another place, with the Python that is there."""
        command = self.start_command
        for inside, outside in _IN_THE_IMAGE:
            command = command.replace(inside, outside.format(project=project))
        return command


def calling_project(own_file: str) -> Path:
    """Returns the folder ``proj`` beside the file whose code makes an environment: the first but ``own_file``."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads every source file on the way
    while frame.f_back is not None and frame.f_code.co_filename == own_file:
        frame = frame.f_back
    return Path(frame.f_code.co_filename).resolve().parent / "proj"


def read_manifest(project: Path) -> BuildManifest:
    """Reads ``.build.json``; ``OpenEnvError`` where it is missing or broken."""
    path = project / MANIFEST
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise OpenEnvError(f"OpenEnv project {str(project)!r} has no {MANIFEST}: build it with vf-build") from None
    except (OSError, ValueError) as error:
        raise OpenEnvError(f"Cannot read {str(path)!r}: {error}. Build it again with vf-build") from error
    if not isinstance(raw, dict):
        raise OpenEnvError(f"Invalid {MANIFEST}: expected a JSON object, found {raw!r}")
    try:
        return BuildManifest.model_validate(raw)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        wanted = BuildManifest.model_fields[field].description
        raise OpenEnvError(f"Invalid {MANIFEST}: `{field}` must be {wanted}, found {raw.get(field)!r}") from None


def packed(project: Path) -> bytes:
    """Returns the project's files as a compressed tar archive, without caches and version control."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
        tar.add(project, arcname=".", filter=lambda file: None if _LEFT_OUT & set(Path(file.name).parts) else file)
    return archive.getvalue()


def needed_packages(project: Path) -> list[str]:
    """Returns what the project's ``pyproject.toml`` depends on, without versions: what is installed here has to do."""
    path = project / "pyproject.toml"
    if not path.is_file():
        return []
    try:
        dependencies = tomllib.loads(path.read_text()).get("project", {}).get("dependencies", [])
        requirements = [Requirement(dependency) for dependency in dependencies]
    except (tomllib.TOMLDecodeError, InvalidRequirement) as error:
        raise OpenEnvError(f"Cannot read {str(path)!r}: {error}") from error
    here = [one for one in requirements if one.marker is None or one.marker.evaluate()]
    return [f"{one.name}[{','.join(sorted(one.extras))}]" if one.extras else one.name for one in here]

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from packaging.requirements import InvalidRequirement, Requirement

from nightjar.errors import ConfigError

Contract = Literal["gym", "mcp"]

MANIFEST = ".build.json"
_DEFAULT_PORT = 8000
_LEFT_OUT = frozenset({".git", ".venv", "venv", "__pycache__", ".pytest_cache", "node_modules"})
_IN_THE_IMAGE = (("/app/env", "{project}"), ("/app/.venv/bin/uvicorn", "python3 -m uvicorn"), ("/app/.venv/bin/", ""))


class OpenEnvError(ConfigError, RuntimeError):
    """An OpenEnv project, its server or its prompt renderer is not as it should be."""


@dataclass(frozen=True, slots=True)
class BuildManifest:
    """What a project says about its server.

    Attributes:
        image: what a container is made of.
        port: where the server listens.
        start_command: starts it, in the image.
        contract: ``gym`` takes actions, ``mcp`` tool calls.
    """

    image: str
    port: int
    start_command: str
    contract: Contract

    def local_command(self, project: str) -> str:
        """Returns the start command for a copy of the project at another place, with the Python that is there.

        Example:
            >>> command = "cd /app/env && /app/.venv/bin/uvicorn server.app:app --port 8000"
            >>> BuildManifest("echo:1", 8000, command, "gym").local_command("/workspace/project")
            'cd /workspace/project && python3 -m uvicorn server.app:app --port 8000'
        """
        command = self.start_command
        for inside, outside in _IN_THE_IMAGE:
            command = command.replace(inside, outside.format(project=project))
        return command


def calling_project(own_file: str) -> Path:
    """Returns the folder ``proj`` beside the file whose code makes an environment.

    Args:
        own_file: the file of the environment class, which is passed over.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads every source file on the way
    while frame.f_back is not None and frame.f_code.co_filename in {own_file, __file__}:
        frame = frame.f_back
    return Path(frame.f_code.co_filename).resolve().parent / "proj"


def project_folder(openenv_project: str | Path) -> Path:
    """Returns the project's folder.

    Raises:
        ValueError: there is none.
    """
    folder = Path(openenv_project).expanduser().resolve()
    if not folder.is_dir():
        raise ValueError(f"OpenEnvEnv requires a local OpenEnv project directory. Got: {openenv_project}")
    return folder


def read_manifest(project: Path) -> BuildManifest:
    """Reads ``.build.json``.

    Raises:
        OpenEnvError: it is missing or broken; the field is named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, MANIFEST).write_text('{"image": "a:1", "start_command": "b", "contract": "mcp"}')
        ...     read_manifest(Path(folder))
        BuildManifest(image='a:1', port=8000, start_command='b', contract='mcp')
    """
    path = project / MANIFEST
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise OpenEnvError(f"OpenEnv project {str(project)!r} has no {MANIFEST}: build it with vf-build") from None
    except (OSError, ValueError) as error:
        raise OpenEnvError(f"Cannot read {str(path)!r}: {error}. Build it again with vf-build") from error
    if not isinstance(raw, dict):
        raise OpenEnvError(f"Invalid {MANIFEST}: expected a JSON object, found {raw!r}")
    contract = raw.get("contract")
    if contract not in {"gym", "mcp"}:
        raise OpenEnvError(f"Invalid {MANIFEST}: `contract` must be either 'gym' or 'mcp', found {contract!r}")
    return BuildManifest(_text(raw, "image"), _port(raw), _text(raw, "start_command"), cast("Contract", contract))


def _text(raw: dict[str, Any], field: str) -> str:
    value = raw.get(field)
    if not isinstance(value, str) or not value.strip():
        raise OpenEnvError(f"Invalid {MANIFEST}: `{field}` must be a non-empty string, found {value!r}")
    return value.strip()


def _port(raw: dict[str, Any]) -> int:
    try:
        return int(raw.get("port", _DEFAULT_PORT))
    except (TypeError, ValueError):
        raise OpenEnvError(f"Invalid {MANIFEST}: `port` must be an integer, found {raw['port']!r}") from None


def packed(project: Path) -> bytes:
    """Returns the project's files as a compressed tar archive, without caches and version control."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
        tar.add(project, arcname=".", filter=_keep)
    return archive.getvalue()


def _keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT & set(Path(member.name).parts) else member


def needed_packages(project: Path) -> list[str]:
    """Returns what the project's ``pyproject.toml`` depends on; none without one.

    Versions are left out: what is installed here has to do.

    Raises:
        OpenEnvError: the file is broken.
    """
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

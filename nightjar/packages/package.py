"""What is known of an environment without running its code: its module, and what its ``pyproject.toml`` says."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from packaging.utils import canonicalize_name

from nightjar.errors import EnvironmentPackageError
from nightjar.packages.layouts import ModuleSource

PYPROJECT = "pyproject.toml"
Origin: TypeAlias = Literal["local", "installed", "built-in"]


@dataclass(frozen=True, slots=True)
class Project:
    """A ``pyproject.toml``; it has no version where that is computed when the package is built."""

    path: Path
    name: str | None = None
    version: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    tool: dict[str, Any] = field(default_factory=dict)

    def is_of(self, distribution: str) -> bool:
        """Says whether it is the file of a distribution, however that is spelled; one without a name may be of any."""
        return self.name is None or canonicalize_name(self.name) == canonicalize_name(distribution)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPackage:
    """An environment that can be loaded.

    Attributes:
        env_id: the name it is loaded by.
        origin: ``local`` in the folder of environments, ``installed`` as a module, ``built-in`` in Nightjar.
        module: its source.
        version: None where it has none.
        description: one line; may be empty.
        tags: words to find it by.
        project: its ``pyproject.toml``; None where there is none.
        distribution: what it is installed as; None where it is not installed.
        installed_version: the version that is installed; None where it is not.
        editable_from: the folder that an editable installation points to; None for any other.
    """

    env_id: str
    origin: Origin
    module: ModuleSource
    version: str | None = None
    description: str = ""
    tags: tuple[str, ...] = ()
    project: Project | None = None
    distribution: str | None = None
    installed_version: str | None = None
    editable_from: Path | None = None

    @property
    def location(self) -> str:
        """Where it is, as a person reads it."""
        match self.origin:
            case "built-in":
                return "built-in"
            case "local":
                return str(self.project.path.parent if self.project else self.module.path)
            case "installed":
                return f"installed, editable from {self.editable_from}" if self.editable_from else "installed"


def read_project(folder: Path) -> Project | None:
    """Reads the ``pyproject.toml`` of a folder; None where there is none, or an error if it is broken."""
    path = folder / PYPROJECT
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentPackageError(f"Cannot read {path}: {error}") from error
    return parse_project(text, path)


def parse_project(text: str, path: Path) -> Project:
    """Parses the text of a ``pyproject.toml``; ``path`` is for messages."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentPackageError(f"{path} is not valid TOML: {error}") from error
    project = _table(content, "project", path)
    return Project(
        path=path,
        name=_text(project, "name", path),
        version=_text(project, "version", path),
        description=_text(project, "description", path) or "",
        tags=tuple(str(tag) for tag in project.get("tags") or project.get("keywords") or ()),
        dependencies=tuple(str(text) for text in project.get("dependencies") or ()),
        tool=_table(content, "tool", path),
    )


def _table(content: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise EnvironmentPackageError(f"{path}: {key} must be a table, found {value!r}")
    return value


def _text(project: dict[str, Any], key: str, path: Path) -> str | None:
    value = project.get(key)
    if value is not None and not isinstance(value, str):
        raise EnvironmentPackageError(f"{path}: project.{key} must be a text, found {value!r}")
    return value

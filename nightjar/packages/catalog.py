"""Which environments there are, and which of them a name means.

The folder of environments comes first, installed modules next, the built-in ones last.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from packaging.version import InvalidVersion, Version

from nightjar import __version__
from nightjar.errors import ConfigError, EnvironmentNotFoundError, EnvironmentPackageError, EnvironmentVersionError
from nightjar.packages.installed import describe, find_distribution, find_installed, installed_packages
from nightjar.packages.layouts import (
    ModuleSource,
    benchmark_names,
    defines_environment,
    find_module,
    first_line_of_docstring,
)
from nightjar.packages.names import ENVIRONMENTS_DIR, EnvironmentId, listed_name, module_of
from nightjar.packages.package import EnvironmentPackage, Project, read_project

_LONGEST_NAME = 240
"""Characters that the name of a file may have, less those of its ending."""
BUILT_IN = "nightjar.benchmarks"
_FILE = re.compile(r"(?P<path>(?![\w-]+://).+\.py)(?::(?P<name>[^/:]+))?")


@dataclass(frozen=True)
class InFile:
    """An environment that is named by its file.

    Attributes:
        env_id: what it is called.
        folder: of the file.
        env_args: what says which of several benchmarks it is, where its name does not.
    """

    env_id: str
    folder: Path
    env_args: Mapping[str, str] = field(default_factory=dict)


def in_file(text: str) -> InFile | None:
    """Returns the environment that ``path.py`` or ``path.py:name`` means; None for any other name.

    Raises:
        ConfigError: there is no such file.
    """
    match = _FILE.fullmatch(text)
    if match is None:
        return None
    path = Path(match["path"])
    if not path.is_file():
        raise ConfigError(f"env_id: there is no file {str(path)!r} (found {text!r})")
    names = benchmark_names(path)
    name = match["name"] or (names[0] if len(names) == 1 else path.stem)
    found = known_environment(name, path.parent)
    if found is not None and found.origin == "local" and found.module.path.resolve() == path.resolve():
        return InFile(name, path.parent)
    return InFile(path.stem, path.parent, {"benchmark": name} if match["name"] else {})


def beside(text: str, folder: Path) -> str:
    """Returns the name of an environment; of one in a file that is in a folder and not in the current one, with it.

    Raises:
        ConfigError: it is in a file, which is in neither.
    """
    match = _FILE.fullmatch(text)
    if match is None or Path(match["path"]).is_file():
        return text
    if not (folder / match["path"]).is_file():
        raise ConfigError(f"there is no file {match['path']!r} in {Path.cwd()} or {folder.absolute()}")
    return str(folder / text)


def find_environment(env_id: str, environments_dir: Path = ENVIRONMENTS_DIR) -> EnvironmentPackage:
    """Returns the environment of a name.

    Args:
        env_id: ``my-env``, ``owner/my-env`` or ``owner/my-env@1.2``; with a version, the first that has it.
        environments_dir: where environments are developed.

    Raises:
        EnvironmentNotFoundError: there is none.
        EnvironmentVersionError: there is none of this version.
        EnvironmentPackageError: its ``pyproject.toml`` is broken.
    """
    package = known_environment(env_id, environments_dir)
    if package is None:
        raise EnvironmentNotFoundError(env_id, [each.env_id for each in list_environments(environments_dir)])
    return package


def known_environment(env_id: str, environments_dir: Path = ENVIRONMENTS_DIR) -> EnvironmentPackage | None:
    """Returns the environment of a name, as ``find_environment`` does; None where there is none of that name."""
    asked = EnvironmentId.parse(env_id)
    others = []
    for package in _candidates(asked, environments_dir):
        if asked.version is None or _is_same(package.version, asked.version):
            return package
        others.append(f"version {package.version!r} ({package.location})")
    if others:
        raise EnvironmentVersionError(env_id, " and ".join(others))
    return None


def list_environments(environments_dir: Path = ENVIRONMENTS_DIR) -> list[EnvironmentPackage]:
    """Returns all environments by name, each as ``find_environment`` finds it. None of their code is run."""
    found = [*built_in_packages(), *installed_packages(), *_local_packages(environments_dir)]
    by_name = {package.env_id: package for package in found}
    return [by_name[name] for name in sorted(by_name)]


def built_in_packages(listed: str | None = None) -> Iterator[EnvironmentPackage]:
    """Yields the environments that Nightjar has, also those that a local or an installed one of their name hides.

    Args:
        listed: the one of this name alone; None: all.
    """
    spec = find_spec(BUILT_IN)
    for folder in (spec and spec.submodule_search_locations) or ():
        for module in pkgutil.iter_modules([folder]):
            path = Path(folder) / (f"{module.name}/__init__.py" if module.ispkg else f"{module.name}.py")
            env_id = listed_name(module.name)
            if listed in {None, env_id} and defines_environment(path):
                yield EnvironmentPackage(
                    env_id=env_id,
                    origin="built-in",
                    module=ModuleSource(f"{BUILT_IN}.{module.name}", path, Path(folder)),
                    version=__version__,
                    description=first_line_of_docstring(path),
                )


def local_package(path: Path) -> EnvironmentPackage | None:
    """Describes the environment in a project folder or a file; None where there is none."""
    if not path.is_dir():
        is_module = path.suffix == ".py" and path.is_file()
        return _describe(ModuleSource(path.stem, path, path.parent), None) if is_module else None
    project = read_project(path)
    for name in (path.absolute().name, project.name if project else None):
        source = find_module(path, module_of(name)) if name else None
        if source is not None:
            return _describe(source, project)
    return None


def _candidates(asked: EnvironmentId, environments_dir: Path) -> Iterator[EnvironmentPackage]:
    if not asked.module.isidentifier() or len(asked.module) > _LONGEST_NAME:
        return
    if (local := _find_local(asked, environments_dir)) is not None:
        yield local
    if (installed := find_installed(asked.module)) is not None:
        yield installed
    yield from built_in_packages(asked.listed)


def _find_local(asked: EnvironmentId, environments_dir: Path) -> EnvironmentPackage | None:
    for name in (asked.module, asked.listed, f"{asked.module}.py"):
        package = local_package(environments_dir / name)
        if package is not None and package.module.name == asked.module:
            return package
    named_otherwise = (
        package
        for package in _local_packages(environments_dir)
        if asked.module in {package.module.name, module_of(package.env_id)}
    )
    return next(named_otherwise, None)


def _local_packages(environments_dir: Path) -> Iterator[EnvironmentPackage]:
    for path in sorted(environments_dir.iterdir()) if environments_dir.is_dir() else []:
        if path.suffix == ".py" and (path.stem.startswith("test_") or path.stem in {"conftest", "__init__", "setup"}):
            continue
        try:
            package = local_package(path)
        except EnvironmentPackageError as error:
            package = _broken(path, error)
        if package is not None and defines_environment(package.module.path):
            names = benchmark_names(package.module.path) or [package.env_id]
            yield from (replace(package, env_id=listed_name(name.lower())) for name in names)


def _broken(path: Path, error: EnvironmentPackageError) -> EnvironmentPackage | None:
    source = find_module(path, module_of(path.name))
    return None if source is None else replace(_describe(source, None), description=f"Broken: {error}")


def _describe(source: ModuleSource, project: Project | None) -> EnvironmentPackage:
    found = find_distribution(project.name if project and project.name else source.name)
    version, description = (project.version, project.description) if project else (None, None)
    return describe("local", source, project, found, version=version, description=description)


def _is_same(version: str | None, asked: str) -> bool:
    try:
        return version is not None and Version(version) == Version(asked)
    except InvalidVersion:
        return version == asked

"""Finds environments without importing them: in the local folder, in installed modules, then among built-in ones.

A distribution contains an environment if it requires ``nightjar-evals`` or ``verifiers`` and one of its top-level
modules has a ``load_environment``.
"""

from __future__ import annotations

import json
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from nightjar import __version__
from nightjar.core.environment_id import ENVIRONMENTS_DIR, EnvironmentId, file_of_task, listed_name, module_of
from nightjar.environments.packages.package import (
    PYPROJECT,
    EnvironmentPackage,
    ModuleSource,
    Origin,
    Project,
    benchmark_names,
    defines_environment,
    find_module,
    first_line_of_docstring,
    parse_project,
    read_project,
)
from nightjar.errors import ConfigError, EnvironmentNotFoundError, EnvironmentPackageError, EnvironmentVersionError

_REQUIRES_A_FRAMEWORK = re.compile(
    r"^Requires-Dist: *(?:nightjar[-_.]evals|verifiers)(?![\w.-])", re.IGNORECASE | re.MULTILINE
)
_SHIPPED = f"extra_metadata/{PYPROJECT}"
"""The place of ``pyproject.toml`` in a wheel's metadata, according to hatchling's ``extra-metadata``."""
_LONGEST_NAME = 240
"""Maximum length of a file name without its suffix."""
BUILT_IN = "nightjar.benchmarks"
_FILE = re.compile(r"(?P<path>(?![\w-]+://).+\.py)(?::(?P<name>[^/:]+))?")


def installed_packages() -> list[EnvironmentPackage]:
    wanted = (found for found in distributions() if _REQUIRES_A_FRAMEWORK.search(found.read_text("METADATA") or ""))
    return [package for found in wanted if (package := package_of(found)) is not None]


def package_of(found: Distribution) -> EnvironmentPackage | None:
    for name in _module_names(found):
        source = _module_of(found, name)
        if source is not None and defines_environment(source.path):
            return _describe_installed(source, found)
    return None


def find_installed(module: str) -> EnvironmentPackage | None:
    found = find_distribution(module)
    source = _module_of(found, module) if found else _importable(module)
    return None if source is None else _describe_installed(source, found)


def find_distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        return None


def installed_from(found: Distribution) -> tuple[Path | None, bool]:
    """Returns the path that a distribution was installed from (PEP 610), and whether it is editable."""
    record = json.loads(found.read_text("direct_url.json") or "{}")
    url = urlsplit(record.get("url", ""))
    if url.scheme != "file":
        return None, False
    return Path(url2pathname(url.path)), bool(record.get("dir_info", {}).get("editable"))


def installed_commit(distribution: str) -> str | None:
    found = find_distribution(distribution)
    record = json.loads((found and found.read_text("direct_url.json")) or "{}")
    commit: str | None = record.get("vcs_info", {}).get("commit_id")
    return commit


def _described(
    origin: Origin, source: ModuleSource, project: Project | None, found: Distribution | None
) -> EnvironmentPackage:
    own = project if origin == "local" else None
    summary = found.metadata["Summary"] if found and origin == "installed" else None
    return EnvironmentPackage(
        env_id=listed_name(source.name),
        origin=origin,
        module=source,
        version=(own and own.version) or (found.version if found else None),
        description=(own.description if own else summary) or first_line_of_docstring(source.path),
        tags=project.tags if project else (),
        project=project,
        distribution=found.name if found else None,
        installed_version=found.version if found else None,
        editable_from=_editable_folder(found),
    )


def _describe_installed(source: ModuleSource, found: Distribution | None) -> EnvironmentPackage:
    return _described("installed", source, _project_of(source, found), found)


def _editable_folder(found: Distribution | None) -> Path | None:
    path, is_editable = installed_from(found) if found else (None, False)
    return path if is_editable else None


def _project_of(source: ModuleSource, found: Distribution | None) -> Project | None:
    """Reads the module's own ``pyproject.toml``, never another distribution's file next to the module."""
    shipped = found.read_text(_SHIPPED) if found else None
    if shipped is not None:
        return parse_project(shipped, Path(_SHIPPED))
    if (folder := _editable_folder(found)) is not None:
        return read_project(folder)
    beside = [source.path.parent] if source.is_package else []
    for place in [*beside, source.root]:
        project = read_project(place)
        if project is not None and project.is_of(found.name if found else source.name):
            return project
    return None


def _module_names(found: Distribution) -> Iterator[str]:
    named = module_of(canonicalize_name(found.name))
    yield named
    for path in found.files or ():
        top = path.parts[0].removesuffix(".py")
        is_module = len(path.parts) == 1 and path.suffix == ".py"
        is_package = len(path.parts) == 2 and path.name == "__init__.py"  # noqa: PLR2004 - folder and file
        if (is_module or is_package) and top != named:
            yield top


def _module_of(found: Distribution, name: str) -> ModuleSource | None:
    folder = _editable_folder(found)
    return (find_module(folder, name) if folder else None) or _importable(name)


def _importable(name: str) -> ModuleSource | None:
    if name in sys.stdlib_module_names or name == "nightjar":
        return None
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    path = Path(spec.origin)
    return ModuleSource(name, path, path.parent.parent if path.name == "__init__.py" else path.parent)


@dataclass(frozen=True)
class InFile:
    env_id: str
    folder: Path
    env_args: Mapping[str, str] = field(default_factory=dict)


def in_file(text: str) -> InFile | None:
    """Returns the environment that ``path.py`` or ``path.py:name`` refers to; None for any other name."""
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
    """Resolves a file name against the current folder, then against ``folder``; other names stay unchanged."""
    match = _FILE.fullmatch(text)
    if match is None or Path(match["path"]).is_file():
        return text
    if not (folder / match["path"]).is_file():
        raise ConfigError(f"there is no file {match['path']!r} in {Path.cwd()} or {folder.absolute()}")
    return str(folder / text)


def find_environment(env_id: str, environments_dir: Path = ENVIRONMENTS_DIR) -> EnvironmentPackage:
    package = known_environment(env_id, environments_dir)
    if package is None:
        raise EnvironmentNotFoundError([env_id], [each.env_id for each in list_environments(environments_dir)])
    return package


def known_environment(env_id: str, environments_dir: Path = ENVIRONMENTS_DIR) -> EnvironmentPackage | None:
    """Does the same as ``find_environment``, but returns None for an unknown name."""
    if (file := file_of_task(env_id)) is not None:
        return local_package(file)
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
    found = [*built_in_packages(), *installed_packages(), *_local_packages(environments_dir)]
    by_name = {package.env_id: package for package in found}
    return [by_name[name] for name in sorted(by_name)]


def built_in_packages(listed: str | None = None) -> Iterator[EnvironmentPackage]:
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
    if not path.is_dir():
        is_module = path.suffix == ".py" and path.is_file()
        return _describe_local(ModuleSource(path.stem, path, path.parent), None) if is_module else None
    project = read_project(path)
    for name in (path.absolute().name, project.name if project else None):
        source = find_module(path, module_of(name)) if name else None
        if source is not None:
            return _describe_local(source, project)
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
            source = find_module(path, module_of(path.name))
            package = replace(_describe_local(source, None), description=f"Broken: {error}") if source else None
        if package is not None and defines_environment(package.module.path):
            names = benchmark_names(package.module.path) or [package.env_id]
            yield from (replace(package, env_id=listed_name(name.lower())) for name in names)


def _describe_local(source: ModuleSource, project: Project | None) -> EnvironmentPackage:
    found = find_distribution(project.name if project and project.name else source.name)
    return _described("local", source, project, found)


def _is_same(version: str | None, asked: str) -> bool:
    try:
        return version is not None and Version(version) == Version(asked)
    except InvalidVersion:
        return version == asked

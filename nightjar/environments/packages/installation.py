"""Installs environment packages into Nightjar's Python with that Python's pip, or with uv.

Their dependencies are installed too, except ``verifiers``: Nightjar replaces it, and its pinned versions would
downgrade Nightjar's dependencies.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from nightjar.core.environment_id import ENVIRONMENTS_DIR, EnvironmentId
from nightjar.environments.packages.catalog import (
    find_distribution,
    find_environment,
    installed_from,
    local_package,
    package_of,
)
from nightjar.environments.packages.package import PYPROJECT, EnvironmentPackage
from nightjar.errors import EnvironmentNotFoundError, EnvironmentPackageError, EnvironmentVersionError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

logger = logging.getLogger(__name__)

_DISTRIBUTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RAISED = re.compile(r"(\w+\.)*\w+(Error|Exception): ")
_REPORTED = re.compile(
    r"error: (?!subprocess-exited-with-error|metadata-generation-failed|Failed to build)(.+)", re.IGNORECASE
)
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_REPLACED = "verifiers"
_NIGHTJAR = "nightjar-evals"


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """How packages are installed; without ``build_isolation``, they are built with the installed build tools."""

    editable: bool = True
    upgrade: bool = False
    with_dependencies: bool = True
    build_isolation: bool = True
    index_url: str | None = None
    shows_log: bool = False

    def flags(self) -> list[str]:
        flags = {
            "--upgrade": self.upgrade,
            "--no-build-isolation": not self.build_isolation,
            f"--index-url={self.index_url}": self.index_url is not None,
        }
        return [flag for flag, is_set in flags.items() if is_set]


@dataclass(frozen=True, slots=True)
class Target:
    """A folder, an archive or a requirement (``name``, ``name==version``) to install."""

    asked: str
    requirement: str | None = None
    path: Path | None = None
    is_latest: bool = False

    def arguments(self, editable: bool) -> list[str]:
        """Returns the installer's arguments. Paths are absolute: installers search the package index for bare names."""
        if self.path is None:
            return ["--upgrade", str(self.requirement)] if self.is_latest else [str(self.requirement)]
        path = str(self.path.absolute())
        return ["--editable", path] if editable and self.path.is_dir() else [path]


@dataclass(frozen=True, slots=True)
class Installation:
    asked: str
    package: EnvironmentPackage
    left_out: tuple[str, ...] = ()
    """Requirements that Nightjar replaces."""


def install(
    names: Sequence[str], environments_dir: Path = ENVIRONMENTS_DIR, options: InstallOptions | None = None
) -> list[Installation]:
    """Installs environments.

    A name is the path of a project folder or an archive, a name in ``environments_dir``, or a distribution in the
    package index: ``my-env``, ``owner/my-env``, ``my-env@1.2``.
    """
    chosen = options or InstallOptions()
    targets = [find_target(name, environments_dir) for name in names]
    run_installer(["--no-deps", *chosen.flags()], targets, chosen)
    importlib.invalidate_caches()
    installed = [_installed(target) for target in targets]
    if chosen.with_dependencies:
        _install_dependencies([found for found, _ in installed], chosen)
    return [
        Installation(target.asked, package, tuple(filter(_is_replaced, found.requires or ())))
        for target, (found, package) in zip(targets, installed, strict=True)
    ]


def find_target(name: str, environments_dir: Path | None = ENVIRONMENTS_DIR) -> Target:
    """Resolves a name as a path, otherwise as an environment in the folder, otherwise as a distribution's name."""
    path = Path(name).expanduser()
    if name.startswith((".", "/", "~")) or _is_installable(path) or ("/" in name and path.exists()):
        return Target(name, path=_checked(path, name))
    asked = EnvironmentId.parse(name)
    local = None if environments_dir is None else _find_local(asked, environments_dir)
    if local is not None:
        return Target(name, path=_checked(local.project.path.parent if local.project else local.module.path, name))
    if not _DISTRIBUTION.fullmatch(asked.name):
        raise EnvironmentPackageError(f"{name!r} is neither a folder nor a package name")
    return Target(name, requirement=_requirement(asked), is_latest=asked.asks_for_latest)


def _find_local(asked: EnvironmentId, environments_dir: Path) -> EnvironmentPackage | None:
    if asked.asks_for_latest:
        return None
    try:
        package = find_environment(asked.text, environments_dir)
    except (EnvironmentNotFoundError, EnvironmentVersionError):
        return None
    return package if package.origin == "local" else None


def _is_installable(path: Path) -> bool:
    if path.is_dir():
        return (path / PYPROJECT).is_file() or (path / "setup.py").is_file()
    return path.is_file() and path.name.endswith(_ARCHIVES)


def _checked(path: Path, name: str) -> Path:
    if _is_installable(path):
        return path
    if not path.exists():
        raise EnvironmentPackageError(f"There is no file or folder {name!r}")
    module = local_package(path)
    hint = f". It runs without being installed: nightjar eval run {module.env_id}" if module else ""
    raise EnvironmentPackageError(f"{str(path)!r} is not a package: it has no {PYPROJECT}{hint}")


def _requirement(asked: EnvironmentId) -> str:
    if asked.version is None:
        return asked.name
    try:
        return f"{asked.name}=={Version(asked.version)}"
    except InvalidVersion:
        raise EnvironmentPackageError(f"{asked.version!r} in {asked.text!r} is not a version. Example: 1.2.0") from None


def run_installer(flags: Sequence[str], targets: Sequence[Target], options: InstallOptions) -> None:
    wanted = [argument for target in targets for argument in target.arguments(options.editable)]
    command = [*_installer(), *flags, *wanted]
    logger.debug("Installing %s", " ".join(wanted))
    with subprocess.Popen(  # noqa: S603 - names are checked, and no shell reads them
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        log = []
        for line in process.stdout or ():
            log.append(line.rstrip())
            if options.shows_log:
                sys.stderr.write(line)
    if process.returncode:
        names = ", ".join(repr(target.asked) for target in targets)
        hint = "" if options.shows_log else ". See the log with --verbose"
        raise EnvironmentPackageError(f"Cannot install {names}: {reason(log)}{hint}")


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-color"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable, "--color", "never"]
    raise EnvironmentPackageError(
        f"Cannot install: {sys.executable} has no pip, and there is no uv. Try: {sys.executable} -m ensurepip"
    )


def reason(log: Sequence[str]) -> str:
    lines = [line.strip(" │╰─>▶×") for line in log]
    raised = [line for line in lines if _RAISED.match(line)]
    said = [match[1] for line in lines if (match := _REPORTED.match(line))]
    found = raised[-1:] or said[:1] or [line for line in lines if line][-1:] or ["the installer said nothing"]
    return found[0].rstrip(".")


def _installed(target: Target) -> tuple[Distribution, EnvironmentPackage]:
    found = _distribution_of(target)
    package = package_of(found)
    if package is None:
        raise EnvironmentPackageError(
            f"{found.name!r} {found.version} is installed, but is not an environment: none of its modules has a "
            f"load_environment(). To remove it: pip uninstall {found.name}"
        )
    return found, package


def _distribution_of(target: Target) -> Distribution:
    if target.path is None:
        found = find_distribution(_parsed(str(target.requirement)).name)
    else:
        path = target.path.resolve()
        sources = ((candidate, installed_from(candidate)[0]) for candidate in distributions())
        found = next((candidate for candidate, source in sources if source and source.resolve() == path), None)
    if found is None:
        raise EnvironmentPackageError(
            f"{target.asked!r} was installed, but not where {sys.executable} finds it. Look at 'pip config list'"
        )
    return found


def _install_dependencies(found: Sequence[Distribution], options: InstallOptions) -> None:
    missing = [text for text in dict.fromkeys(text for one in found for text in one.requires or ()) if is_missing(text)]
    if not missing:
        return
    nightjar = find_distribution(_NIGHTJAR)
    fixed = [f"{_NIGHTJAR}=={nightjar.version}"] if nightjar else []
    logger.info("Installing dependencies: %s", ", ".join(missing))
    flags = replace(options, upgrade=False).flags()
    run_installer([*flags, *fixed], [Target(text, requirement=text) for text in missing], options)


def is_missing(text: str) -> bool:
    """Returns whether a requirement applies to this machine and is not met. Nightjar always meets ``verifiers``."""
    requirement = _parsed(text)
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if _is_replaced(text) or not applies:
        return False
    found = find_distribution(requirement.name)
    is_plain = requirement.url is None and not requirement.extras
    return not (found and is_plain and requirement.specifier.contains(found.version, prereleases=True))


def _parsed(text: str) -> Requirement:
    from packaging.requirements import Requirement

    return Requirement(text)


def _is_replaced(text: str) -> bool:
    return canonicalize_name(_parsed(text).name) == _REPLACED

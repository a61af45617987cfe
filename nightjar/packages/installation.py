"""Installs environment packages into the Python that runs Nightjar, with its own pip (or uv where there is no pip).

The packages come first and alone, then what they depend on, without ``verifiers``: Nightjar stands in for it, and its
pins would take Nightjar's own dependencies back to old versions.
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

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from nightjar.errors import EnvironmentNotFoundError, EnvironmentPackageError, EnvironmentVersionError
from nightjar.packages.catalog import find_environment, local_package
from nightjar.packages.installed import find_distribution, installed_from, package_of
from nightjar.packages.names import ENVIRONMENTS_DIR, EnvironmentId
from nightjar.packages.package import PYPROJECT, EnvironmentPackage

logger = logging.getLogger(__name__)

_DISTRIBUTION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RAISED = re.compile(r"(\w+\.)*\w+(Error|Exception): ")
_SAID = re.compile(
    r"error: (?!subprocess-exited-with-error|metadata-generation-failed|Failed to build)(.+)", re.IGNORECASE
)
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_STOOD_IN_FOR = "verifiers"
_OURSELVES = "nightjar-evals"


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """How packages are installed.

    Attributes:
        editable: install folders so that changes in them take effect at once.
        upgrade: take newer versions of what is installed already.
        with_dependencies: install also what the packages depend on.
        build_isolation: build in an environment of its own; without, the build tools that are installed are used.
        index_url: the package index; None for the one that pip is configured with.
        shows_log: leave the installer's output on stderr.
    """

    editable: bool = True
    upgrade: bool = False
    with_dependencies: bool = True
    build_isolation: bool = True
    index_url: str | None = None
    shows_log: bool = False

    def flags(self) -> list[str]:
        """Returns the installer's flags."""
        flags = {
            "--upgrade": self.upgrade,
            "--no-build-isolation": not self.build_isolation,
            f"--index-url={self.index_url}": self.index_url is not None,
        }
        return [flag for flag, is_set in flags.items() if is_set]


@dataclass(frozen=True, slots=True)
class Target:
    """What the installer is told to install: a folder or an archive, or a requirement (``name``, ``name==version``)."""

    asked: str
    requirement: str | None = None
    path: Path | None = None
    is_latest: bool = False

    def arguments(self, editable: bool) -> list[str]:
        """Returns the installer's arguments for it. A path is absolute: a bare name would be looked up in the index."""
        if self.path is None:
            return ["--upgrade", str(self.requirement)] if self.is_latest else [str(self.requirement)]
        path = str(self.path.absolute())
        return ["--editable", path] if editable and self.path.is_dir() else [path]


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment that was installed: what was asked for, and what is there now."""

    asked: str
    package: EnvironmentPackage
    left_out: tuple[str, ...] = ()
    """Requirements that Nightjar stands in for."""


def install(
    names: Sequence[str], environments_dir: Path = ENVIRONMENTS_DIR, options: InstallOptions | None = None
) -> list[Installation]:
    """Installs environments.

    Args:
        names: each the path of a project folder or an archive, the name of an environment in ``environments_dir``,
            or the name of a distribution in the package index: ``my-env``, ``owner/my-env``, ``my-env@1.2``.
        environments_dir: where environments are developed.
        options: how; None for the defaults.

    Raises:
        EnvironmentPackageError: one cannot be found or installed, or is no environment. What the installer said is in
            the message.
    """
    chosen = options or InstallOptions()
    targets = [find_target(name, environments_dir) for name in names]
    run_installer(["--no-deps", *chosen.flags()], targets, chosen)
    importlib.invalidate_caches()
    installed = [_installed(target) for target in targets]
    if chosen.with_dependencies:
        _install_dependencies([found for found, _ in installed], chosen)
    return [
        Installation(target.asked, package, tuple(filter(_is_stood_in_for, found.requires or ())))
        for target, (found, package) in zip(targets, installed, strict=True)
    ]


def find_target(name: str, environments_dir: Path | None = ENVIRONMENTS_DIR) -> Target:
    """Works out what a name or path means: a path, else an environment in the folder, else a distribution's name.

    Example:
        >>> find_target("ada/my-env@1.2", Path("no-such-folder")).requirement
        'my-env==1.2'
    """
    path = Path(name).expanduser()
    if name.startswith((".", "/", "~")) or _is_installable(path) or ("/" in name and path.exists()):
        return Target(name, path=_checked(path, name))
    asked = EnvironmentId.parse(name)
    local = None if environments_dir is None else _find_local(asked, environments_dir)
    if local is not None:
        return Target(name, path=_checked(local.project.path.parent if local.project else local.module.path, name))
    if not _DISTRIBUTION.fullmatch(asked.name):
        raise EnvironmentPackageError(f"{name!r} is neither a folder nor a name of a package")
    return Target(name, requirement=_requirement(asked), is_latest=asked.asks_for_latest)


def _find_local(asked: EnvironmentId, environments_dir: Path) -> EnvironmentPackage | None:
    """Returns the environment in the folder; not where the index's newest, or another version, is asked for."""
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
        raise EnvironmentPackageError(f"There is no {name!r}")
    module = local_package(path)
    hint = f". It runs without being installed: nightjar eval run {module.env_id}" if module else ""
    raise EnvironmentPackageError(f"{str(path)!r} is no package: it has no {PYPROJECT}{hint}")


def _requirement(asked: EnvironmentId) -> str:
    if asked.version is None:
        return asked.name
    try:
        return f"{asked.name}=={Version(asked.version)}"
    except InvalidVersion:
        raise EnvironmentPackageError(
            f"{asked.version!r} in {asked.text!r} is no version. Write for example 1.2.0"
        ) from None


def run_installer(flags: Sequence[str], targets: Sequence[Target], options: InstallOptions) -> None:
    """Runs pip, or uv where there is no pip.

    Raises:
        EnvironmentPackageError: it fails; the message says why, as it does.
    """
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
    """Finds the line of an installer's log that says why it failed."""
    lines = [line.strip(" │╰─>▶×") for line in log]
    raised = [line for line in lines if _RAISED.match(line)]
    said = [match[1] for line in lines if (match := _SAID.match(line))]
    found = raised[-1:] or said[:1] or [line for line in lines if line][-1:] or ["the installer said nothing"]
    return found[0].rstrip(".")


def _installed(target: Target) -> tuple[Distribution, EnvironmentPackage]:
    found = _distribution_of(target)
    package = package_of(found)
    if package is None:
        raise EnvironmentPackageError(
            f"{found.name!r} {found.version} is installed, but is no environment: none of its modules has a "
            f"load_environment(). If it was not there before, take it back with 'pip uninstall {found.name}'"
        )
    return found, package


def _distribution_of(target: Target) -> Distribution:
    if target.path is None:
        found = find_distribution(Requirement(str(target.requirement)).name)
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
    """Installs what is missing, in versions that Nightjar itself can work with."""
    missing = [text for text in dict.fromkeys(text for one in found for text in one.requires or ()) if is_missing(text)]
    if not missing:
        return
    ourselves = find_distribution(_OURSELVES)
    fixed = [f"{_OURSELVES}=={ourselves.version}"] if ourselves else []
    logger.info("Installing dependencies: %s", ", ".join(missing))
    flags = replace(options, upgrade=False).flags()
    run_installer([*flags, *fixed], [Target(text, requirement=text) for text in missing], options)


def is_missing(text: str) -> bool:
    """Says whether a requirement applies here and is not met; one that Nightjar stands in for is."""
    requirement = Requirement(text)
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if _is_stood_in_for(text) or not applies:
        return False
    found = find_distribution(requirement.name)
    is_plain = requirement.url is None and not requirement.extras
    return not (found and is_plain and requirement.specifier.contains(found.version, prereleases=True))


def _is_stood_in_for(text: str) -> bool:
    return canonicalize_name(Requirement(text).name) == _STOOD_IN_FOR

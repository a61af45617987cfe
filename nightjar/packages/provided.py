"""Environments that a run brings along: sent as files, or installed for it alone.

Each has a folder of its own in Nightjar's home, called by a hash, which may be deleted when no run uses it.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from nightjar.errors import EnvironmentNotFoundError, EnvironmentPackageError, EnvironmentVersionError
from nightjar.home import home
from nightjar.packages.catalog import find_environment, local_package
from nightjar.packages.installation import InstallOptions, Target, find_target, is_missing, run_installer
from nightjar.packages.names import EnvironmentId
from nightjar.packages.source import source_hash

logger = logging.getLogger(__name__)

SENT = "sha256:"
"""How the source of an environment begins that was sent; the hash of its files follows."""

_GIT = re.compile(r"git\+(?P<url>\w+://[^#]*?)(?:@(?P<revision>[^@#:]+))?(?P<rest>#.*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_GIT_SECONDS = 60.0
_NOWHERE = Path(os.devnull)
"""A folder of environments in which there is none: one that was installed is not hidden by a local one of its name."""
_OPTIONS = InstallOptions(editable=False)


def provide(env_id: str, source: str, environments_dir: Path) -> Path:
    """Makes an environment available to this process, and returns the folder of environments to look for it in.

    Args:
        env_id: its name; ``owner/name@version`` that is not here in this version is its own source.
        source: where it comes from: ``sha256:…`` that was sent here, ``owner/name@version``, the URL of a repository or
            a wheel; empty for one that is here.
        environments_dir: the folder where environments are developed.

    Raises:
        EnvironmentPackageError: it is not here, or cannot be installed.
    """
    if source.startswith(SENT):
        return _sent(source)
    wanted = source or _not_here(env_id, environments_dir)
    if not wanted:
        return environments_dir
    target, identity = _pinned(wanted)
    if "://" in identity or target.path is not None or is_missing(identity):
        _see(_made(_key([identity]), partial(_install, [target])))
    return _NOWHERE


def has_sent(source: str) -> bool:
    """Says whether an environment that was sent has arrived here."""
    return _folder(source.removeprefix(SENT)).is_dir()


def keep_sent(source: str, archive: bytes) -> None:
    """Unpacks an environment that was sent, under its hash.

    Raises:
        EnvironmentPackageError: the archive is damaged, or another one.
    """
    _made(source.removeprefix(SENT), partial(_unpack, archive, source))


def _sent(source: str) -> Path:
    folder = _folder(source.removeprefix(SENT))
    if not folder.is_dir():
        raise EnvironmentPackageError(f"Environment {source} was not sent here. Run it from its folder, with --hosted")
    packages = filter(None, map(local_package, folder.iterdir()))
    projects = filter(None, (package.project for package in packages))
    if wanted := [text for project in projects for text in project.dependencies if is_missing(text)]:
        _see(_made(_key(wanted), partial(_install_missing, wanted)))
    return folder


def _not_here(env_id: str, environments_dir: Path) -> str:
    """Returns an ``owner/name@version`` that has to be installed; empty where nothing has."""
    asked = EnvironmentId.parse(env_id)
    if asked.owner is None or asked.version is None:
        return ""
    try:
        find_environment(env_id, environments_dir)
    except (EnvironmentNotFoundError, EnvironmentVersionError):
        return env_id
    return ""


def _pinned(source: str) -> tuple[Target, str]:
    """Returns what is installed, and what identifies it for all time."""
    if (git := _GIT.fullmatch(source)) is not None:
        requirement = f"git+{git['url']}@{_commit(git['url'], git['revision'] or 'HEAD')}{git['rest'] or ''}"
        return Target(source, requirement=requirement), requirement
    if "://" in source:
        return Target(source, requirement=source), source
    target = find_target(source, None)
    if target.path is None and "==" in str(target.requirement):
        return target, str(target.requirement)
    if target.path is not None and target.path.is_file():
        return target, sha256(target.path.read_bytes()).hexdigest()
    raise EnvironmentPackageError(
        f"{source!r} does not say which version. Name one, owner/name@1.2, a wheel, or git+https://host/repository@v1"
    )


def _commit(url: str, revision: str) -> str:
    if _COMMIT.fullmatch(revision):
        return revision
    command = ["git", "ls-remote", "--exit-code", "--", url, revision]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentPackageError(f"git cannot look into {url!r}: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it has no branch or tag {revision!r}"]
        raise EnvironmentPackageError(f"git cannot find {revision!r} in {url!r}: {said[-1]}")
    return done.stdout.split()[0]


def _key(identities: Sequence[str]) -> str:
    """Returns the name of the folder of an installation: another Python, or other packages, make it another one."""
    return sha256("\n".join([sys.version, *sorted(identities), *_constraints()]).encode()).hexdigest()


def _constraints() -> list[str]:
    """Returns the packages that are here, which stay as they are."""
    here = {found.name: found.version for found in distributions() if found.name}
    return [f"{name}=={version}" for name, version in sorted(here.items())]


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """Returns a folder of Nightjar's home that is made once, whole or not at all."""
    folder = _folder(name)
    folder.parent.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with TemporaryDirectory(dir=folder.parent) as temporary:
                new = Path(temporary, "new")
                new.mkdir()
                make(new)
                new.rename(folder)
    return folder


def _unpack(archive: bytes, source: str, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
            zipped.extractall(folder)
    except (zipfile.BadZipFile, OSError) as error:
        raise EnvironmentPackageError(f"Environment {source} cannot be unpacked: {error}") from error
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    if SENT + source_hash(files) != source:
        raise EnvironmentPackageError(f"What was sent as environment {source} is something else")


def _install(targets: Sequence[Target], folder: Path) -> None:
    logger.warning("Installing %s, for this run alone", ", ".join(target.asked for target in targets))
    run_installer(["--no-deps", "--target", str(folder)], targets, _OPTIONS)
    requires = [text for found in distributions(path=[str(folder)]) for text in found.requires or ()]
    _install_missing(list(filter(is_missing, requires)), folder)


def _install_missing(requirements: Sequence[str], folder: Path) -> None:
    """Installs into a folder what is required; what is installed here already keeps its version."""
    if requirements:
        constraints = folder.with_name("constraints.txt")
        constraints.write_text("\n".join(_constraints()), encoding="utf-8")
        flags = ["--target", str(folder), "--constraint", str(constraints)]
        run_installer(flags, [Target(text, requirement=text) for text in requirements], _OPTIONS)


def _see(folder: Path) -> None:
    """Lets this process import from a folder, before any other."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()


def _folder(name: str) -> Path:
    return home() / "environments" / name

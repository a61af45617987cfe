"""Where environments are looked for in this context, and which version and commit of one is there."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

import nightjar
from nightjar.packages.catalog import find_environment, known_environment, list_environments
from nightjar.packages.installed import installed_commit
from nightjar.packages.names import ENVIRONMENTS_DIR
from nightjar.packages.package import EnvironmentPackage
from nightjar.packages.source import source_files, source_hash

logger = logging.getLogger(__name__)

_GIT_TIMEOUT_SECONDS = 10.0
_environments_dir: ContextVar[Path] = ContextVar("environments_dir", default=ENVIRONMENTS_DIR)


@contextmanager
def environments_in(folder: Path) -> Iterator[None]:
    """Looks for environments in another folder than ``./environments``; those that environments load, too.

    Example:
        >>> from nightjar.envs import load_environment
        >>> with environments_in(Path("my-environments")):
        ...     env = load_environment("arithmetic", num_problems=3)
    """
    token = _environments_dir.set(folder)
    try:
        yield
    finally:
        _environments_dir.reset(token)


def find_here(env_id: str) -> EnvironmentPackage:
    """Returns the package of an environment, as it is found in this context.

    Raises:
        EnvironmentNotFoundError: there is none.
        EnvironmentVersionError: it is there, in another version.
    """
    return find_environment(env_id, _environments_dir.get())


def installed_environments() -> list[str]:
    """Returns the names of all environments that can be loaded here.

    Example:
        >>> "arithmetic" in installed_environments()
        True
    """
    return [package.env_id for package in list_environments(_environments_dir.get())]


def environment_version(env_id: str) -> str | None:
    """Returns the version of an environment's package; None where it is no package of its own.

    Example:
        >>> environment_version("arithmetic") is None
        True
    """
    package = known_environment(env_id, _environments_dir.get())
    return None if package is None or package.origin == "built-in" else package.version


def environment_commit(env_id: str) -> str | None:
    """Returns the git commit that an environment is of, see ``source_commit``; None where it is of no repository.

    Example:
        >>> environment_commit("no-such-environment") is None
        True
    """
    package = known_environment(env_id, _environments_dir.get())
    if package is None:
        return None
    installed = installed_commit(package.distribution) if package.distribution else None
    return installed or source_commit(package.module.path)


def environment_hash(env_id: str) -> str | None:
    """Returns the SHA-256 of an environment's files, see ``source_files``; None where it is not here.

    Example:
        >>> environment_hash("no-such-environment") is None
        True
    """
    package = known_environment(env_id, _environments_dir.get())
    try:
        return None if package is None else source_hash(source_files(package))
    except OSError as error:
        logger.warning("The files of environment %r cannot be read: %s", env_id, error)
        return None


def version_info(env_id: str) -> dict[str, str | None]:
    """Returns what identifies the code of Nightjar and of an environment, as the metadata of a run has it."""
    return {
        "nightjar_version": nightjar.__version__,
        "nightjar_commit": _own_commit(),
        "env_version": environment_version(env_id),
        "env_commit": environment_commit(env_id),
        "env_hash": environment_hash(env_id),
    }


@lru_cache(maxsize=1)
def _own_commit() -> str | None:
    return source_commit(Path(nightjar.__file__))


def source_commit(file: Path) -> str | None:
    """Returns the git commit that a file's tree is at, "-dirty" where it differs; None where the file is in no tree."""
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and a file's name
            ["git", *arguments],  # noqa: S607 - the user's git
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

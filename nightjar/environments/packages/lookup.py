"""Looks up the package, version, commit and evaluation defaults of an environment in the current context."""

from __future__ import annotations

import logging
import pkgutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

import nightjar
from nightjar.core.environment_id import ENVIRONMENTS_DIR, INSPECT
from nightjar.environments.packages.catalog import (
    find_environment,
    installed_commit,
    known_environment,
    list_environments,
)
from nightjar.environments.packages.package import EnvironmentPackage, Project
from nightjar.environments.packages.provided import source_files, source_hash
from nightjar.errors import EnvironmentNotFoundError, EnvironmentPackageError

logger = logging.getLogger(__name__)

ALL_EXAMPLES = -1
RolloutCount = Annotated[int, Field(ge=1)]
_GIT_TIMEOUT_SECONDS = 10.0
_EPOCHS = "nightjar.environments.inspect_tasks.address:default_rollouts"
_environments_dir: ContextVar[Path] = ContextVar("environments_dir", default=ENVIRONMENTS_DIR)


def _one_or_more_or_all(value: int) -> int:
    if value < 1 and value != ALL_EXAMPLES:
        raise ValueError("must be 1 or more, or -1 for all examples")
    return value


ExampleCount = Annotated[int, AfterValidator(_one_or_more_or_all)]


class EvalDefaults(BaseModel):
    """An environment's defaults for a run. None means Nightjar's own default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    num_examples: ExampleCount | None = None
    """Number of examples; -1 means all."""
    rollouts_per_example: RolloutCount | None = None
    """Rollouts per example."""


def eval_defaults(
    env_id: str, environments_dir: Path = ENVIRONMENTS_DIR, env_args: Mapping[str, Any] | None = None
) -> EvalDefaults:
    """Returns the defaults in ``[tool.nightjar.eval]`` of an environment's ``pyproject.toml``; missing ones are None.

    Keys in this table override the same keys in ``[tool.verifiers.eval]``. A task of Inspect has as many rollouts as
    epochs, which may depend on ``env_args``.
    """
    if env_id.startswith(INSPECT):
        return EvalDefaults(rollouts_per_example=pkgutil.resolve_name(_EPOCHS)(env_id, dict(env_args or {})))
    try:
        project = find_environment(env_id, environments_dir).project
    except EnvironmentNotFoundError:
        project = None
    if project is None:
        return EvalDefaults()
    ours, theirs = _table(project, "nightjar"), _table(project, "verifiers")
    known = {name: value for name, value in theirs.items() if name in EvalDefaults.model_fields}
    try:
        return EvalDefaults.model_validate({**known, **ours})
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(str(part) for part in found["loc"])
        message = found["msg"].removeprefix("Value error, ")
        raise EnvironmentPackageError(
            f"{project.path}: {place} of [tool.nightjar.eval] or [tool.verifiers.eval]: {message} "
            f"(found {found['input']!r})"
        ) from error


def _table(project: Project, tool: str) -> dict[str, Any]:
    value = project.tool.get(tool, {})
    table = value.get("eval", {}) if isinstance(value, dict) else value
    if not isinstance(table, dict):
        raise EnvironmentPackageError(f"{project.path}: [tool.{tool}.eval] must be a table, found {table!r}")
    return table


@contextmanager
def environments_in(folder: Path) -> Iterator[None]:
    """Uses ``folder`` instead of ``./environments``, also for environments that other environments load.

    Example:
        >>> from nightjar.environments import load_environment
        >>> with environments_in(Path("my-environments")):
        ...     env = load_environment("arithmetic", num_problems=3)
    """
    token = _environments_dir.set(folder)
    try:
        yield
    finally:
        _environments_dir.reset(token)


def sent_file(file: Path) -> Path:
    """Returns the file with which a hosted run came to this machine, in place of one that is not here."""
    sent = _environments_dir.get() / file.name
    return sent if sent.is_file() and not file.is_file() else file


def find_here(env_id: str) -> EnvironmentPackage:
    return find_environment(env_id, _environments_dir.get())


def installed_environments() -> list[str]:
    """Returns the names of all environments that can be loaded in the current context.

    Example:
        >>> "arithmetic" in installed_environments()
        True
    """
    return [package.env_id for package in list_environments(_environments_dir.get())]


def environment_version(env_id: str) -> str | None:
    """Returns the version of an environment's package; None if it is built-in or has no version.

    Example:
        >>> environment_version("arithmetic") is None
        True
    """
    package = known_environment(env_id, _environments_dir.get())
    return None if package is None or package.origin == "built-in" else package.version


def environment_commit(env_id: str) -> str | None:
    """Returns the git commit of an environment (see ``source_commit``); None if it is not in a repository.

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
    """Returns the SHA-256 of an environment's ``source_files``; None if the environment is not on this machine."""
    package = known_environment(env_id, _environments_dir.get())
    try:
        return None if package is None else source_hash(source_files(package))
    except OSError as error:
        logger.warning("The files of environment %r cannot be read: %s", env_id, error)
        return None


def version_info(env_id: str) -> dict[str, str | None]:
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
    """Returns the git commit of a file's working tree, with "-dirty" if modified; None for an untracked file."""
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

"""The state of ``nightjar up`` in Nightjar's home: ``up.json`` with its services, and the lock of its supervisor.

The lock file holds the process id of the supervisor, so that ``stop`` ends that process and no other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nightjar.core.files import file_lock
from nightjar.core.home import home
from nightjar.errors import ConfigError, FileLockedError, ServiceError


@dataclass(frozen=True)
class ServicesState:
    """The services of ``nightjar up``. Each has a process id and a number of restarts.

    ``folder`` is the folder in which runs of the deployments run. Without a web view, ``view_url`` is None.
    """

    api_url: str
    folder: str
    work_pool: str
    services: dict[str, tuple[int, int]]
    view_url: str | None = None


def write_state(state: ServicesState) -> None:
    _file().write_text(json.dumps(asdict(state)), encoding="utf-8")


def written_at() -> float:
    """Returns seconds since 1970."""
    return _file().stat().st_mtime


def read_state() -> ServicesState | None:
    """Returns the state, or None if nothing runs."""
    try:
        return ServicesState(**json.loads(_file().read_text(encoding="utf-8")))
    except (OSError, ValueError, ConfigError):
        return None


def forget_state() -> None:
    _file().unlink(missing_ok=True)


def _file() -> Path:
    return home() / "up.json"


@contextmanager
def supervisor_lock() -> Iterator[None]:
    """Makes this process the supervisor. Raises ``ServiceError`` if there is another supervisor."""
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(_lock_file(), 0))
        except FileLockedError:
            check_nobody_supervises()
            raise
        _lock_file().write_text(str(os.getpid()), encoding="utf-8")
        stack.callback(_lock_file().write_text, "", encoding="utf-8")
        yield


def supervisor_pid() -> int | None:
    """Returns the id of the process that holds the lock, or None if there is no such process."""
    try:
        with file_lock(_lock_file(), 0):
            return None
    except FileLockedError:
        text = _lock_file().read_text(encoding="utf-8")
        return int(text) if text else None


def check_nobody_supervises() -> None:
    if (pid := supervisor_pid()) is not None:
        raise ServiceError(f"Already running, as process {pid}. Stop it with: nightjar down")


def _lock_file() -> Path:
    return home() / "up.lock"

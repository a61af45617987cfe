"""Labels containers with the process that owns them, and removes the containers of processes that have ended.

A process that makes containers has a watcher: a small process that waits for the end of its owner (also after
``kill -9``) and then runs ``removal.py``, which removes the owner's containers. If the engine does not answer for long,
or the watcher was killed too, the next process that makes containers removes them.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psutil

LABEL = "nightjar"
OWNER_LABEL = f"{LABEL}.owner"
TASK_LABEL = f"{LABEL}.task"
IMAGE_LABELS = {LABEL: "image"}
"""The labels of the images that Nightjar builds."""

_CLOCK_SECONDS = 1.0
_watchers: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
"""The watcher of each process that makes containers, here and in processes that were forked, with its uses."""

_starting = threading.Lock()
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnedContainer:
    """A container that a process of Nightjar made. ``is_owner_running`` is None if the owner is on another machine."""

    name: str
    task: str | None
    state: str
    created_at: datetime
    owner_host: str
    owner_pid: int | None
    is_owner_running: bool | None


@functools.cache
def _owner_of(pid: int) -> str:
    return f"{socket.gethostname()}/{pid}/{psutil.Process(pid).create_time():.0f}"


def owner_labels() -> dict[str, str]:
    """Returns the labels of a container of this process."""
    return {f"{LABEL}.process": str(os.getpid()), OWNER_LABEL: _owner_of(os.getpid())}


def use_watcher() -> None:
    """Starts the watcher of this process, unless it runs. Each call needs a call of ``release_watcher``."""
    with _starting:
        pid = os.getpid()
        watcher, uses = _watchers.get(pid) or (_start_watcher(), 0)
        if watcher is not None:
            _watchers[pid] = watcher, uses + 1


def release_watcher() -> None:
    """Ends the watcher of this process after its last use."""
    with _starting:
        pid = os.getpid()
        watcher, uses = _watchers.pop(pid, (None, 0))
        if watcher is not None and uses > 1:
            _watchers[pid] = watcher, uses - 1
        elif watcher is not None:
            watcher.kill()  # so that it does not ask the engine for nothing
            watcher.communicate()


def _start_watcher() -> subprocess.Popen[bytes] | None:
    shell = shutil.which("sh")
    if shell is None:
        return None
    wait = 'read -r _; exec "$0" -P -m nightjar.sandboxes.removal "$1"'
    return subprocess.Popen(  # noqa: S603 - our own program
        [shell, "-c", wait, sys.executable, _owner_of(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal to the owner's group must not end it
    )


def owned_containers(client: Any) -> list[OwnedContainer]:
    """Returns the containers of all processes of Nightjar, oldest first."""
    found = client.api.containers(all=True, filters={"label": [OWNER_LABEL]})
    return sorted(map(_owned, found), key=lambda each: (each.created_at, each.name))


def _owned(container: Mapping[str, Any]) -> OwnedContainer:
    labels = container["Labels"]
    host, _, process = labels[OWNER_LABEL].partition("/")
    pid = process.partition("/")[0]
    return OwnedContainer(
        name=_name_of(container),
        task=labels.get(TASK_LABEL),
        state=str(container["State"]),
        created_at=datetime.fromtimestamp(int(container["Created"]), UTC),
        owner_host=host,
        owner_pid=int(pid) if pid.isdecimal() else None,
        is_owner_running=not has_ended(labels[OWNER_LABEL]) if host == socket.gethostname() else None,
    )


def _name_of(container: Mapping[str, Any]) -> str:
    return str(next(iter(container["Names"] or ()), container["Id"])).lstrip("/")


def remove_left(client: Any, owner: str | None = None) -> list[str]:
    """Removes the containers of one owner, or of all owners on this machine that have ended. Returns their names."""
    removed = []
    for container in client.api.containers(all=True, filters={"label": [OWNER_LABEL]}):
        found = container["Labels"][OWNER_LABEL]
        if found == owner if owner else has_ended(found):
            with suppress(Exception):  # another process removes it, or the next one does
                client.api.remove_container(container["Id"], force=True, v=True)
                removed.append(_name_of(container))
    return removed


def has_ended(owner: str) -> bool:
    """Whether the owner was a process of this machine, and no longer runs."""
    host, _, process = owner.partition("/")
    pid, _, started = process.partition("/")
    if host != socket.gethostname() or not (pid.isdecimal() and started.isdecimal()):
        return False
    try:
        process_there = psutil.Process(int(pid))
        is_another: bool = abs(process_there.create_time() - int(started)) > _CLOCK_SECONDS
        return is_another or bool(process_there.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True

"""Names the folders that segments are written in, and tells those in use from what dead processes left.

A shared folder has them of several machines, and of containers that share a name but not their process ids. Only where
an id means the same process is it asked for; nobody writes a segment for a day.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

SCRATCH_PREFIX = ".writing-"
"""Begins the name of a segment that is not there yet."""

_LIVE_SECONDS = 24 * 3600


def scratch_name() -> str:
    """Returns a name for a folder of this process that no other has."""
    return f"{SCRATCH_PREFIX}{os.getpid()}-{uuid.uuid4().hex}-{_place()}"


def is_alive(path: Path) -> bool:
    """Says whether the process may still live that made a scratch folder; none does for more than a day.

    Args:
        path: the folder; one that is gone is not alive.
    """
    pid, _, rest = path.name.removeprefix(SCRATCH_PREFIX).partition("-")
    try:
        if time.time() - path.stat().st_mtime > _LIVE_SECONDS:
            return False
        if rest.partition("-")[2] == _place():
            os.kill(int(pid), 0)
    except (ValueError, OverflowError, ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True
    return True


@cache
def _place() -> str:
    """Where a process id is that of one process: a machine until it starts again, or a container on it."""
    identity = []
    with suppress(OSError):
        identity.append(Path("/proc/sys/kernel/random/boot_id").read_text("utf-8"))
    with suppress(OSError):
        identity.append(str(Path("/proc/self/ns/pid").readlink()))
    return f"{socket.gethostname()}-{hashlib.sha256(''.join(identity).encode()).hexdigest()[:12]}"

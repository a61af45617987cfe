"""Whether a process of this machine or container still runs."""

from __future__ import annotations

import psutil


def is_running(pid: int) -> bool:
    """Returns whether a process exists and has not ended.

    An ended process keeps its id until its parent waits for it. In a container, the first process is the parent of all
    processes that were left behind, and may never wait.
    """
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

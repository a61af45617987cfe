"""Keeps a server running as long as its parent process lives: ``python -P gym_guard.py COMMAND…``.

The command's process group ends when standard input closes, which happens when the parent ends. On Linux, the group
also ends with this process. This file needs only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

_ENDING_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


def main() -> None:
    die_with_us = _die_with_us if sys.platform == "linux" else None
    server = subprocess.Popen(  # noqa: S603
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=die_with_us,  # noqa: PLW1509 - there is no other thread yet
    )

    def end() -> None:
        sys.stdin.buffer.read()
        _signal(server.pid, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: _signal(server.pid, signal.SIGTERM))
    watching = threading.Thread(target=end, daemon=True)
    watching.start()
    while server.poll() is None and watching.is_alive():
        with suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
    with suppress(subprocess.TimeoutExpired):
        server.wait(_ENDING_SECONDS)
    _signal(server.pid, signal.SIGKILL)
    os._exit(server.wait() & 0xFF)


def _die_with_us() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    main()

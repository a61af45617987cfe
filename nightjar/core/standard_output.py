"""Lets a process print although nobody reads: the reader of its pipe may have been killed, or may hang."""

from __future__ import annotations

import atexit
import os
import select
import stat
import sys
from contextlib import suppress
from threading import Lock, Thread

_CHUNK = 65536
_SECONDS = 1.0
"""Time for the reader to accept a piece of text; then it is dropped."""
_STDOUT, _STDERR = 1, 2

_lock = Lock()
_is_done = False


def survive_reader() -> None:
    """Makes prints of this process and of its children independent of who reads them.

    stdout and stderr become pipes that a thread of this process reads and forwards. Text that cannot be forwarded is
    dropped. Without this, a killed reader ends the process with a broken pipe, and a hanging reader blocks the process.
    Does nothing for terminals and files.
    """
    global _is_done  # noqa: PLW0603 - the standard streams are those of the process
    with _lock:
        if _is_done:
            return
        _is_done = True
    for descriptor in (_STDOUT, _STDERR):
        if _is_pipe(descriptor):
            _forward(descriptor)


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _forward(descriptor: int) -> None:
    target = os.dup(descriptor)
    source, sink = os.pipe()
    os.dup2(sink, descriptor)
    os.close(sink)
    pump = Thread(target=_pump, args=(source, target), name=f"prints {descriptor}", daemon=True)
    pump.start()
    atexit.register(_end, descriptor, target, pump)


def _pump(source: int, target: int) -> None:
    os.set_blocking(target, False)
    while content := os.read(source, _CHUNK):
        _send(content, target)
    os.close(source)


def _send(content: bytes, target: int) -> None:
    while content:
        _, writable, _ = select.select([], [target], [], _SECONDS)
        try:
            content = content[os.write(target, content) :] if writable else b""
        except BlockingIOError:
            continue
        except OSError:
            return


def _end(descriptor: int, target: int, pump: Thread) -> None:
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
    os.set_blocking(target, True)
    os.dup2(target, descriptor)  # closes the sink, so the thread reads what is left and ends
    pump.join(_SECONDS)

"""The process that compares answers. It reads questions from stdin and writes scores to stdout as JSON lines.

If a comparison hangs, the process ends itself: faulthandler's timer works even while the interpreter is blocked.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import Any

from nightjar.environments.rubrics.math_processes import READY
from nightjar.environments.rubrics.math_rubric import verify_response

_MEMORY_BYTES = 4 * 2**30


def main() -> None:
    out = os.dup(sys.stdout.fileno())
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())  # libraries may print
    try:
        _limit_memory()
        verify_response("1/2", "0.5", max_verify_chars=100)  # loads what the first comparison needs
    except Exception as error:  # noqa: BLE001 - reported to the waiting program
        _write(out, f"{type(error).__name__}: {error}")
        return
    _write(out, READY)
    for line in sys.stdin.buffer:
        response, answer, max_verify_chars, timeout_seconds, hard_seconds = json.loads(line)
        faulthandler.dump_traceback_later(hard_seconds, exit=True, file=silence)
        result = verify_response(response, answer, max_verify_chars, timeout_seconds)
        faulthandler.cancel_dump_traceback_later()
        _write(out, result)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    highest = resource.getrlimit(resource.RLIMIT_AS)[1]
    if highest in {resource.RLIM_INFINITY, -1} or highest > _MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, highest))


def _write(file: int, message: Any) -> None:
    os.write(file, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()

"""The command line: each command parses, calls and prints.

Results go to stdout; progress and notices go to stderr. An expected error prints one line on stderr and exits with 1.
A usage error exits with 2.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from typer import TyperException

from nightjar.cli import app
from nightjar.cli.terminal import echo
from nightjar.core.secrecy import hide_keys
from nightjar.core.text import shortened
from nightjar.errors import NightjarError

_LONGEST_PATH = 200
_FEWER_COLLECTIONS = 20_000
"""The number of new objects after which Python looks for cycles. It finds few, and 700 costs a tenth of the start."""
_OPTIONAL_VALUES = {"--resume": "latest", "-R": "latest"}


def main() -> NoReturn:
    gc.set_threshold(_FEWER_COLLECTIONS)
    try:
        code = app.app(args=with_optional_values(sys.argv[1:] or ["--help"]), standalone_mode=False)
    except NightjarError as error:
        _fail(str(error), 1)
    except TyperException as error:
        _fail(error.format_message().replace(": Value error, ", ": ", 1), error.exit_code)
    except OSError as error:
        if error.filename is not None:  # a path on the command line: too long, a loop of links, not permitted
            _fail(f"Cannot use {shortened(str(error.filename), _LONGEST_PATH)!r}: {error.strerror}", 1)
        if error.errno != errno.ENOSPC:
            raise
        _fail(f"Cannot write to standard output: {error.strerror}", 1)
    _leave(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    if message:
        echo(f"Error: {hide_keys(message)}", err=True)  # an error of an environment may quote a key
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends the process, even if a thread of an environment hangs or Prefect waits for a server (7 s per event).

    Does what Python does at the end, except that it frees no objects, which takes a sixth of a short command.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    away = sys.modules.get("nightjar.tasks.away")
    has_prefect, is_away = "prefect" in sys.modules, away is not None and away.is_away()
    if not is_away and (has_prefect or all(thread.daemon for thread in others)):
        threading._shutdown()  # type: ignore[attr-defined] # noqa: SLF001 - os._exit does neither
        atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # missing, closed, or a pipe that nobody reads
            stream.flush()
    os._exit(code)


def with_optional_values(arguments: Sequence[str]) -> list[str]:
    filled: list[str] = []
    for position, argument in enumerate(arguments):
        filled.append(argument)
        following = arguments[position + 1] if position + 1 < len(arguments) else "-"
        if argument in _OPTIONAL_VALUES and following.startswith("-"):
            filled.append(_OPTIONAL_VALUES[argument])
    return filled

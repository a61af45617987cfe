"""The query process, ``python -m nightjar.warehouse.answering FOLDER``, which ``reading/process.py`` starts.

It reads pickled requests from standard input and writes pickled answers to standard output, until its input ends.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from nightjar.errors import NightjarError
from nightjar.warehouse.backend import Backend, open_backend
from nightjar.warehouse.reading import querying
from nightjar.warehouse.reading.process import Failure, Parts, Request
from nightjar.warehouse.reading.result import AskedQuery
from nightjar.warehouse.reading.statements import split_statements

LARGEST_PROCESS_BYTES = 2 * querying.LARGEST_ANSWER_BYTES
"""How much more memory a query may take than this process has at its start: DuckDB's share and the answer."""

_GRACE_SECONDS = 0.5
"""How long after the time limit the process ends itself, if the program could not kill it."""

_LONGEST_WATCH_SECONDS = 1e6
_STATM = Path("/proc/self/statm")
_DATA_FIELD = 5

_Send = Callable[[Any], None]


def main(folder: str) -> None:
    tempfile.tempdir = folder
    answers, silence = _take_over_stdout()

    def send(message: Any) -> None:
        answers.write(pickle.dumps(message))
        answers.flush()

    logging.getLogger().addHandler(_Forwarding(send))  # type: ignore[arg-type] # a function in place of a queue
    requests: SimpleQueue[Request] = SimpleQueue()
    threading.Thread(target=_listen, args=[requests], daemon=True).start()
    send(None)
    while True:
        request = requests.get()
        if request.seconds < _LONGEST_WATCH_SECONDS:
            faulthandler.dump_traceback_later(request.seconds + _GRACE_SECONDS, exit=True, file=silence)
        try:
            _bound_memory()
            _enter(request)
            _ANSWERS[request.kind](answers, send, *pickle.loads(request.given))  # noqa: S301 - from the program
        except Exception as error:  # noqa: BLE001 - raised in the program
            send(_failure(error))
        faulthandler.cancel_dump_traceback_later()


def _take_over_stdout() -> tuple[BinaryIO, int]:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())
    return answers, silence


def _listen(requests: SimpleQueue[Request]) -> None:
    """Ends the process when the input ends or a request does not fit into memory."""
    try:
        while True:
            requests.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - from the program
    finally:
        os._exit(0)


def _enter(request: Request) -> None:
    if request.environment != os.environ:
        os.environ.clear()
        os.environ.update(request.environment)
    if request.folder is not None:
        os.chdir(request.folder)


class _Forwarding(QueueHandler):
    def enqueue(self, record: logging.LogRecord) -> None:
        send: Any = self.queue
        send(record)


def _rows(
    answers: BinaryIO, send: _Send, house: str, location: str, asked: Sequence[AskedQuery], largest_bytes: int | None
) -> None:
    packed = _opened(house, location).ask(
        lambda connection: [querying.pack_rows(connection, *one, largest_bytes) for one in asked]
    )
    send(Parts([result for result, _ in packed], [len(parts) for _, parts in packed]))
    answers.writelines(part for _, parts in packed for part in parts)
    answers.flush()


def _arrays(run: Callable[..., Any], answers: BinaryIO, house: str, location: str, asked: Sequence[AskedQuery]) -> None:
    [one] = asked
    found = _opened(house, location).ask(lambda connection: run(connection, *one))
    pickle.dump(found, answers, protocol=5)  # large buffers are written without a copy
    answers.flush()


@lru_cache(maxsize=4)
def _opened(house: str, location: str) -> Backend:  # noqa: ARG001 - a cache per Warehouse object
    return open_backend(location)


_ANSWERS: dict[str, Callable[..., None]] = {
    "rows": _rows,
    "columns": lambda answers, _, *given: _arrays(querying.run_columns_query, answers, *given),
    "table": lambda answers, _, *given: _arrays(querying.run_arrow_query, answers, *given),
    "statements": lambda _, send, text: send(split_statements(text)),
}


def _failure(error: Exception) -> Failure:
    if not isinstance(error, NightjarError):
        error.add_note(traceback.format_exc())
    failure = Failure(error, error.__cause__)
    try:
        pickle.loads(pickle.dumps(failure))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - an error of any library
        return Failure(type(error)(str(error)) if isinstance(error, NightjarError) else RuntimeError(str(error)), None)
    return failure


def _bound_memory() -> None:
    """Limits the memory of the process on Linux, because DuckDB's limit does not count Python objects and parsing."""
    if not _STATM.exists():
        return
    import resource

    taken = int(_STATM.read_text("ascii").split()[_DATA_FIELD]) * os.sysconf("SC_PAGE_SIZE")
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = taken + LARGEST_PROCESS_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main(sys.argv[1])

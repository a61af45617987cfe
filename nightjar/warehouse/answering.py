"""The process that answers questions: in on standard input, out on standard output, pickled.

``python -m nightjar.warehouse.answering FOLDER``, started by ``reading/process.py``, whose folder it is: nothing is
removed here. It ends when its input ends, so that it never outlives the program that started it; where no Python code
can run for a while, because DuckDB is parsing a statement, a moment after the time of its question is over.
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
"""How much memory this process may take for a question, beyond what it has: DuckDB's share and the answer."""

_GRACE_SECONDS = 0.5
"""The program kills this process when the time is over; where it cannot, it ends itself so much later."""

_LONGEST_WATCH_SECONDS = 1e6
_STATM = Path("/proc/self/statm")
_DATA_FIELD = 5

_Send = Callable[[Any], None]


def main(folder: str) -> None:
    """Answers questions until there are no more.

    Args:
        folder: for temporary files; the program removes it when this process has ended.
    """
    tempfile.tempdir = folder
    answers, silence = _take_over_stdout()

    def send(message: Any) -> None:
        answers.write(pickle.dumps(message))
        answers.flush()

    logging.getLogger().addHandler(_Told(send))  # type: ignore[arg-type] # it is no queue
    requests: SimpleQueue[Request] = SimpleQueue()
    threading.Thread(target=_listen, args=[requests], daemon=True).start()
    send(None)
    while True:
        request = requests.get()
        if request.seconds < _LONGEST_WATCH_SECONDS:
            faulthandler.dump_traceback_later(request.seconds + _GRACE_SECONDS, exit=True, file=silence)
        try:
            _bound_memory()
            _be_where(request)
            _ANSWERS[request.kind](answers, send, *pickle.loads(request.given))  # noqa: S301 - the program's
        except Exception as error:  # noqa: BLE001 - raised by the program
            send(_failure(error))
        faulthandler.cancel_dump_traceback_later()


def _take_over_stdout() -> tuple[BinaryIO, int]:
    """Returns the way out, and what libraries print to from now on."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, sys.stdout.fileno())
    return answers, silence


def _listen(requests: SimpleQueue[Request]) -> None:
    """Takes questions in, and ends the process when there will be no more, or one has no room in memory."""
    try:
        while True:
            requests.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - the program's
    finally:
        os._exit(0)


def _be_where(request: Request) -> None:
    """Takes over the folder and the variables of the program."""
    if request.environment != os.environ:
        os.environ.clear()
        os.environ.update(request.environment)
    if request.folder is not None:
        os.chdir(request.folder)


class _Told(QueueHandler):
    """Has the program say what is logged here."""

    def enqueue(self, record: logging.LogRecord) -> None:
        """Sends it."""
        send: Any = self.queue
        send(record)


def _rows(
    answers: BinaryIO, send: _Send, house: str, location: str, asked: Sequence[AskedQuery], largest_bytes: int | None
) -> None:
    packed = _opened(house, location).ask(
        lambda connection: [querying.pack_rows(connection, *one, largest_bytes) for one in asked]
    )
    send(Parts([one.result for one in packed], [len(one.parts) for one in packed]))
    answers.writelines(part for one in packed for part in one.parts)
    answers.flush()


def _table(answers: BinaryIO, send: _Send, house: str, location: str, asked: Sequence[AskedQuery]) -> None:
    import pyarrow as pa

    [one] = asked
    table = _opened(house, location).ask(lambda connection: querying.run_arrow_query(connection, *one))
    send(Parts(None))
    with pa.ipc.new_stream(answers, table.schema) as stream:
        stream.write_table(table)
    answers.flush()


@lru_cache(maxsize=4)
def _opened(house: str, location: str) -> Backend:  # noqa: ARG001 - each has what it has learnt for itself
    return open_backend(location)


_ANSWERS: dict[str, Callable[..., None]] = {
    "rows": _rows,
    "table": _table,
    "statements": lambda _, send, text: send(split_statements(text)),
}
"""What can be asked."""


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
    """Refuses memory beyond what the process has now and a question may take; on Linux alone.

    DuckDB's own limit does not count the value that a function is making, what a statement becomes when it is parsed,
    nor the Python objects that rows become. Allocations fail then: DuckDB and Python raise errors.
    """
    if not _STATM.exists():
        return
    import resource

    taken = int(_STATM.read_text("ascii").split()[_DATA_FIELD]) * os.sysconf("SC_PAGE_SIZE")
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = taken + LARGEST_PROCESS_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main(sys.argv[1])

"""``ask``: has a question answered by a process of its own (``answering.py``), which is killed when its time is up.

DuckDB looks for an interrupt between its steps alone: parsing a statement, planning it, and one call of a function may
take minutes and gigabytes, and nothing in the same process ends that. A process answers one question at a time and
stays for the next one, with what it has learnt of the files. It ends with the program, however that ends: the pipe
between them is closed then.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from nightjar.errors import WarehouseError
from nightjar.scratch import scratch_folder
from nightjar.warehouse.reading.result import QueryResult
from nightjar.warehouse.reading.time_limit import TimeLimit

COMMAND = [sys.executable, "-P", "-m", "nightjar.warehouse.answering"]

MOST_AT_ONCE = max(2, min(4, os.cpu_count() or 1))
"""How many questions are answered at the same time; others wait. Each process takes about 150 MB."""


@dataclass(frozen=True)
class Request:
    """A question, and where it is asked.

    Attributes:
        kind: one of those in ``answering.py``.
        given: what that takes, pickled.
        folder: the current one; None where it was removed.
        environment: all variables: those of storage may change between two questions.
        seconds: how long it may take.
    """

    kind: str
    given: bytes
    folder: str | None
    environment: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Failure:
    """An error in place of an answer; pickling an error loses its cause, so that comes beside it."""

    error: BaseException
    cause: BaseException | None


@dataclass(frozen=True)
class Parts:
    """Answers whose rows follow, each in so many parts; in the place of None, Arrow follows as its own stream."""

    results: list[QueryResult] | None
    counts: Sequence[int] = ()


class _QueryProcess:
    """A process that answers one question after the other. Its temporary files are in a scratch folder of this one."""

    def __init__(self) -> None:
        self._is_ready = self._is_late = False
        self._user = _user()
        self._scratch = ExitStack()
        folder = self._scratch.enter_context(scratch_folder())
        self._process = subprocess.Popen(  # noqa: S603 - our own words
            [*COMMAND, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            process_group=0,  # Ctrl-C is for the program, which then kills this one
        )
        self._questions, self._answers = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)

    def is_usable(self) -> bool:
        """Says whether it can be asked, and may read what this program may."""
        return not self._is_late and self._process.poll() is None and self._user == _user()

    def ask(self, kind: str, given: bytes, limit: TimeLimit) -> Any:
        """Returns the answer, or a ``Failure``.

        Raises:
            WarehouseError: the time is over, or it has ended over the question.
        """
        try:
            self._wait_until_ready()
            seconds = limit.left()
            timer = threading.Timer(seconds, self._stop)
            timer.daemon = True
            timer.start()
            try:
                pickle.dump(Request(kind, given, _folder(), dict(os.environ), seconds), self._questions)
                self._questions.flush()
                return self._receive()
            finally:
                timer.cancel()
                timer.join()
        except Exception as error:
            if self._is_late:
                raise limit.over() from None
            if isinstance(error, EOFError | BrokenPipeError | pickle.UnpicklingError):
                limit.left()  # it ends itself when its time is over and this program was suspended
                raise self._ended() from None
            raise

    def kill(self) -> None:
        """Kills it."""
        with suppress(PermissionError):  # it is another user's than this program has become: it ends with its pipes
            self._process.kill()

    def end(self) -> None:
        """Kills it, and removes what it had on the disk."""
        self.kill()
        for pipe in (self._questions, self._answers):
            with suppress(OSError):  # what was not sent yet goes nowhere
                pipe.close()
        self._process.wait()
        with suppress(PermissionError):
            self._scratch.close()

    def _wait_until_ready(self) -> None:
        if not self._is_ready:
            pickle.load(self._answers)  # noqa: S301 - our own process
            self._is_ready = True

    def _stop(self) -> None:
        self._is_late = True
        self._process.kill()

    def _receive(self) -> Any:
        while isinstance(said := pickle.load(self._answers), logging.LogRecord):  # noqa: S301 - our own process
            logging.getLogger(said.name).handle(said)
        if not isinstance(said, Parts):
            return said
        if said.results is None:
            import pyarrow as pa

            return pa.ipc.open_stream(self._answers).read_all()
        for result, count in zip(said.results, said.counts, strict=True):
            for _ in range(count):
                result.rows.extend(pickle.load(self._answers))  # noqa: S301 - our own process
        return said.results

    def _ended(self) -> WarehouseError:
        status = self._process.wait()
        if not self._is_ready:
            return WarehouseError(f"The process that answers queries does not start: it ended with status {status}.")
        return WarehouseError(
            f"The process that answers queries has ended with status {status}, as it does when memory is short. "
            "Narrow the query, or take it apart."
        )


class _Processes:
    """The processes of this program: none at first, and as many as questions are asked at the same time."""

    def __init__(self) -> None:
        self._of_others: list[_QueryProcess] = []
        self._reset()

    def prepare(self) -> None:
        """Starts a process where none waits."""
        if not self._idle:
            self._idle.append(self._start())

    def ask(self, kind: str, given: bytes, limit: TimeLimit) -> Any:
        """Has a process answer; the time of the limit begins when that has started."""
        if not (self._places.acquire(blocking=False) or self._places.acquire(timeout=limit.left())):
            raise limit.over()
        try:
            process = self._take()
            self._busy.add(process)
            try:
                answer = process.ask(kind, given, limit)
            except BaseException:  # Ctrl-C too
                process.end()
                raise
            finally:
                self._busy.discard(process)
            self._idle.append(process)
            return answer
        finally:
            self._places.release()

    def stop(self) -> None:
        """Stops what is being answered: it raises where it was asked."""
        for process in tuple(self._busy):
            process.kill()

    def end(self) -> None:
        """Ends those that wait."""
        while self._idle:
            self._idle.pop().end()

    def forget(self) -> None:
        """Begins anew in a copy of this program: processes and folders are the other's, and stay as they are."""
        self._of_others += self._idle
        self._reset()

    def _reset(self) -> None:
        self._idle: list[_QueryProcess] = []
        self._busy: set[_QueryProcess] = set()
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)

    def _take(self) -> _QueryProcess:
        with suppress(IndexError):
            while not (process := self._idle.pop()).is_usable():
                process.end()
            return process
        return self._start()

    def _start(self) -> _QueryProcess:
        process = _QueryProcess()
        atexit.unregister(self.end)
        atexit.register(self.end)  # what is registered last is called first: before the folder is removed
        return process


_processes = _Processes()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_processes.forget)


def prepare() -> None:
    """Starts a process that will answer the next question, and does not wait for it."""
    _processes.prepare()


def stop() -> None:
    """Stops what is being answered to other threads, as when the program is told to end."""
    _processes.stop()


def ask(kind: str, *arguments: object, limit: TimeLimit) -> Any:
    """Returns the answer to a question; Ctrl-C ends it at once.

    Args:
        kind: one of those in ``answering.py``.
        arguments: what that takes.
        limit: when the process is killed.

    Raises:
        WarehouseError: the time is over, memory is, or what the question raises.
    """
    try:
        given = pickle.dumps(arguments)
    except Exception as error:
        raise WarehouseError(f"The query failed: a value cannot be handed to another process: {error}") from error
    answer = _processes.ask(kind, given, limit)
    if isinstance(answer, Failure):
        raise answer.error from answer.cause
    return answer


def _user() -> int | None:
    return os.geteuid() if hasattr(os, "geteuid") else None


def _folder() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return None

"""Processes that compare answers, shared by all ``MathRubric`` of a program.

Threads and signals cannot stop a comparison that hangs, so it runs in a process that can be ended. Each process starts
a new Python, because ``fork`` may deadlock with threads and ``multiprocessing`` would run the user's script again.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from nightjar.errors import InfraError

logger = logging.getLogger(__name__)

READY = "ready"
"""The first message of a process."""

Score: TypeAlias = tuple[float, float]
"""1.0 or 0.0, and the seconds that the comparison took."""


class Question(NamedTuple):
    """A response to compare with the expected answer. The process is ended after ``hard_seconds``."""

    response: str
    answer: str
    max_verify_chars: int
    timeout_seconds: float
    hard_seconds: float


class MathProcesses:
    """A pool of processes that starts empty and grows while questions wait."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets all processes, because a forked copy of this program does not have them."""
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Score], Question]] = deque()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._threads = 0
        self._idle = 0
        self._generation = 0
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        with self._changed:
            return [process.pid for process in self._running]

    def submit(self, question: Question, max_workers: int = 8) -> Future[Score]:
        """Queues a question for at most ``max_workers`` processes; if the process ends, the score is 0.0."""
        future: Future[Score] = Future()
        with self._changed:
            self._waiting.append((future, question))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._threads < max(1, min(max_workers, os.cpu_count() or 1)):
                self._threads += 1
                threading.Thread(target=self._work, name="nightjar-math", daemon=True).start()
        return future

    def end_idle(self) -> None:
        """Ends idle processes now, and busy processes after their current comparison."""
        with self._changed:
            self._generation += 1
            self._changed.notify_all()

    def kill(self) -> None:
        with self._changed:
            self._is_closed = True
            running = list(self._running)
        for process in running:
            process.kill()
            process.wait()

    def _work(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        generation = self._generation
        while taken := self._take(generation):
            future, question = taken
            if not future.set_running_or_notify_cancel():
                continue
            try:
                process = self._alive(process)
                future.set_result(self._ask(process, question))
            except Exception as error:  # noqa: BLE001 - raised where the score is awaited
                future.set_exception(error)
        if process is not None:
            self._end(process)

    def _take(self, generation: int) -> tuple[Future[Score], Question] | None:
        with self._changed:
            while not self._waiting and not self._is_closed and generation == self._generation:
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            if self._waiting and not self._is_closed:
                return self._waiting.popleft()
            self._threads -= 1
            return None

    def _alive(self, process: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes]:
        if process is not None:
            if process.poll() is None:
                return process
            self._end(process)
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "nightjar.environments.rubrics.math_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            process_group=0,  # Ctrl-C must only reach the program; this process ends with it
        )
        with self._changed:
            self._running.add(process)
        said = _read(process)
        if said == READY:
            return process
        status = self._end(process)
        raise InfraError(f"The process that compares answers did not start: {said or f'exit status {status}'}")

    def _ask(self, process: subprocess.Popen[bytes], question: Question) -> Score:
        if process.stdin is not None:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        if (score := _read(process)) is not None:
            return score[0], score[1]
        self._end(process)
        logger.debug("Comparing %.200r with %.200r did not end", question.response, question.answer)
        return 0.0, question.hard_seconds

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # unsent data is dropped
                    pipe.close()
        with self._changed:
            self._running.discard(process)
        return process.wait()


def _read(process: subprocess.Popen[bytes]) -> Any:
    line = process.stdout.readline() if process.stdout is not None else b""
    return json.loads(line) if line else None


processes = MathProcesses()

atexit.register(processes.kill)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=processes.reset)

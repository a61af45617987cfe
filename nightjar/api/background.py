"""Runs an evaluation in a thread with its own event loop, with a progress bar and interrupts in the caller."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from nightjar.core.calling import leave_threads_behind
from nightjar.core.secrecy import hidden_in_prints
from nightjar.engine import Run
from nightjar.errors import RunCancelledError
from nightjar.evaluation import Outcome
from nightjar.evaluation.bars import RunBars

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # tqdm warns in a notebook without ipywidgets, where a bar of text is fine
    from tqdm.auto import tqdm

Work: TypeAlias = Callable[[Callable[[Run], None]], Coroutine[Any, Any, Outcome]]

_FRAME_SECONDS = 0.2


def run_in_thread(work: Work, progress: bool | None) -> Outcome:
    """Runs an evaluation to its end, also where an event loop runs.

    The first ``KeyboardInterrupt`` stops the run, whose outcome is returned. A second one is raised at once.

    Args:
        work: the evaluation. It calls its argument with the run when the run is open.
        progress: show a bar; None means in a notebook and on a terminal.
    """
    is_shown = _is_seen() if progress is None else progress
    evaluation = _Evaluation(work)
    with RunBars(partial(tqdm, disable=not is_shown)) as bars:
        while not evaluation.outcome.done():
            try:
                wait([evaluation.outcome], _FRAME_SECONDS)
                for run in evaluation.begun():
                    bars.add(run)
                bars.show()
            except KeyboardInterrupt:
                if evaluation.is_stopping:
                    raise
                evaluation.stop()
    return evaluation.outcome.result()


async def wait_for_thread(work: Work, progress: bool | None) -> Outcome:
    """Runs an evaluation like ``run_in_thread``, while the event loop of the caller goes on.

    Cancelling the caller stops the run, and ``CancelledError`` is raised when the run is published. Cancelling the
    caller again raises it at once.
    """
    is_shown = _is_seen() if progress is None else progress
    evaluation = _Evaluation(work)
    ended = asyncio.wrap_future(evaluation.outcome)
    with RunBars(partial(tqdm, disable=not is_shown)) as bars:
        while not ended.done():
            try:
                await asyncio.wait([ended], timeout=_FRAME_SECONDS)
                for run in evaluation.begun():
                    bars.add(run)
                bars.show()
            except asyncio.CancelledError:
                if evaluation.is_stopping:
                    raise
                evaluation.stop()
    if evaluation.is_stopping:
        raise asyncio.CancelledError(f"The evaluation was cancelled: {ended.exception() or ended.result().run_id}")
    return ended.result()


def _is_seen() -> bool:
    return "ipykernel" in sys.modules or sys.stderr.isatty()


class _Evaluation:
    def __init__(self, work: Work) -> None:
        self.outcome: Future[Outcome] = Future()
        self.is_stopping = False
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shown = False
        target = partial(contextvars.copy_context().run, self._work, work)
        threading.Thread(target=target, name="nightjar-evaluate", daemon=True).start()

    def begun(self) -> Iterator[Run]:
        """Yields the run once, after it is opened."""
        if self._run is not None and not self._shown:
            self._shown = True
            yield self._run

    def stop(self) -> None:
        """Stops the run: now, or as soon as it is opened."""
        self.is_stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has just ended, and the run with it
                self._loop.call_soon_threadsafe(self._stop_run)

    def _stop_run(self) -> None:
        if self._run is not None:
            self._run.stop(RunCancelledError("Cancelled by an interrupt"))

    def _opened(self, run: Run) -> None:
        self._run, self._loop = run, asyncio.get_running_loop()
        if self.is_stopping:
            self._stop_run()

    def _work(self, work: Work) -> None:
        try:
            self.outcome.set_result(asyncio.run(self._evaluate(work)))
        except BaseException as error:  # noqa: BLE001 - it is raised in the calling thread
            self.outcome.set_exception(error)

    async def _evaluate(self, work: Work) -> Outcome:
        with hidden_in_prints():
            try:
                return await work(self._opened)
            finally:
                leave_threads_behind()

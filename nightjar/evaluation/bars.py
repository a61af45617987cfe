"""``RunBars``: a progress bar of tqdm for each run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from nightjar.core.text import harmless
from nightjar.engine import Run

if TYPE_CHECKING:
    from tqdm import tqdm


def title(run: Run) -> str:
    return harmless(run.metadata.name or f"{run.metadata.env_id} | {run.metadata.model}")


def reward(run: Run) -> str:
    found = run.progress.avg_reward
    return "–" if found is None else f"{found:.3f}"


class RunBars:
    """The bars of runs. A context manager, whose end shows the final counts and closes the bars.

    ``make`` is a class of tqdm with its options.
    """

    def __init__(self, make: Callable[..., tqdm[Any]]) -> None:
        self._make = make
        self._bars: list[tuple[Run, tqdm[Any]]] = []

    def add(self, run: Run) -> None:
        bar = self._make(total=run.progress.total, unit="rollout")
        bar.set_description_str(title(run), refresh=False)  # which escapes it in a notebook, as desc=... does not
        self._bars.append((run, bar))

    def show(self) -> None:
        for run, bar in self._bars:
            bar.set_postfix_str(f"reward {reward(run)}, {run.progress.failed} failed", refresh=False)
            bar.update(run.progress.done - bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with ExitStack() as closing:
            for _, bar in self._bars:
                closing.callback(bar.close)
            self.show()

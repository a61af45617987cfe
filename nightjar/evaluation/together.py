"""Several evaluations at once, in one process: one that fails stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nightjar.config import Evaluation, RunConfig
from nightjar.evaluation.outcome import Outcome


@dataclass(frozen=True)
class Ended:
    """How one of several evaluations ended.

    Attributes:
        evaluation: what was asked for.
        outcome: how its run ended; None where there was none.
        error: why there was none; None where there was.
    """

    evaluation: Evaluation
    outcome: Outcome | None = None
    error: Exception | None = None

    @property
    def is_complete(self) -> bool:
        """Says whether nothing is left to do."""
        return self.outcome is not None and self.outcome.is_complete


async def evaluate_together(
    evaluations: Sequence[Evaluation],
    evaluate: Callable[[RunConfig], Awaitable[Outcome]],
    on_end: Callable[[Ended], None],
) -> list[Ended]:
    """Runs evaluations at once, and returns how each ended, in their order.

    Args:
        evaluations: what to run.
        evaluate: runs one.
        on_end: called as each ends.
    """

    async def run(evaluation: Evaluation) -> Ended:
        try:
            ended = Ended(evaluation, outcome=await evaluate(evaluation.config))
        except Exception as error:  # noqa: BLE001 - it concerns this evaluation alone
            ended = Ended(evaluation, error=error)
        on_end(ended)
        return ended

    return await asyncio.gather(*map(run, evaluations))

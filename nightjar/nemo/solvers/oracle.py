"""``OracleSolver``: knows the answers, to try a benchmark without a model."""

from __future__ import annotations

from nightjar.envs.seeded.eval_environment import SeedResult
from nightjar.nemo.solvers.base import SolveResult


class OracleSolver:
    """Answers each problem with its reference.

    Args:
        timeout, run_timeout, timeout_strategy, max_agent_timeout: accepted, without effect: nothing is waited for.
    """

    def __init__(
        self,
        *,
        timeout: float = 1800.0,
        run_timeout: float | None = None,
        timeout_strategy: str = "override",
        max_agent_timeout: float | None = None,
    ) -> None:
        del timeout, run_timeout, timeout_strategy, max_agent_timeout

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers one problem."""
        return SolveResult(task.expected_answer)

"""``Solver`` answers a problem; ``SolveResult`` is its answer or error."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from nightjar.compat.nemo.observability import ModelResponse
from nightjar.environments.seeded.eval_environment import SeedResult


class ErrorKind(Enum):
    """The meaning of a solver's error: the problem counts as wrong, or the step failed."""

    NONE = "none"
    GRACEFUL = "graceful"
    INFRA = "infra_error"
    TOOL_INFRA = "tool_infra"
    SYSTEM = "system"
    SOLVE_TIMEOUT = "solve_timeout"


@dataclass
class SolveResult:
    """The result of a solver: an answer, or an error with its kind.

    Attributes:
        model_response: the model's last response, for its tokens.
        reward: set if the solver knows it; then the benchmark does not verify.
    """

    response: str
    model_response: ModelResponse | None = None
    trajectory: list[dict[str, Any]] = field(default_factory=list)
    reward: float | None = None
    scoring_details: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    error_kind: ErrorKind = ErrorKind.NONE


class Solver(Protocol):
    """Answers problems, many concurrently.

    Its optional ``settings`` is a dict of what its answers depend on beside its client; a resume compares them.
    """

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers a problem.

        Raises:
            GracefulError: a limit is reached; the answer counts as wrong.
            InfraError: the infrastructure failed; another attempt may succeed.
        """

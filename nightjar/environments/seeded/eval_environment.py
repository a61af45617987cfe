"""``EvalEnvironment``: a benchmark, with the signatures of ``nemo_evaluator.environments.base``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ScorerInput:
    """An answer with everything a scorer may use: the reference, the row, the benchmark's ``extra``, and a sandbox."""

    response: str
    target: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    sandbox: Any = None


_OF_VERIFY = frozenset({"response", "expected", "sandbox", "self"})


@dataclass
class SeedResult:
    """One problem for a model: its ``messages``, or else ``system`` and ``prompt``, with ``images``.

    ``metadata`` is given to ``verify``, and becomes the ``info`` of the example. Images are URLs or paths.
    """

    prompt: str
    expected_answer: str
    metadata: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] | None = None
    system: str | None = None
    images: list[str] | None = None
    sandbox_spec: Any = None
    verify_sandbox_spec: Any = None
    capture_cmd: str | None = None
    apply_cmd: str | None = None
    pre_agent_cmd: str | None = None


@dataclass
class VerifyResult:
    """The score of an answer: ``reward`` is usually 0.0 or 1.0; numbers in the details become metrics."""

    reward: float
    extracted_answer: str | None = None
    scoring_details: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


class EvalEnvironment(ABC):
    """A benchmark; subclasses define ``seed`` and ``verify``.

    Example:
        >>> import asyncio
        >>> class Sums(EvalEnvironment):
        ...     def __len__(self):
        ...         return 10
        ...     async def seed(self, idx):
        ...         return SeedResult(prompt=f"{idx}+1?", expected_answer=str(idx + 1))
        ...     async def verify(self, response, expected, **metadata):
        ...         return VerifyResult(reward=float(expected in response))
        >>> asyncio.run(Sums().verify("It is 4.", "4")).reward
        1.0
    """

    name: str = "unnamed"
    environment_class: type[Any] | None = None

    def __init__(self) -> None:
        self._dataset: list[dict[str, Any]] = []

    @property
    def dataset(self) -> list[dict[str, Any]]:
        return self._dataset

    @dataset.setter
    def dataset(self, value: list[dict[str, Any]]) -> None:
        self._dataset = value

    def __len__(self) -> int:
        return len(self.dataset)

    async def dataset_size(self) -> int:
        return len(self)

    @abstractmethod
    async def seed(self, idx: int) -> SeedResult:
        """Returns problem ``idx``, starting at 0."""

    @abstractmethod
    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:
        """Scores an answer; ``metadata`` is the metadata of the seed."""

    async def verify_row(
        self, response: str, expected: str, metadata: Mapping[str, Any], sandbox: Any = None
    ) -> VerifyResult:
        """Scores an answer with ``verify``. Metadata with the name of a parameter of ``verify`` is dropped."""
        named = {str(name): value for name, value in metadata.items() if name not in _OF_VERIFY}
        if sandbox is not None:
            named["sandbox"] = sandbox
        return await self.verify(response, expected, **named)

    async def prepare(self) -> None:  # noqa: B027 - most need not
        """Prepares the benchmark before the first problem is seeded."""

    async def sandbox_specs(self) -> list[Any] | None:
        return None

    async def image_build_requests(self) -> list[Any] | None:
        return None

    async def run_batch(self, solver: Any = None, config: dict[str, Any] | None = None) -> dict[str, Any] | None:  # noqa: ARG002
        """Returns a bundle if another program evaluates the benchmark; None if Nightjar evaluates each problem."""
        return None

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Releases the resources of the benchmark."""

"""Means over the rows of results that grow row by row, in the words of verifiers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from nightjar.stats import pass_curves

Row: TypeAlias = Mapping[str, Any]


@runtime_checkable
class Metric(Protocol):
    """Something that is computed of rows."""

    def add_output(self, output: Row) -> None:
        """Adds a row."""

    def add_outputs(self, outputs: list[Any]) -> None:
        """Adds rows."""

    def compute(self) -> Any:
        """Returns the value so far."""

    def reset(self) -> None:
        """Forgets all rows."""


class MeanMetric(ABC):
    """The mean of a number of each row; 0.0 of none. Rows without the number do not count.

    Example:
        >>> metric = RewardMetric()
        >>> metric.add_outputs([{"reward": 1.0}, {"reward": 0.0}, {"reward": None}])
        >>> metric.compute(), metric.count
        (0.5, 2)
    """

    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self.reset()

    @abstractmethod
    def extract(self, output: Row) -> float | None:
        """Returns the number of a row; None where it has none."""

    def add_output(self, output: Row) -> None:
        """Adds a row."""
        value = self.extract(output)
        if value is not None:
            self._sum += value
            self._count += 1

    def add_outputs(self, outputs: Iterable[Row]) -> None:
        """Adds rows."""
        for output in outputs:
            self.add_output(output)

    def reset(self) -> None:
        """Forgets all rows."""
        self._sum, self._count = 0.0, 0

    def compute(self) -> float:
        """Returns the mean so far."""
        return self._sum / self._count if self._count else 0.0

    @property
    def count(self) -> int:
        """How many rows have the number."""
        return self._count


class RewardMetric(MeanMetric):
    """The mean reward; a rollout that failed has none."""

    def extract(self, output: Row) -> float | None:
        """Returns the reward of a row."""
        return output.get("reward")


class ErrorRateMetric(MeanMetric):
    """The part of the rollouts that failed."""

    def extract(self, output: Row) -> float:
        """Returns 1.0 for a rollout that failed, else 0.0."""
        return float(output.get("error") is not None)


class _TokenUsageMetric(MeanMetric):
    _key: ClassVar[str]

    def extract(self, output: Row) -> float | None:
        """Returns the number of tokens of a row."""
        return (output.get("token_usage") or {}).get(self._key)


class InputTokensMetric(_TokenUsageMetric):
    """Mean tokens given to the model."""

    _key = "input_tokens"


class OutputTokensMetric(_TokenUsageMetric):
    """Mean tokens that the model has written."""

    _key = "output_tokens"


class FinalInputTokensMetric(_TokenUsageMetric):
    """Mean tokens of the conversation at its end that the model was given."""

    _key = "final_input_tokens"


class FinalOutputTokensMetric(_TokenUsageMetric):
    """Mean tokens of the conversation at its end that the model has written."""

    _key = "final_output_tokens"


class EnvMetrics:
    """The mean of each metric that the environment's rubric gives, over the rows that have it."""

    def __init__(self) -> None:
        self.reset()

    def add_output(self, output: Row) -> None:
        """Adds a row."""
        for name, value in (output.get("metrics") or {}).items():
            if value is not None:
                self._values[name].append(value)

    def add_outputs(self, outputs: Iterable[Row]) -> None:
        """Adds rows."""
        for output in outputs:
            self.add_output(output)

    def reset(self) -> None:
        """Forgets all rows."""
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def compute(self) -> dict[str, float]:
        """Returns the means so far, by name."""
        return {name: sum(values) / len(values) for name, values in self._values.items()}


class PassAtKMetric:
    """pass@k and pass^k for k = 1, 2, 4, …, over the examples of which all rollouts are there.

    Args:
        rollouts_per_example: rollouts of an example; of one alone nothing is computed.
        threshold: the reward from which on a rollout is correct.

    Example:
        >>> metric = PassAtKMetric(2)
        >>> metric.add_outputs([{"example_id": 0, "reward": 1.0}, {"example_id": 0, "reward": 0.0}])
        >>> metric.compute()
        ({'1': 0.5, '2': 1.0}, {'1': 0.5, '2': 0.0})
    """

    def __init__(self, rollouts_per_example: int, threshold: float = 0.5) -> None:
        self.rollouts_per_example = rollouts_per_example
        self.threshold = threshold
        self.reset()

    def add_output(self, output: Row) -> None:
        """Adds a row."""
        if output.get("reward") is not None:
            self._correct[output["example_id"]].append(output["reward"] >= self.threshold)

    def add_outputs(self, outputs: Iterable[Row]) -> None:
        """Adds rows."""
        for output in outputs:
            self.add_output(output)

    def reset(self) -> None:
        """Forgets all rows."""
        self._correct: defaultdict[int, list[bool]] = defaultdict(list)

    def compute(self) -> tuple[dict[str, float], dict[str, float]]:
        """Returns pass@k and pass^k so far, by k."""
        n = self.rollouts_per_example
        counts = [sum(correct) for correct in self._correct.values() if len(correct) == n]
        at_k, all_k = pass_curves(counts if n > 1 else (), n)
        return {str(k): value for k, value in at_k.items()}, {str(k): value for k, value in all_k.items()}

"""Metrics of verifiers: averages that are updated row by row."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from nightjar.statistics import pass_curves

Row: TypeAlias = Mapping[str, Any]


@runtime_checkable
class Metric(Protocol):
    """A value that is computed from rows of results."""

    def __init__(self) -> None:
        self.reset()

    def add_output(self, output: Row) -> None:
        """Adds a row."""

    def add_outputs(self, outputs: Iterable[Row]) -> None:
        for output in outputs:
            self.add_output(output)

    def compute(self) -> Any:
        """Returns the current value."""

    def reset(self) -> None:
        """Removes all rows."""


class MeanMetric(Metric):
    """The mean of one number per row, over the rows that have the number; 0.0 if no row has it."""

    @abstractmethod
    def extract(self, output: Row) -> float | None:
        """Returns the number of a row; None to skip the row."""

    def add_output(self, output: Row) -> None:
        value = self.extract(output)
        if value is not None:
            self._sum += value
            self._count += 1

    def reset(self) -> None:
        self._sum, self._count = 0.0, 0

    def compute(self) -> float:
        return self._sum / self._count if self._count else 0.0

    @property
    def count(self) -> int:
        return self._count


class RewardMetric(MeanMetric):
    """The mean reward, without failed rollouts."""

    def extract(self, output: Row) -> float | None:
        return output.get("reward")


class ErrorRateMetric(MeanMetric):
    def extract(self, output: Row) -> float:
        return float(output.get("error") is not None)


class _TokenUsageMetric(MeanMetric):
    _key: ClassVar[str]

    def extract(self, output: Row) -> float | None:
        return (output.get("token_usage") or {}).get(self._key)


class InputTokensMetric(_TokenUsageMetric):
    _key = "input_tokens"


class OutputTokensMetric(_TokenUsageMetric):
    _key = "output_tokens"


class FinalInputTokensMetric(_TokenUsageMetric):
    """Mean input tokens of the final conversation."""

    _key = "final_input_tokens"


class FinalOutputTokensMetric(_TokenUsageMetric):
    """Mean output tokens of the final conversation."""

    _key = "final_output_tokens"


class EnvMetrics(Metric):
    def add_output(self, output: Row) -> None:
        for name, value in (output.get("metrics") or {}).items():
            if value is not None:
                self._values[name].append(value)

    def reset(self) -> None:
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def compute(self) -> dict[str, float]:
        return {name: sum(values) / len(values) for name, values in self._values.items()}


class PassAtKMetric(Metric):
    """pass@k and pass^k for k = 1, 2, 4, …, over examples with all rollouts scored; empty for one rollout each."""

    def __init__(self, rollouts_per_example: int, threshold: float = 0.5) -> None:
        self.rollouts_per_example = rollouts_per_example
        self.threshold = threshold
        super().__init__()

    def add_output(self, output: Row) -> None:
        if output.get("reward") is not None:
            self._correct[output["example_id"]].append(output["reward"] >= self.threshold)

    def reset(self) -> None:
        self._correct: defaultdict[int, list[bool]] = defaultdict(list)

    def compute(self) -> tuple[dict[str, float], dict[str, float]]:
        n = self.rollouts_per_example
        counts = [sum(correct) for correct in self._correct.values() if len(correct) == n]
        at_k, all_k = pass_curves(counts if n > 1 else (), n)
        return {str(k): value for k, value in at_k.items()}, {str(k): value for k, value in all_k.items()}

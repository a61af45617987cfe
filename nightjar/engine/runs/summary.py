"""``Summary``: the aggregates of a run, computed from its results in one pass."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import fsum
from pathlib import Path
from typing import Any

from nightjar.core.failures import RolloutOutcome, outcome_of
from nightjar.engine.runs.jsonl import scan_lines
from nightjar.statistics import clustered_mean, pass_curves

_RECORDED = (
    "rollouts", "scored", "failed", "coverage", "avg_reward", "stderr", "avg_metrics", "avg_error",
    "complete_examples", "usage", "errors", "error_examples", "stop_conditions", "truncated", "outcomes",
)  # fmt: skip
_TOKENS = ("input_tokens", "output_tokens", "cached_input_tokens", "cached_output_tokens")


@dataclass(frozen=True)
class Summary:
    """Aggregates of a run. Averages are over scored rollouts, and None without scored rollouts.

    ``stderr`` is clustered by example. ``pass_at_k`` and ``pass_all_k`` are over examples with all rollouts scored.
    """

    rollouts: int
    scored: int
    failed: int
    avg_reward: float | None
    stderr: float | None
    avg_metrics: dict[str, float]
    pass_at_k: dict[int, float]
    pass_all_k: dict[int, float]
    usage: dict[str, float] | None
    errors: dict[str, int]
    stop_conditions: dict[str, int]
    truncated: int
    models: list[str]
    error_examples: dict[str, str] = field(default_factory=dict)
    complete_examples: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def filtered(self) -> int:
        """The number of rollouts that the provider's content filter withheld. A resume does not request them again."""
        return self.outcomes.get(RolloutOutcome.CONTENT_FILTERED, 0)

    @property
    def coverage(self) -> float:
        return self.scored / self.rollouts if self.rollouts else 0.0

    @property
    def avg_error(self) -> float:
        return self.failed / self.rollouts if self.rollouts else 0.0

    def metadata(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _RECORDED},
            "pass_at_k": {str(k): value for k, value in self.pass_at_k.items()},
            "pass_all_k": {str(k): value for k, value in self.pass_all_k.items()},
            "served_models": self.models,
        }


@dataclass
class _Tally:
    examples: array[int] = field(default_factory=lambda: array("q"))
    rewards: array[float] = field(default_factory=lambda: array("d"))
    metrics: dict[str, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    tokens: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    error_examples: dict[str, str] = field(default_factory=dict)
    scored: int = 0
    truncated: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        usage = row.get("token_usage") or {}
        for name in _TOKENS:
            if name in usage:
                self.tokens[name] += usage[name]
        self.outcomes[outcome_of(row).value] += 1
        if row["error"] is not None:
            chain = row["error"]["error_chain_repr"]
            self.errors[chain] += 1
            self.error_examples.setdefault(chain, row["error"]["message"])
            return
        self.scored += 1
        self.truncated += bool(row["is_truncated"])
        self.stops[row["stop_condition"] or "none"] += 1
        if row["model"]:
            self.models[row["model"]] += 1
        if row["reward"] is not None:
            self.examples.append(row["example_id"])
            self.rewards.append(row["reward"])
        for name, value in row["metrics"].items():
            self.metrics[name].append(value)

    def groups(self) -> Iterator[list[float]]:
        order = sorted(range(len(self.examples)), key=self.examples.__getitem__)
        for _, positions in groupby(order, self.examples.__getitem__):
            yield [self.rewards[position] for position in positions]


def summarize(results_path: Path, **asked_for: Any) -> Summary:
    return summarize_rows((line.row for line in scan_lines(results_path)), **asked_for)


def summarize_rows(
    rows: Iterable[Mapping[str, Any]], *, rollouts: int, rollouts_per_example: int, pass_threshold: float
) -> Summary:
    """Returns the aggregates of rows of ``results.jsonl``. A reward of at least ``pass_threshold`` means correct."""
    tally = _Tally()
    for row in rows:
        tally.add(row)
    estimate = clustered_mean(tally.groups())
    at_k, all_k = _pass_curves(tally.groups(), rollouts_per_example, pass_threshold)
    return Summary(
        rollouts=rollouts,
        scored=tally.scored,
        failed=sum(tally.errors.values()),
        avg_reward=estimate.mean,
        stderr=estimate.stderr,
        avg_metrics={name: fsum(values) / len(values) for name, values in tally.metrics.items()},
        pass_at_k=at_k,
        pass_all_k=all_k,
        usage=dict(tally.tokens) or None,
        errors=dict(tally.errors.most_common()),
        stop_conditions=dict(tally.stops.most_common()),
        truncated=tally.truncated,
        models=sorted(tally.models),
        error_examples=tally.error_examples,
        outcomes=dict(sorted(tally.outcomes.items(), key=lambda one: (-one[1], one[0]))),
        complete_examples=sum(len(group) == rollouts_per_example for group in tally.groups()),
    )


def _pass_curves(
    groups: Iterable[Sequence[float]], rollouts_per_example: int, threshold: float
) -> tuple[dict[int, float], dict[int, float]]:
    if rollouts_per_example < 2:  # noqa: PLR2004 - one rollout says nothing beyond the mean
        return {}, {}
    complete = (group for group in groups if len(group) == rollouts_per_example)
    counts = (sum(reward >= threshold for reward in group) for group in complete)
    return pass_curves(counts, rollouts_per_example)

"""``describe_run``: the mean, pass rates, errors and runtime of a run, with their uncertainty."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nightjar.errors import ConfigError
from nightjar.statistics import Estimate, pass_all_k, pass_at_k, pass_ks
from nightjar.statistics.estimates import mean_of_clusters
from nightjar.statistics.intervals import Interval, MeanSummary, interval_of, reward_range
from nightjar.statistics.variance import Components, Effect, labelled_components, marked_effect
from nightjar.warehouse import Warehouse

_RUN = """
SELECT run_id, env_id, model, status, rollouts, coverage, rollouts_per_example
FROM runs WHERE run_id = $run_id
"""
_ROLLOUTS = """
SELECT example_id AS example, reward, correct::INTEGER::DOUBLE AS correct
FROM segments.rollouts WHERE run_id = $run_id ORDER BY example_id, rollout_index
"""
_CONTENTS = """
SELECT
    example_id,
    any_value(info ->> $cluster) AS cluster,
    any_value(coalesce(info ->> $by, CASE $by WHEN 'task' THEN task END)) AS category
FROM rollouts WHERE run_id = $run_id GROUP BY example_id
"""
_RETRIED = """
SELECT example_id, reward, attempts > 1 AS retried
FROM segments.rollouts
WHERE run_id = $run_id AND reward IS NOT NULL
    AND EXISTS (FROM segments.rollouts WHERE run_id = $run_id AND reward IS NOT NULL AND attempts > 1)
"""
_RUNTIME = """
SELECT latency_p50_ms, latency_p90_ms, latency_p99_ms, tokens_per_second, total_retries AS retries, cached_calls
FROM runtime_stats WHERE run_id = $run_id
"""
# The view "failures" has examples, too, and takes twice as long.
_FAILURES = """
SELECT failure_category AS category, count(*) AS count FROM steps
WHERE run_id = $run_id AND failure_category IS NOT NULL GROUP BY ALL ORDER BY count DESC, category
"""


@dataclass(frozen=True)
class Mean:
    """A mean over scored rollouts. Without rollouts, ``value`` is None. If nothing is known, ``interval`` is infinite.

    ``clusters`` counts the groups of dependent examples. Without ``cluster``, each example is its own group.
    """

    examples: int
    scored: int
    value: float | None
    stderr: float | None
    clusters: int
    interval: Interval
    method: str


@dataclass(frozen=True)
class PassRate:
    """The chance that any of k rollouts is correct, and that all k are, over the examples with all rollouts scored."""

    k: int
    at_k: Mean
    all_k: Mean


@dataclass(frozen=True)
class RunStatistics:
    """The statistics of a run.

    ``if_failed_wrong`` and ``if_failed_right`` are the mean if all rollouts without a reward had the lowest or the
    highest reward. Without scored rollouts, they are None.
    """

    run_id: str
    env_id: str | None
    model: str | None
    status: str | None
    reward: Mean
    rollouts: int
    failed: int
    coverage: float | None
    if_failed_wrong: float | None
    if_failed_right: float | None
    variance: Components
    pass_rates: list[PassRate]
    categories: Mapping[str, Mean]
    retries: Retries
    runtime: Runtime | None
    alpha: float


@dataclass(frozen=True)
class _Rows:
    """The values of a run's rollouts, by example; NaN for a rollout without a reward.

    Examples and clusters are numbers from 0.
    """

    example: NDArray[np.int64]
    reward: NDArray[np.float64]
    correct: NDArray[np.float64]
    cluster: NDArray[np.int64]
    category: NDArray[Any]

    def where(self, chosen: NDArray[np.bool_]) -> _Rows:
        return _Rows(**{name: values[chosen] for name, values in vars(self).items()})


def describe_run(
    run_id: str,
    *,
    warehouse: str | Path | Warehouse | None = None,
    by: str | None = None,
    cluster: str | None = None,
    alpha: float = 0.05,
) -> RunStatistics:
    """Returns the statistics of a run: means with intervals, pass@k, and the components of the variance.

    ``interval_of`` describes the intervals.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"Expected alpha between 0 and 1, found {alpha}")
    warehouse = Warehouse.of(warehouse)
    found = warehouse.query(_RUN, {"run_id": run_id}).records()
    if not found:
        raise ConfigError(f"No run {run_id!r} in {warehouse.location}. List them: nightjar eval list")
    [run] = found
    rows = _read(warehouse, run_id, cluster, by)
    scored = rows.where(~np.isnan(rows.reward))
    asked = max(run["rollouts"] or 0, len(rows.reward))
    lowest, highest = reward_range(scored.reward.tolist())
    return RunStatistics(
        run_id=run_id,
        env_id=run["env_id"],
        model=run["model"],
        status=run["status"],
        reward=_mean(scored, scored.reward, alpha),
        rollouts=asked,
        failed=len(rows.reward) - len(scored.reward),
        coverage=len(scored.reward) / asked if asked else None,
        if_failed_wrong=_with_missing(scored.reward, asked, lowest),
        if_failed_right=_with_missing(scored.reward, asked, highest),
        variance=labelled_components(scored.reward, scored.example),
        pass_rates=list(_pass_rates(scored, run["rollouts_per_example"] or 1, alpha)),
        categories=dict(_categories(scored, alpha)) if by else {},
        retries=retries_of(warehouse, run_id, alpha),
        runtime=_runtime_of(warehouse, run_id),
        alpha=alpha,
    )


def _read(warehouse: Warehouse, run_id: str, cluster: str | None, by: str | None) -> _Rows:
    found = warehouse.query_columns(_ROLLOUTS, {"run_id": run_id})
    example_ids = found["example"]
    example = np.cumsum(np.diff(example_ids, prepend=example_ids[:1]) != 0)
    asked = {"run_id": run_id, "cluster": cluster, "by": by}
    contents = warehouse.query(_CONTENTS, asked).rows if cluster or by else []
    for field, position in ((cluster, 1), (by, 2)):
        if field and contents and not any(row[position] for row in contents):
            raise ConfigError(f"No example of run {run_id!r} has {field!r} in its info")
    clusters = {row[0]: row[0] if row[1] is None else row[1] for row in contents}
    categories = {row[0]: row[2] or "none" for row in contents}
    return _Rows(
        example=example,
        reward=found["reward"],
        correct=found["correct"],
        cluster=_numbered([clusters[one] for one in example_ids.tolist()]) if cluster else example,
        category=np.array([categories[one] for one in example_ids.tolist()], dtype=object) if by else example,
    )


def _numbered(names: Iterable[Hashable]) -> NDArray[np.int64]:
    """Returns the number of each name, in the order in which the names appear."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _with_missing(values: NDArray[np.float64], asked: int, missing: float) -> float | None:
    if not len(values):
        return None
    return float((values.sum() + missing * (asked - len(values))) / asked)


def _mean(rows: _Rows, values: NDArray[np.float64], alpha: float) -> Mean:
    counts, examples = np.bincount(rows.cluster), int(np.count_nonzero(np.bincount(rows.example)))
    totals, sizes = np.bincount(rows.cluster, values)[counts > 0].tolist(), counts[counts > 0].tolist()
    estimate = mean_of_clusters(totals, sizes)
    lowest, highest = (float(values.min()), float(values.max())) if len(values) else (None, None)
    interval, method = interval_of(MeanSummary(estimate, len(values), len(sizes), lowest, highest), alpha)
    return Mean(examples, len(values), estimate.mean, estimate.stderr, len(sizes), interval, method)


def summary_of(run: Mapping[str, Any]) -> MeanSummary:
    """Returns what the interval of a run's mean reward needs, from a row of ``runs``.

    An earlier version of Nightjar may have published the run without ``reward_examples``. Then all examples count.
    """
    scored = run["scored"] or run["num_examples"] or 0
    examples = run["reward_examples"] or min(run["num_examples"] or scored, scored)
    estimate = Estimate(run["avg_reward"], run["stderr"])
    return MeanSummary(estimate, scored, max(examples, 1), run["lowest_reward"], run["highest_reward"])


def _pass_rates(rows: _Rows, rollouts: int, alpha: float) -> Iterator[PassRate]:
    is_complete = np.bincount(rows.example) == rollouts
    if not is_complete.any():
        return
    right = np.bincount(rows.example, rows.correct)[is_complete].astype(int)
    is_first = np.diff(rows.example, prepend=-1) != 0
    examples = rows.where(is_first & is_complete[rows.example])
    for k in pass_ks(rollouts):
        at_k, all_k = (
            _mean(examples, np.array([rate(rollouts, count, k) for count in range(rollouts + 1)])[right], alpha)
            for rate in (pass_at_k, pass_all_k)
        )
        yield PassRate(k, at_k, all_k)


def _categories(rows: _Rows, alpha: float) -> Iterator[tuple[str, Mean]]:
    for name in sorted(set(rows.category)):
        chosen = rows.where(rows.category == name)
        yield name, _mean(chosen, chosen.reward, alpha)


@dataclass(frozen=True)
class Retries:
    """The scored rollouts with several attempts.

    ``effect`` is their reward minus the others' reward, None if unknown.
    """

    count: int
    effect: Effect | None

    def matter(self, alpha: float) -> bool:
        return self.effect is not None and self.effect.p_value < alpha


def retries_of(warehouse: Warehouse, run_id: str, alpha: float) -> Retries:
    rows = warehouse.query_columns(_RETRIED, {"run_id": run_id})
    retried = rows["retried"].astype(bool)
    if not retried.any():
        return Retries(0, None)
    return Retries(int(retried.sum()), marked_effect(rows["reward"], retried, rows["example_id"], alpha))


@dataclass(frozen=True)
class Runtime:
    """Times, rates and failures of a run. Latencies are the model's time in a rollout; without model calls, they are 0.

    ``failures`` maps a category to the number of rollouts that failed or were wrong for this reason. Tokens per second
    count input and output over the whole run.
    """

    latency_p50_ms: float
    latency_p90_ms: float
    latency_p99_ms: float
    tokens_per_second: float
    retries: int
    cached_calls: int
    failures: Mapping[str, int]


def _runtime_of(warehouse: Warehouse, run_id: str) -> Runtime | None:
    found = warehouse.query(_RUNTIME, {"run_id": run_id}).records()
    failures = dict(warehouse.query(_FAILURES, {"run_id": run_id}).rows)
    return Runtime(**found[0], failures=failures) if found else None

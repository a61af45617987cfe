"""``describe_run``: the mean, pass rates, errors and runtime of a run, with their uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nightjar.errors import ConfigError
from nightjar.statistics import clustered_mean, pass_all_k, pass_at_k, pass_ks
from nightjar.statistics.intervals import (
    Interval,
    cluster_bootstrap,
    mean_interval,
    reward_range,
    wilson,
    within_rewards,
)
from nightjar.statistics.variance import Components, Effect, marked_effect, variance_components
from nightjar.warehouse import Warehouse

_RUN = """
SELECT run_id, env_id, model, status, rollouts, coverage, rollouts_per_example
FROM runs WHERE run_id = $run_id
"""
_ROLLOUTS = """
WITH contents AS (
    SELECT
        example_id,
        any_value(info ->> $cluster) AS cluster,
        any_value(coalesce(info ->> $by, CASE $by WHEN 'task' THEN task END)) AS category
    FROM rollouts WHERE ($cluster IS NOT NULL OR $by IS NOT NULL) AND run_id = $run_id
    GROUP BY example_id
)
SELECT example_id AS example, reward, correct::INTEGER::DOUBLE AS correct, cluster, category
FROM segments.rollouts LEFT JOIN contents USING (example_id) WHERE run_id = $run_id
ORDER BY example_id, rollout_index
"""
# The bootstrap's time grows with the square of the number of clusters; with many clusters, Student's t is as good.
_MOST_BOOTSTRAPPED = 2_000
_SKEWED = 1.0
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
_FAILURES = "SELECT category, count FROM failures WHERE run_id = $run_id"


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
    """The values of a run's rollouts; NaN for a rollout without a reward."""

    example: NDArray[np.int64]
    reward: NDArray[np.float64]
    correct: NDArray[np.float64]
    cluster: NDArray[np.object_]
    category: NDArray[np.object_]

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

    If each example is its own cluster with one binary rollout, an interval is Wilson's. Otherwise it is Student's t by
    cluster, or the cluster bootstrap's for skewed rewards with up to 2,000 clusters.
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
        variance=variance_components(_grouped(scored.example, scored.reward)),
        pass_rates=list(_pass_rates(scored, run["rollouts_per_example"] or 1, alpha)),
        categories=dict(_categories(scored, alpha)) if by else {},
        retries=retries_of(warehouse, run_id, alpha),
        runtime=_runtime_of(warehouse, run_id),
        alpha=alpha,
    )


def _read(warehouse: Warehouse, run_id: str, cluster: str | None, by: str | None) -> _Rows:
    found = warehouse.query_columns(_ROLLOUTS, {"run_id": run_id, "cluster": cluster, "by": by})
    read = _Rows(**found)
    for field, values in ((cluster, read.cluster), (by, read.category)):
        if field and len(values) and not any(values):
            raise ConfigError(f"No example of run {run_id!r} has {field!r} in its info")
    return read


def _with_missing(values: NDArray[np.float64], asked: int, missing: float) -> float | None:
    if not len(values):
        return None
    return float((values.sum() + missing * (asked - len(values))) / asked)


def _grouped(groups: NDArray[Any], values: NDArray[np.float64]) -> list[list[float]]:
    found: dict[Any, list[float]] = {}
    for group, value in zip(groups.tolist(), values.tolist(), strict=True):
        found.setdefault(group, []).append(value)
    return list(found.values())


def _clusters(rows: _Rows) -> NDArray[np.object_]:
    return np.where(rows.cluster == None, rows.example, rows.cluster)  # noqa: E711 - of an array


def _mean(rows: _Rows, values: NDArray[np.float64], alpha: float) -> Mean:
    clusters, examples = _grouped(_clusters(rows), values), len(np.unique(rows.example))
    estimate = clustered_mean(clusters)
    lowest, highest = reward_range(values.tolist())
    is_binary = bool(np.isin(values, (0.0, 1.0)).all())
    if is_binary and len(values) == examples == len(clusters):
        interval, method = wilson(int(values.sum()), examples, alpha), "Wilson"
    elif _is_skewed(clusters):
        interval, method = cluster_bootstrap(clusters, alpha), "cluster bootstrap, skewed rewards"
    else:
        interval = mean_interval(estimate, len(clusters), alpha, highest - lowest)
        method = "Student's t, by cluster"
    shown = within_rewards(interval, (lowest, highest))
    return Mean(examples, len(values), estimate.mean, estimate.stderr, len(clusters), shown, method)


def _is_skewed(clusters: Sequence[Sequence[float]]) -> bool:
    means = np.array([sum(cluster) / len(cluster) for cluster in clusters])
    if not 2 < len(means) <= _MOST_BOOTSTRAPPED or np.ptp(means) == 0:  # noqa: PLR2004 - a skew needs three
        return False
    return abs(float(((means - means.mean()) ** 3).mean() / means.std() ** 3)) > _SKEWED


def _pass_rates(rows: _Rows, rollouts: int, alpha: float) -> Iterator[PassRate]:
    first, counts = np.unique(rows.example, return_index=True, return_counts=True)[1:]
    complete = first[counts == rollouts]
    right = np.add.reduceat(rows.correct, first)[counts == rollouts] if len(first) else np.array([])
    chosen = np.zeros(len(rows.example), dtype=bool)
    chosen[complete] = True
    examples = rows.where(chosen)
    for k in pass_ks(rollouts):
        at_k, all_k = (
            _mean(examples, np.array([rate(rollouts, int(count), k) for count in right]), alpha)
            for rate in (pass_at_k, pass_all_k)
        )
        if len(complete):
            yield PassRate(k, at_k, all_k)


def _categories(rows: _Rows, alpha: float) -> Iterator[tuple[str, Mean]]:
    names = np.array([name or "none" for name in rows.category], dtype=object)
    for name in sorted(set(names)):
        chosen = rows.where(names == name)
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

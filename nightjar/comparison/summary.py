"""``describe_run``: what a run came to, and how well that is known.

>>> describe_run("0a1b2c3d4e5f", by="subject").reward.interval  # doctest: +SKIP
Interval(low=0.364, high=0.417)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nightjar.comparison.measuring import mean_interval
from nightjar.comparison.retries import Retries, retries_of
from nightjar.comparison.runtime import Runtime, runtime_of
from nightjar.errors import ConfigError
from nightjar.stats import clustered_mean, pass_all_k, pass_at_k
from nightjar.stats.intervals import Interval, cluster_bootstrap, wilson, within_rewards
from nightjar.stats.variance import Components, variance_components
from nightjar.warehouse import Warehouse, resolve_warehouse

_RUN = """
SELECT run_id, env_id, model, status, rollouts, coverage, rollouts_per_example
FROM runs WHERE run_id = $run_id
"""
_ROLLOUTS = """
SELECT example_id, reward, correct::INTEGER::DOUBLE AS correct
FROM segments.rollouts WHERE run_id = $run_id
ORDER BY example_id, rollout_index
"""
_FIELDS = """
SELECT
    example_id,
    any_value(info ->> $cluster) AS cluster,
    any_value(coalesce(info ->> $by, CASE $by WHEN 'task' THEN task END)) AS category
FROM rollouts WHERE run_id = $run_id
GROUP BY example_id
"""
_MOST_BOOTSTRAPPED = 2_000
_SKEWED = 1.0


@dataclass(frozen=True)
class Mean:
    """A mean over scored rollouts.

    Attributes:
        examples: those with a scored rollout.
        scored: rollouts.
        value: the mean; None without any.
        stderr: by cluster; None with fewer than two.
        clusters: of examples that may resemble each other; each is one of its own unless a field says otherwise.
        interval: of the mean, within what a reward may be; infinite where nothing can be said.
        method: how the interval was made.
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
    """The chance that one of k rollouts is correct, and that all are, over the examples with all rollouts scored."""

    k: int
    at_k: Mean
    all_k: Mean


@dataclass(frozen=True)
class RunStatistics:
    """What a run came to.

    Attributes:
        reward: its mean.
        rollouts: those that it was asked for; ``failed`` have no reward.
        coverage: scored / rollouts.
        if_failed_wrong, if_failed_right: the mean where all that have no reward had the lowest, and the highest; None
            without any that is scored.
        variance: of the rewards, between examples and within.
        pass_rates: for k = 1, 2, 4, … up to the rollouts of an example.
        categories: value of the field that was asked for to the mean over its examples.
        retries: what became of rollouts that took more than one attempt.
        runtime: what it took; None without any rollout.
        alpha: the chance that an interval misses, over many.
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
    """The rollouts of a run: a value each, NaN for a reward that there is not."""

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
    """Returns what a run came to: means with their intervals, pass@k, and what the spread is made of.

    Where each example stands for itself and has one rollout, right or wrong, an interval is Wilson's. Otherwise it is
    Student's t by cluster; where rewards are skewed, of up to 2,000 clusters, the cluster bootstrap's.

    Args:
        run_id: of the run.
        warehouse: has it; None for the one that runs go to.
        by: a field of ``info``, or ``task``: the mean of each of its values.
        cluster: a field of ``info`` that examples share which are no independent draws, as the passage they ask about;
            None where each stands for itself.
        alpha: the chance that an interval misses, over many.

    Raises:
        ConfigError: there is no such run, or none of its examples has the field.
        WarehouseError: the warehouse cannot be asked.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"Expected alpha between 0 and 1, found {alpha}")
    if not isinstance(warehouse, Warehouse):
        warehouse = Warehouse(warehouse or resolve_warehouse())
    told = _told(warehouse, run_id)
    rows = _read(warehouse, run_id, cluster, by)
    scored = rows.where(~np.isnan(rows.reward))
    asked = max(told["rollouts"] or 0, len(rows.reward))
    lowest, highest = _ends(scored.reward)
    return RunStatistics(
        run_id=run_id,
        env_id=told["env_id"],
        model=told["model"],
        status=told["status"],
        reward=_mean(scored, scored.reward, alpha),
        rollouts=asked,
        failed=len(rows.reward) - len(scored.reward),
        coverage=len(scored.reward) / asked if asked else None,
        if_failed_wrong=_with_missing(scored.reward, asked, lowest),
        if_failed_right=_with_missing(scored.reward, asked, highest),
        variance=variance_components(_grouped(scored.example, scored.reward)),
        pass_rates=list(_pass_rates(scored, told["rollouts_per_example"] or 1, alpha)),
        categories=dict(_categories(scored, alpha)) if by else {},
        retries=retries_of(warehouse, run_id, alpha),
        runtime=runtime_of(warehouse, run_id),
        alpha=alpha,
    )


def _told(warehouse: Warehouse, run_id: str) -> dict[str, Any]:
    found = warehouse.query(_RUN, {"run_id": run_id}).records()
    if not found:
        raise ConfigError(f"No run {run_id!r} in {warehouse.location}. Those that there are: nightjar eval list")
    return found[0]


def _read(warehouse: Warehouse, run_id: str, cluster: str | None, by: str | None) -> _Rows:
    rows = warehouse.query_arrow(_ROLLOUTS, {"run_id": run_id})
    example = rows["example_id"].to_numpy()
    labels = _labels(warehouse, run_id, cluster, by) if cluster or by else {}
    named = [labels.get(int(one), (None, None)) for one in example]
    read = _Rows(
        example=example,
        reward=rows["reward"].to_numpy(),
        correct=rows["correct"].to_numpy(),
        cluster=np.array([label for label, _ in named], dtype=object),
        category=np.array([label for _, label in named], dtype=object),
    )
    for field, values in ((cluster, read.cluster), (by, read.category)):
        if field and len(values) and not any(values):
            raise ConfigError(f"No example of run {run_id!r} has {field!r} in its info")
    return read


def _labels(warehouse: Warehouse, run_id: str, cluster: str | None, by: str | None) -> dict[int, tuple[str, str]]:
    found = warehouse.query(_FIELDS, {"run_id": run_id, "cluster": cluster, "by": by})
    return {row[0]: (row[1], row[2]) for row in found.rows}


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the worst and the best that a reward may be: 0 and 1, or what was seen beyond."""
    return min(0.0, values.min(initial=0.0)), max(1.0, values.max(initial=1.0))


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
    """Returns the cluster of each row: its own example, where it has no other."""
    return np.where(rows.cluster == None, rows.example, rows.cluster)  # noqa: E711 - of an array


def _mean(rows: _Rows, values: NDArray[np.float64], alpha: float) -> Mean:
    clusters, examples = _grouped(_clusters(rows), values), len(np.unique(rows.example))
    estimate = clustered_mean(clusters)
    lowest, highest = _ends(values)
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
    """Yields the rates over the examples that have all their rollouts."""
    first, counts = np.unique(rows.example, return_index=True, return_counts=True)[1:]
    complete = first[counts == rollouts]
    right = np.add.reduceat(rows.correct, first)[counts == rollouts] if len(first) else np.array([])
    chosen = np.zeros(len(rows.example), dtype=bool)
    chosen[complete] = True
    examples = rows.where(chosen)
    for k in (1 << exponent for exponent in range(rollouts.bit_length())):
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

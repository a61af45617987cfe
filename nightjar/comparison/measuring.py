"""How much two sides differ over the examples that both were asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nightjar.comparison.records import Difference, Direction, Flip
from nightjar.stats.estimates import Estimate, mean_of_clusters
from nightjar.stats.exchange import sign_flips
from nightjar.stats.intervals import Interval, mcnemar, paired_shares, t_interval, unseen_share
from nightjar.warehouse import Warehouse

_PAIRED = """
WITH contents AS (
    SELECT
        example_hash,
        any_value(coalesce(info ->> $cluster, CASE $cluster WHEN 'task' THEN task END)) AS cluster,
        any_value(coalesce(info ->> $by, CASE $by WHEN 'task' THEN task END)) AS category
    FROM rollouts
    WHERE ($cluster IS NOT NULL OR $by IS NOT NULL) AND list_contains($b, run_id)
    GROUP BY example_hash
)
SELECT
    example_id, example_hash, coalesce(cluster, '') AS cluster, coalesce(category, '') AS category, value_a, value_b,
    coalesce(correct_a >= 0.5, false) AS right_a, coalesce(correct_b >= 0.5, false) AS right_b,
    scored_a, scored_b, failed_a, failed_b
FROM paired($a, $b, metric := $metric) LEFT JOIN contents USING (example_hash)
ORDER BY example_id, example_hash
"""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Paired:
    """The examples that two sides were both asked, each a run or several; a field has a value an example.

    Attributes:
        cluster: what it has in common with others, or else ''.
        category: what it is told apart by, or else ''.
        value_a, value_b: mean of the rollouts that are scored, of several runs the mean of theirs; NaN where there is
            none.
        right_a, right_b: whether half of these or more are correct.
        scored_a, scored_b, failed_a, failed_b: how many rollouts.
    """

    example_id: NDArray[np.int64]
    example_hash: NDArray[np.object_]
    cluster: NDArray[np.object_]
    category: NDArray[np.object_]
    value_a: NDArray[np.float64]
    value_b: NDArray[np.float64]
    right_a: NDArray[np.bool_]
    right_b: NDArray[np.bool_]
    scored_a: NDArray[np.int64]
    scored_b: NDArray[np.int64]
    failed_a: NDArray[np.int64]
    failed_b: NDArray[np.int64]

    @classmethod
    def read(
        cls,
        warehouse: Warehouse,
        a: Sequence[str],
        b: Sequence[str],
        *,
        cluster: str | None = None,
        metric: str = "reward",
        by: str | None = None,
    ) -> Paired:
        """Returns what a warehouse has of two sides.

        Args:
            warehouse: has the runs.
            a, b: the ids of the runs of each side.
            cluster: a field of an example's ``info``, or ``task``.
            metric: ``reward``, ``correct``, or the name of one of the rollouts' metrics.
            by: as ``cluster``.
        """
        asked = {"a": list(a), "b": list(b), "cluster": cluster, "metric": metric, "by": by}
        found = warehouse.query_arrow(_PAIRED, asked)
        return cls(**{name: found[name].to_numpy() for name in found.column_names})

    def __len__(self) -> int:
        return len(self.example_id)

    @cached_property
    def is_pair(self) -> NDArray[np.bool_]:
        """Whether both have scored it."""
        return ~np.isnan(self.value_a - self.value_b)

    def only(self, chosen: NDArray[np.bool_]) -> Paired:
        """Returns some of the examples."""
        return Paired(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def with_failed(self, before: float, after: float) -> Paired:
        """Returns the examples as they were, had the failed rollouts of either side been scored with these."""
        values = {}
        for side, by in (("a", before), ("b", after)):
            value, scored, failed = (getattr(self, f"{name}_{side}") for name in ("value", "scored", "failed"))
            values[f"value_{side}"] = (np.nan_to_num(value) * scored + by * failed) / (scored + failed)
            values |= {f"scored_{side}": scored + failed, f"failed_{side}": np.zeros_like(failed)}
        return replace(self, **values)

    def clusters(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the sum of the differences of the pairs of each cluster, and their number."""
        differences, names = (self.value_b - self.value_a)[self.is_pair], self.cluster[self.is_pair]
        alone = names == ""
        _, member = np.unique(names[~alone].astype(str), return_inverse=True)
        totals = np.concatenate([differences[alone], np.bincount(member, differences[~alone])])
        return totals, np.concatenate([np.ones(np.count_nonzero(alone)), np.bincount(member).astype(float)])

    def flips(self) -> tuple[list[Flip], list[Flip]]:
        """Returns the pairs that are right in one run alone, broken and fixed, those that differ most first."""
        at = np.flatnonzero(self.is_pair & (self.right_a != self.right_b))
        at = at[np.argsort(-np.abs(self.value_b[at] - self.value_a[at]), kind="stable")]
        return self._flips(at[self.right_a[at]]), self._flips(at[self.right_b[at]])

    def _flips(self, at: NDArray[np.int64]) -> list[Flip]:
        columns = (self.example_id, self.example_hash, self.value_a, self.value_b)
        return [Flip(*values) for values in zip(*(column[at].tolist() for column in columns), strict=True)]


def measure(paired: Paired, alpha: float, direction: Direction = "higher") -> Difference:
    """Returns the mean difference over the pairs, of which there is one at least.

    Where each pair stands for itself and has one rollout in either run, right or wrong, the interval is that of Bonett
    and Price, and there is McNemar's test; else the interval is Student's t, by cluster.

    Args:
        paired: the examples.
        alpha: the chance that the interval misses, over many.
        direction: which values are better.
    """
    before, after = paired.value_a[paired.is_pair], paired.value_b[paired.is_pair]
    lowest, highest = min(0.0, before.min()), max(1.0, before.max())
    lowest, highest = float(min(lowest, after.min())), float(max(highest, after.max()))
    worst, best = (lowest, highest) if direction == "higher" else (highest, lowest)
    gained, lost = int(np.count_nonzero(after > before)), int(np.count_nonzero(after < before))
    spread = float((after - before).std(ddof=1)) if len(before) > 1 else 0.0
    totals, sizes = paired.clusters()
    estimate, is_binary = mean_of_clusters(totals.tolist(), sizes.tolist()), _is_binary(paired)
    assert estimate.mean is not None, "there are pairs"
    wrong, right = paired.with_failed(best, worst), paired.with_failed(worst, best)
    return Difference(
        mean=estimate.mean,
        stderr=estimate.stderr,
        clusters=len(totals),
        interval=_interval(paired, alpha, highest - lowest),
        method="Bonett and Price, paired shares" if is_binary else "Student's t, by cluster",
        effect=estimate.mean / spread if spread > _ROUNDING else None,
        p_mcnemar=mcnemar(gained, lost) if is_binary else None,
        p_worse=sign_flips(totals if direction == "higher" else -totals),
        p_better=sign_flips(-totals if direction == "higher" else totals),
        if_failed_wrong=float((wrong.value_b - wrong.value_a).mean()),
        if_failed_right=float((right.value_b - right.value_a).mean()),
        interval_if_failed_wrong=_interval(wrong, alpha, highest - lowest),
    )


def _interval(paired: Paired, alpha: float, span: float) -> Interval:
    before, after = paired.value_a[paired.is_pair], paired.value_b[paired.is_pair]
    if _is_binary(paired):
        gained, lost = int(np.count_nonzero(after > before)), int(np.count_nonzero(after < before))
        return paired_shares(gained, lost, len(before), alpha)
    totals, sizes = paired.clusters()
    return mean_interval(mean_of_clusters(totals.tolist(), sizes.tolist()), len(totals), alpha, span)


def mean_interval(estimate: Estimate, clusters: int, alpha: float, span: float) -> Interval:
    """Returns Student's interval; where all clusters are equal, it is wider by what may be although it was not seen.

    Args:
        estimate, clusters, alpha: as for ``t_interval``.
        span: how far the best is from the worst.
    """
    interval = t_interval(estimate, clusters, alpha)
    if estimate.stderr is None or estimate.stderr > _ROUNDING:
        return interval
    return interval.wider_by(unseen_share(clusters, alpha) * span)


def _is_binary(paired: Paired) -> bool:
    values = np.concatenate([paired.value_a[paired.is_pair], paired.value_b[paired.is_pair]])
    rollouts = np.concatenate([paired.scored_a[paired.is_pair], paired.scored_b[paired.is_pair]])
    return bool((np.isin(values, (0.0, 1.0)) & (rollouts == 1)).all()) and not paired.cluster.any()

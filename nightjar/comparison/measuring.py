"""How much two runs differ over the examples that both were asked."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nightjar.comparison.records import Difference, Flip
from nightjar.stats.estimates import Estimate, clustered_mean
from nightjar.stats.exchange import chance_of_so_low
from nightjar.stats.intervals import Interval, mcnemar, paired_shares, t_interval, unseen_share
from nightjar.warehouse import Warehouse

_PAIRED = """
WITH clusters AS (
    SELECT example_hash, any_value(info ->> $cluster) AS cluster
    FROM rollouts
    WHERE run_id = $b AND $cluster IS NOT NULL
    GROUP BY example_hash
)
SELECT
    example_id, example_hash, coalesce(cluster, '') AS cluster, reward_a, reward_b,
    coalesce(correct_a >= 0.5, false) AS right_a, coalesce(correct_b >= 0.5, false) AS right_b,
    scored_a, scored_b, failed_a, failed_b
FROM paired([$a], $b) LEFT JOIN clusters USING (example_hash)
ORDER BY example_id, example_hash
"""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Paired:
    """The examples that two runs were both asked; each field has a value an example.

    Attributes:
        cluster: what it has in common with others, or else ''.
        reward_a, reward_b: mean of the rollouts that are scored; NaN where there is none.
        right_a, right_b: whether half of these or more are correct.
        scored_a, scored_b, failed_a, failed_b: how many rollouts.
    """

    example_id: NDArray[np.int64]
    example_hash: NDArray[np.object_]
    cluster: NDArray[np.object_]
    reward_a: NDArray[np.float64]
    reward_b: NDArray[np.float64]
    right_a: NDArray[np.bool_]
    right_b: NDArray[np.bool_]
    scored_a: NDArray[np.int64]
    scored_b: NDArray[np.int64]
    failed_a: NDArray[np.int64]
    failed_b: NDArray[np.int64]

    @classmethod
    def read(cls, warehouse: Warehouse, a: str, b: str, cluster: str | None) -> Paired:
        """Returns what a warehouse has of two runs; ``cluster`` is a field of an example's ``info``."""
        found = warehouse.query_arrow(_PAIRED, {"a": a, "b": b, "cluster": cluster})
        return cls(**{name: found[name].to_numpy() for name in found.column_names})

    @property
    def is_pair(self) -> NDArray[np.bool_]:
        """Whether both have scored it."""
        return ~np.isnan(self.reward_a - self.reward_b)

    def clusters(self) -> list[list[float]]:
        """Returns the differences of the pairs, those of a cluster together."""
        found: dict[str | int, list[float]] = defaultdict(list)
        differences = self.reward_b - self.reward_a
        for at in np.flatnonzero(self.is_pair):
            found[self.cluster[at] or int(at)].append(float(differences[at]))
        return list(found.values())

    def flips(self) -> tuple[list[Flip], list[Flip]]:
        """Returns the pairs that are right in one run alone, broken and fixed, those that differ most first."""
        rows = [
            (Flip(int(self.example_id[at]), str(self.example_hash[at]), float(before), float(after)), self.right_b[at])
            for at in np.flatnonzero(self.is_pair & (self.right_a != self.right_b))
            for before, after in [(self.reward_a[at], self.reward_b[at])]
        ]
        rows.sort(key=lambda row: -abs(row[0].candidate - row[0].baseline))
        return [flip for flip, is_fixed in rows if not is_fixed], [flip for flip, is_fixed in rows if is_fixed]


def measure(paired: Paired, alpha: float) -> Difference:
    """Returns the mean difference over the pairs, of which there is one at least.

    Where each pair stands for itself and has one rollout in either run, right or wrong, the interval is that of Bonett
    and Price, and there is McNemar's test; else the interval is Student's t, by cluster.

    Args:
        paired: the examples.
        alpha: the chance that the interval misses, over many.
    """
    before, after = paired.reward_a[paired.is_pair], paired.reward_b[paired.is_pair]
    lowest, highest = min(0.0, before.min(), after.min()), max(1.0, before.max(), after.max())
    gained, lost = int(np.count_nonzero(after > before)), int(np.count_nonzero(after < before))
    spread = float((after - before).std(ddof=1)) if len(before) > 1 else 0.0
    clusters = paired.clusters()
    estimate, is_binary = clustered_mean(clusters), _is_binary(paired)
    assert estimate.mean is not None, "there are pairs"
    if is_binary:
        interval, method = paired_shares(gained, lost, len(before), alpha), "Bonett and Price, paired shares"
    else:
        interval, method = mean_interval(estimate, len(clusters), alpha, highest - lowest), "Student's t, by cluster"
    changed = [total for total in map(sum, clusters) if total]
    return Difference(
        mean=estimate.mean,
        stderr=estimate.stderr,
        clusters=len(clusters),
        interval=interval,
        method=method,
        effect=estimate.mean / spread if spread > _ROUNDING else None,
        p_mcnemar=mcnemar(gained, lost) if is_binary else None,
        p_worse=chance_of_so_low([[value, 0.0] for value in changed]),
        p_better=chance_of_so_low([[-value, 0.0] for value in changed]),
        if_failed_wrong=_with_failed(paired, highest, lowest),
        if_failed_right=_with_failed(paired, lowest, highest),
    )


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
    rewards = np.concatenate([paired.reward_a[paired.is_pair], paired.reward_b[paired.is_pair]])
    rollouts = np.concatenate([paired.scored_a[paired.is_pair], paired.scored_b[paired.is_pair]])
    return bool((np.isin(rewards, (0.0, 1.0)) & (rollouts == 1)).all()) and not paired.cluster.any()


def _with_failed(paired: Paired, before: float, after: float) -> float:
    """Returns the mean difference where failed rollouts had these rewards."""

    def filled(reward: NDArray[np.float64], scored: NDArray[np.int64], failed: NDArray[np.int64], by: float) -> float:
        return float(((np.nan_to_num(reward) * scored + by * failed) / (scored + failed)).mean())

    new = filled(paired.reward_b, paired.scored_b, paired.failed_b, after)
    return new - filled(paired.reward_a, paired.scored_a, paired.failed_a, before)

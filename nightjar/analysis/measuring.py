"""Measures how two sides differ over their common examples, and whether a loss is too large (non-inferiority)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import ceil, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from nightjar.analysis.records import Category, Decision, Difference, Direction, Flip, Terms
from nightjar.core.text import counted
from nightjar.statistics.estimates import Estimate, mean_of_clusters
from nightjar.statistics.exchange import holm, sign_flips
from nightjar.statistics.intervals import (
    Interval,
    chance_of_unseen,
    mcnemar,
    mean_interval,
    paired_shares,
    pairs_needed,
    reward_range,
    t_interval,
    unseen_share,
)
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
    scored_a, scored_b, failed_a, failed_b, hash_a, paired_by
FROM paired($a, $b, metric := $metric, baseline_metric := $baseline_metric) LEFT JOIN contents USING (example_hash)
ORDER BY example_id, example_hash
"""
_ROUNDING = 1e-12
_NONE = "none"


@dataclass(frozen=True)
class Paired:
    """The examples that both sides have run; each field has a value per example.

    ``value_a`` and ``value_b`` are means of the scored rollouts, and NaN if none is scored. For several runs, they are
    the mean of the runs' means. ``right_a`` and ``right_b`` mean that at least half of the scored rollouts are correct.
    ``example_hash`` is that of the second side, ``hash_a`` that of the first.
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
    hash_a: NDArray[np.object_]
    paired_by: NDArray[np.object_]

    @classmethod
    def read(
        cls,
        warehouse: Warehouse,
        a: Sequence[str],
        b: Sequence[str],
        *,
        cluster: str | None = None,
        metric: str = "reward",
        baseline_metric: str | None = None,
        by: str | None = None,
    ) -> Paired:
        asked = {"a": list(a), "b": list(b), "cluster": cluster, "metric": metric, "by": by}
        asked |= {"baseline_metric": baseline_metric or metric}
        found = warehouse.query_columns(_PAIRED, asked)
        return cls(**found)

    def __len__(self) -> int:
        return len(self.example_id)

    @cached_property
    def is_pair(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.value_a - self.value_b)

    def count_by(self) -> dict[str, int]:
        """Returns the number of pairs by ``content``, ``question`` and ``position``, without zeros."""
        ways, counts = np.unique(self.paired_by[self.is_pair].astype(str), return_counts=True)
        return {str(way): int(count) for way, count in zip(ways, counts, strict=True)}

    def only(self, chosen: NDArray[np.bool_]) -> Paired:
        return Paired(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def with_failed(self, before: float, after: float) -> Paired:
        values = {}
        for side, by in (("a", before), ("b", after)):
            value, scored, failed = (getattr(self, f"{name}_{side}") for name in ("value", "scored", "failed"))
            values[f"value_{side}"] = (np.nan_to_num(value) * scored + by * failed) / (scored + failed)
            values |= {f"scored_{side}": scored + failed, f"failed_{side}": np.zeros_like(failed)}
        return replace(self, **values)

    def clusters(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns, for each cluster, the sum of the differences of its pairs and the number of its pairs."""
        differences, names = (self.value_b - self.value_a)[self.is_pair], self.cluster[self.is_pair]
        alone = names == ""
        _, member = np.unique(names[~alone].astype(str), return_inverse=True)
        totals = np.concatenate([differences[alone], np.bincount(member, differences[~alone])])
        return totals, np.concatenate([np.ones(np.count_nonzero(alone)), np.bincount(member).astype(float)])

    def flips(self) -> tuple[list[Flip], list[Flip]]:
        """Returns the broken pairs and the fixed pairs, which only one run has right.

        The largest differences come first.
        """
        at = np.flatnonzero(self.is_pair & (self.right_a != self.right_b))
        at = at[np.argsort(-np.abs(self.value_b[at] - self.value_a[at]), kind="stable")]
        return self._flips(at[self.right_a[at]]), self._flips(at[self.right_b[at]])

    def _flips(self, at: NDArray[np.int64]) -> list[Flip]:
        columns = (self.example_id, self.example_hash, self.hash_a, self.value_a, self.value_b)
        return [Flip(*values) for values in zip(*(column[at].tolist() for column in columns), strict=True)]


def measure(paired: Paired, alpha: float, direction: Direction = "higher") -> Difference:
    """Returns the mean difference over the pairs, of which there is at least one.

    If each pair is its own cluster, with one binary rollout in each run, the interval is Bonett and Price's, with
    McNemar's test. Otherwise, the interval is Student's t by cluster.
    """
    before, after = paired.value_a[paired.is_pair], paired.value_b[paired.is_pair]
    lowest, highest = reward_range([*before.tolist(), *after.tolist()])
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


def _is_binary(paired: Paired) -> bool:
    values = np.concatenate([paired.value_a[paired.is_pair], paired.value_b[paired.is_pair]])
    rollouts = np.concatenate([paired.scored_a[paired.is_pair], paired.scored_b[paired.is_pair]])
    return bool((np.isin(values, (0.0, 1.0)) & (rollouts == 1)).all()) and not paired.cluster.any()


def measure_categories(paired: Paired, terms: Terms) -> list[Category]:
    """Returns categories, the worst first.

    Significance of a change is adjusted for the number of categories (Holm, 1979).
    """
    sign = 1 if terms.direction == "higher" else -1
    found = []
    for name in sorted(set(paired.category[paired.is_pair].tolist())):
        own = paired.only(paired.is_pair & (paired.category == name))
        before, after = float(np.mean(own.value_a)), float(np.mean(own.value_b))
        difference = measure(own, terms.alpha, terms.direction)
        found.append(Category(name or _NONE, len(own), before, after, difference, change=""))
    adjusted = holm([one.difference.p_value for one in found])
    for place, p_value in enumerate(adjusted):
        if p_value < terms.alpha:
            is_better = sign * found[place].difference.mean > 0
            found[place] = replace(found[place], change="better" if is_better else "worse")
    return sorted(found, key=lambda one: (sign * one.difference.mean, one.name))


_WORDS = {"higher": ("lower", "higher", "drop", "dropped"), "lower": ("higher", "lower", "rise", "risen")}
"""Words by the better direction: worse, better, the worsening, and worsened."""


def decide(difference: Difference, max_drop: float, direction: Direction = "higher") -> Decision:
    """Decides by the non-inferiority test: an unclear result never passes.

    Source: Wellek, "Testing Statistical Hypotheses of Equivalence and Noninferiority", 2010, chapter 1.
    """
    damage = damage_of(difference.interval, direction)
    if damage.high <= max_drop:
        return "PASS"
    return "REGRESSION" if damage.low > max_drop else "INCONCLUSIVE"


def damage_of(interval: Interval, direction: Direction) -> Interval:
    """Converts the interval of candidate minus baseline to the interval of how much worse the candidate is."""
    return interval if direction == "lower" else Interval(-interval.high, -interval.low)


def _damage_if_failed_wrong(difference: Difference, direction: Direction) -> float:
    """Returns the upper end of the interval of the damage if every failed rollout of the candidate counts as wrong."""
    return damage_of(difference.interval_if_failed_wrong, direction).high


def doubt_of_failed(difference: Difference, terms: Terms) -> str:
    """Returns why failed rollouts leave a pass in doubt; empty if it is certain whatever their rewards would be."""
    at_worst = _damage_if_failed_wrong(difference, terms.direction)
    if at_worst <= terms.max_drop:
        return ""
    worst = f"If all failed rollouts were wrong, the difference would be {difference.if_failed_wrong:+.4f}"
    return f"{worst}: worse by up to {at_worst:.4f}, and {terms.max_drop:.4g} is allowed."


def chance_of_damage(difference: Difference, terms: Terms) -> float:
    """Returns a one-sided p-value: the chance of this much damage if the true damage were ``max_drop``.

    The p-value is below alpha / 2 exactly if the interval of ``difference``, at the same alpha, is entirely beyond
    ``max_drop``.
    """
    damage = damage_of(difference.interval, terms.direction)
    half, middle = (damage.high - damage.low) / 2, (damage.high + damage.low) / 2
    if difference.clusters < 2 or not isfinite(half):  # noqa: PLR2004 - a spread needs two
        return 1.0
    if difference.stderr is not None and difference.stderr <= _ROUNDING and difference.p_mcnemar is None:
        span = half / unseen_share(difference.clusters, terms.alpha)
        return chance_of_unseen((middle - terms.max_drop) / span, difference.clusters)
    stderr = half / t_interval(Estimate(0.0, 1.0), difference.clusters, terms.alpha).high
    return float(special.stdtr(difference.clusters - 1, (terms.max_drop - middle) / stderr))


def needed(difference: Difference, pairs: int, terms: Terms) -> int | None:
    """Returns how many pairs a decision with a power of 80 % needs at the estimated difference; None if unknown."""
    half = (difference.interval.high - difference.interval.low) / 2
    if difference.clusters < 2 or not isfinite(half):  # noqa: PLR2004 - a spread needs two
        return None
    if difference.is_identical:
        return max(ceil(pairs * half / terms.max_drop), pairs + 1) if terms.max_drop else None
    stderr = half / t_interval(Estimate(0.0, 1.0), difference.clusters, terms.alpha).high
    gap = terms.max_drop - (difference.mean if terms.direction == "lower" else -difference.mean)
    count = pairs_needed(stderr * sqrt(pairs), gap, terms.alpha)
    return max(ceil(count), pairs + 1) if isfinite(count) else None


def reason(decision: Decision, difference: Difference, pairs: int, terms: Terms, more: int | None) -> str:
    damage, (worse, better, worsen, worsened) = damage_of(difference.interval, terms.direction), _WORDS[terms.direction]
    what, limit = f"The mean {terms.metric_name}", f"the allowed {worsen} of {terms.max_drop:g}"
    if decision == "REGRESSION":
        return f"{what} is {worse} by at least {damage.low:.4f}: more than {limit}."
    if difference.is_identical:
        sentence = f"{what} is identical in all {counted(pairs, 'pair')}; "
        sentence += f"unseen examples may differ by up to {damage.high:.4f}: "
        sentence += f"within {limit}" if decision == "PASS" else f"more than {limit}{_more(more)}"
    elif decision == "INCONCLUSIVE":
        sentence = f"{what} may or may not have {worsened} by more than {terms.max_drop:g}"
        sentence += _more(more) or ": more examples are needed"
    elif damage.high < 0:
        sentence = f"{what} is {better} by at least {-damage.high:.4f}"
    else:
        sentence = f"{what} is {worse} by at most {damage.high:.4f}: within {limit}"
    return f"{sentence}."


def _more(more: int | None) -> str:
    return f": about {more:,} examples would be enough, if the difference is as estimated" if more else ""

"""Means, their standard errors, pass@k and pass^k."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, fsum, sqrt


@dataclass(frozen=True)
class Estimate:
    """A mean (None without values) and its standard error (None with fewer than two groups)."""

    mean: float | None
    stderr: float | None


def clustered_mean(groups: Iterable[Sequence[float]]) -> Estimate:
    """Returns the mean over all values, and its standard error clustered by group. Empty groups do not count.

    Rollouts of one example are not independent: Miller, "Adding Error Bars to Evals" (2024), section 2.2, with the
    small-sample factor G/(G-1) for G groups. With one value per group, the error is the ordinary s/√n.
    """
    totals, sizes = array("d"), array("L")
    for group in groups:
        if group:
            totals.append(fsum(group))
            sizes.append(len(group))
    return mean_of_clusters(totals, sizes)


def mean_of_clusters(totals: Sequence[float], sizes: Sequence[float]) -> Estimate:
    """Returns ``clustered_mean`` from the sum and the number of values of each group. No group may be empty."""
    count = sum(sizes)
    if not count:
        return Estimate(None, None)
    mean = fsum(totals) / count
    if len(sizes) < 2:  # noqa: PLR2004 - a spread needs two
        return Estimate(mean, None)
    spread = fsum((total - size * mean) ** 2 for total, size in zip(totals, sizes, strict=True))
    return Estimate(mean, sqrt(spread * len(sizes) / (len(sizes) - 1)) / count)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Returns the chance that at least one of k rollouts, drawn from n without replacement, is correct.

    The unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code" (2021), equation 1.
    """
    return 1.0 - comb(n - correct, _checked(n, k)) / comb(n, k)


def pass_all_k(n: int, correct: int, k: int) -> float:
    """Returns the chance that all of k rollouts, drawn from n without replacement, are correct (pass^k).

    The estimator of Yao et al., "τ-bench" (2024), section 4.
    """
    return comb(correct, _checked(n, k)) / comb(n, k)


def _checked(n: int, k: int) -> int:
    if not 1 <= k <= n:
        raise ValueError(f"k must be between 1 and n = {n}, found {k}")
    return k


def pass_ks(n: int) -> list[int]:
    """Returns the values of k that are reported for n rollouts of an example: 1, 2, 4, … up to n."""
    return [1 << exponent for exponent in range(n.bit_length())]


def pass_curves(correct_counts: Iterable[int], n: int) -> tuple[dict[int, float], dict[int, float]]:
    """Returns pass@k and pass^k for the k of ``pass_ks``, averaged over examples with n scored rollouts each."""
    counts = list(correct_counts)
    if not counts:
        return {}, {}
    powers = pass_ks(n)
    return (
        {k: fsum(pass_at_k(n, c, k) for c in counts) / len(counts) for k in powers},
        {k: fsum(pass_all_k(n, c, k) for c in counts) / len(counts) for k in powers},
    )

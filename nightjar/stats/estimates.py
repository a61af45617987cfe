"""Mean and standard error of rewards that come in groups."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt


@dataclass(frozen=True)
class Estimate:
    """A mean and how well it is known.

    Attributes:
        mean: over all values; None when there are none.
        stderr: its standard error; None with fewer than two groups, as nothing can be said then.
    """

    mean: float | None
    stderr: float | None


def clustered_mean(groups: Iterable[Sequence[float]]) -> Estimate:
    """Returns the mean over all values, and its standard error clustered by group.

    Rollouts of one example resemble each other, so they are not independent draws: the error is that of
    Miller, "Adding Error Bars to Evals" (2024), section 2.2, with the usual small-sample factor G/(G-1) for G
    groups. With one value a group it is the ordinary standard error, s/√n.

    Args:
        groups: the values of each group; empty groups are passed over.

    Example:
        >>> clustered_mean([[1.0], [0.0]])
        Estimate(mean=0.5, stderr=0.5)
    """
    totals, sizes = array("d"), array("L")
    for group in groups:
        if group:
            totals.append(fsum(group))
            sizes.append(len(group))
    return mean_of_clusters(totals, sizes)


def mean_of_clusters(totals: Sequence[float], sizes: Sequence[float]) -> Estimate:
    """Returns what ``clustered_mean`` does, of the sum and the number of the values of each group; none is empty.

    Example:
        >>> mean_of_clusters([1.0, 0.0], [1, 1])
        Estimate(mean=0.5, stderr=0.5)
    """
    count = sum(sizes)
    if not count:
        return Estimate(None, None)
    mean = fsum(totals) / count
    if len(sizes) < 2:  # noqa: PLR2004 - a spread needs two
        return Estimate(mean, None)
    spread = fsum((total - size * mean) ** 2 for total, size in zip(totals, sizes, strict=True))
    return Estimate(mean, sqrt(spread * len(sizes) / (len(sizes) - 1)) / count)

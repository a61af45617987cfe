"""Mean and standard error of rewards that come in groups."""

from __future__ import annotations

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
    sums = [(fsum(group), len(group)) for group in groups if group]
    count = sum(size for _, size in sums)
    if not count:
        return Estimate(None, None)
    mean = fsum(total for total, _ in sums) / count
    if len(sums) < 2:  # noqa: PLR2004 - a spread needs two
        return Estimate(mean, None)
    spread = fsum((total - size * mean) ** 2 for total, size in sums)
    return Estimate(mean, sqrt(spread * len(sums) / (len(sums) - 1)) / count)

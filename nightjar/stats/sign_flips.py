"""The sign-flip test: how likely paired differences are so low where nothing has changed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

_FLIPS = 9_999
_MOST = 1_000
"""So many differences are flipped; for more, their sum is as good as normally distributed."""


def chance_of_so_low(differences: Sequence[float]) -> float:
    """Returns the one-sided p-value of the sign-flip test (Fisher, The Design of Experiments, 1935, section 21).

    Where nothing has changed, each difference may as well have the other sign: the p-value is the share of 9,999
    random choices of signs, and the differences as they are, whose sum is not larger. It assumes no distribution; of
    few differences it is never small. With more than 1,000 that are not 0, the sum is taken as normally distributed.

    Args:
        differences: after minus before, of each pair.

    Returns:
        0 to 1; 1 where there are no differences.
    """
    moved = np.array([one for one in differences if one], dtype=float)
    if not moved.size:
        return 1.0
    if moved.size > _MOST:
        return NormalDist().cdf(float(moved.sum() / np.sqrt((moved**2).sum())))
    draw = np.random.default_rng(0)
    sums = np.concatenate([draw.choice((-1.0, 1.0), size=(1_111, moved.size)) @ moved for _ in range(_FLIPS // 1_111)])
    slack = 1e-9 * float(np.abs(moved).sum())
    return float((1 + np.count_nonzero(sums <= moved.sum() + slack)) / (1 + _FLIPS))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values that hold for all of them together (Holm, A simple sequentially rejective procedure, 1979).

    Args:
        p_values: each for itself.

    Returns:
        The adjusted ones, in the same order: those below a level are wrong, all together, with at most that chance.

    Example:
        >>> holm([0.01, 0.5])
        [0.02, 0.5]
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = largest
    return adjusted

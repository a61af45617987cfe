"""The exchange test: how likely new values are so low beside old ones of the same things, where nothing has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

SEED = 0
"""Of the draws."""
_ROUNDS, _DRAWS = 9, 1_111
_MOST = 1_000
"""Among so many things values are exchanged; for more, the sum is as good as normally distributed."""


def chance_of_so_low(groups: Sequence[Sequence[float]]) -> float:
    """Returns the one-sided p-value of an exchange test.

    Where nothing has changed, any value of a thing may as well be the new one (Fisher, The Design of Experiments, 1935,
    section 21; Pitman, Significance Tests Which May be Applied to Samples from any Populations, 1937). The p-value is
    the share, of 9,999 random choices of a value of each thing and the choice that was made, of those that are not
    higher above the mean of the others. It assumes no distribution; of few things that have changed it is never small.
    With one old value each it is the sign-flip test. Of more than 1,000 things that have changed, the sum is taken as
    normally distributed.

    Args:
        groups: of each thing the new value, then the old ones; things without an old one do not count.

    Returns:
        0 to 1; 1 where nothing differs.
    """
    by_size: dict[int, list[list[float]]] = defaultdict(list)
    for group in groups:
        if len(set(group)) > 1:
            by_size[len(group)].append(_above_the_others(group))
    return _chance([np.array(rows) for rows in by_size.values()])


def sign_flips(differences: NDArray[np.float64]) -> float:
    """Returns the one-sided p-value of the sign-flip test: what ``chance_of_so_low`` does with one old value each.

    Args:
        differences: of each thing the new value minus the old one.
    """
    changed = differences[differences != 0]
    return _chance([np.column_stack([changed, -changed])] if len(changed) else [])


def _chance(tables: Sequence[NDArray[np.float64]]) -> float:
    """Returns the p-value, from a row for each thing that has changed: of each value how far it is above the others."""
    if not tables:
        return 1.0
    made = sum(float(table[:, 0].sum()) for table in tables)
    if sum(map(len, tables)) > _MOST:
        return NormalDist().cdf(made / sum(float((table**2).mean(axis=1).sum()) for table in tables) ** 0.5)
    draw = np.random.default_rng(SEED)
    sums = np.concatenate([sum(_draws(draw, table) for table in tables) for _ in range(_ROUNDS)])
    slack = 1e-9 * sum(float(np.abs(table).sum()) for table in tables)
    return float((1 + np.count_nonzero(sums <= made + slack)) / (1 + len(sums)))


def _above_the_others(values: Sequence[float]) -> list[float]:
    """Returns of each value how far it is above the mean of the others; all together that is 0."""
    total, others = sum(values), len(values) - 1
    return [value - (total - value) / others for value in values]


def _draws(draw: np.random.Generator, table: np.ndarray) -> np.ndarray:
    chosen = draw.integers(table.shape[1], size=(_DRAWS, len(table)))
    sums: np.ndarray = table[np.arange(len(table)), chosen].sum(axis=1)
    return sums


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

"""The exchange test: the chance of new values this low, given old values of the same examples, if nothing changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

SEED = 0
_ROUNDS, _DRAWS = 9, 1_111
_MOST = 1_000
"""The maximum number of examples whose values are exchanged. For more examples, the sum is approximately normal."""


def chance_of_so_low(groups: Sequence[Sequence[float]]) -> float:
    """Returns the one-sided p-value of an exchange test. If no values differ, the p-value is 1.

    Each group has an example's new value first, then its old values. Without a change, any value of an example is
    equally likely to be the new value (Fisher, The Design of Experiments, 1935, section 21; Pitman, Significance Tests
    Which May be Applied to Samples from any Populations, 1937). The statistic is how far the new values are above the
    mean of the others. The p-value is the share of choices (9,999 random ones and the real one) whose statistic is not
    higher than that of the real choice.
    """
    by_size: dict[int, list[list[float]]] = defaultdict(list)
    for group in groups:
        if len(set(group)) > 1:
            total, others = sum(group), len(group) - 1
            by_size[len(group)].append([value - (total - value) / others for value in group])
    return _chance([np.array(rows) for rows in by_size.values()])


def sign_flips(differences: NDArray[np.float64]) -> float:
    """Returns the one-sided p-value of the sign-flip test, for the new value minus the old value of each example."""
    changed = differences[differences != 0]
    return _chance([np.column_stack([changed, -changed])] if len(changed) else [])


def _chance(tables: Sequence[NDArray[np.float64]]) -> float:
    """Returns the p-value. Tables have a row for each changed example: how far each value is above the others."""
    if not tables:
        return 1.0
    made = sum(float(table[:, 0].sum()) for table in tables)
    if sum(map(len, tables)) > _MOST:
        return NormalDist().cdf(made / sum(float((table**2).mean(axis=1).sum()) for table in tables) ** 0.5)
    draw = np.random.default_rng(SEED)
    sums = np.concatenate([sum(_draws(draw, table) for table in tables) for _ in range(_ROUNDS)])
    slack = 1e-9 * sum(float(np.abs(table).sum()) for table in tables)
    return float((1 + np.count_nonzero(sums <= made + slack)) / (1 + len(sums)))


def _draws(draw: np.random.Generator, table: np.ndarray) -> np.ndarray:
    chosen = draw.integers(table.shape[1], size=(_DRAWS, len(table)))
    sums: np.ndarray = table[np.arange(len(table)), chosen].sum(axis=1)
    return sums


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values adjusted for their number (Holm, A simple sequentially rejective procedure, 1979)."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = largest
    return adjusted

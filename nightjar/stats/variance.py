"""How much of the spread of rewards is between examples, and how much between the rollouts of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Components:
    """The two variances of which that of a reward is made.

    Attributes:
        between: of what examples would come to over endlessly many rollouts; None with fewer than two examples, or
            where ``within`` is not known.
        within: of the rollouts of an example; None where no example has two.
    """

    between: float | None
    within: float | None

    @property
    def shared(self) -> float | None:
        """The share that is between examples (intraclass correlation), 0 to 1; None where nothing varies."""
        if self.between is None or self.within is None or not self.between + self.within:
            return None
        return self.between / (self.between + self.within)


def variance_components(groups: Iterable[Sequence[float]]) -> Components:
    """Returns the variance between and within groups, from a one-way analysis of variance.

    The estimators of Searle, Casella and McCulloch, "Variance Components" (1992), section 3.6, for groups of unequal
    size; one between groups that comes out below 0 is 0.

    Args:
        groups: the values of each group; empty groups are passed over.
    """
    values = [np.asarray(group, dtype=float) for group in groups if len(group)]
    sizes = np.array([len(group) for group in values], dtype=float)
    spare = sizes.sum() - len(sizes)
    if not spare:
        return Components(None, None)
    means = np.array([group.mean() for group in values])
    within = float(sum(((group - mean) ** 2).sum() for group, mean in zip(values, means, strict=True)) / spare)
    if len(sizes) < 2:  # noqa: PLR2004 - a spread needs two
        return Components(None, within)
    mean = (sizes * means).sum() / sizes.sum()
    mean_square = float((sizes * (means - mean) ** 2).sum() / (len(sizes) - 1))
    usual_size = float((sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(sizes) - 1))
    return Components(max(0.0, (mean_square - within) / usual_size), within)

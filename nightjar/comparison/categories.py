"""The difference in each category of examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nightjar.comparison.measuring import Paired, measure
from nightjar.comparison.records import Category, Terms
from nightjar.stats.exchange import holm

_NONE = "none"


def measure_categories(paired: Paired, terms: Terms) -> list[Category]:
    """Returns the difference of the pairs in each category, the worst first.

    Which have changed is said of all together: their p-values are adjusted for their number (Holm, 1979).
    """
    found = [_measure(paired.only(paired.is_pair & (paired.category == name)), terms) for name in _names(paired)]
    adjusted = holm([one.difference.p_value for one in found])
    sign = 1 if terms.direction == "higher" else -1
    changed = [_changed(one, p_value, terms, sign) for one, p_value in zip(found, adjusted, strict=True)]
    return sorted(changed, key=lambda one: (sign * one.difference.mean, one.name))


def _names(paired: Paired) -> list[str]:
    return sorted(set(paired.category[paired.is_pair].tolist()))


def _measure(paired: Paired, terms: Terms) -> Category:
    return Category(
        name=paired.category[0] or _NONE,
        pairs=len(paired),
        baseline=float(np.mean(paired.value_a)),
        candidate=float(np.mean(paired.value_b)),
        difference=measure(paired, terms.alpha, terms.direction),
        change="",
    )


def _changed(one: Category, p_value: float, terms: Terms, sign: int) -> Category:
    if p_value >= terms.alpha:
        return one
    return replace(one, change="better" if sign * one.difference.mean > 0 else "worse")

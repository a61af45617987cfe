"""Is the last of several nights, or the last few of them together, worse than those before by more than a margin?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

import numpy as np
from numpy.typing import NDArray
from scipy import special

from nightjar.stats.intervals import chance_of_unseen

WINDOWS = (1, 2, 4, 8, 16, 32)
"""So many nights are looked at together, the last one among them: thirty-two show a small drop that lasts."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class WindowTest:
    """The last few nights beside those before.

    Attributes:
        nights: in the window.
        baseline: the rows that they are compared with.
        pairs: examples that both have scored.
        damage: how much worse the mean is over these.
        stderr: of the damage.
        p: chance of a damage as large, were it the margin in truth; of this window alone.
    """

    nights: int
    baseline: tuple[int, ...]
    pairs: int
    damage: float
    stderr: float
    p: float


def window_tests(
    values: NDArray[np.float64],
    is_normal: Sequence[bool],
    *,
    count: int,
    margin: float = 0.0,
    settings: Sequence[object] | None = None,
    windows: Sequence[int] = WINDOWS,
) -> list[WindowTest]:
    """Compares windows of nights that end with the last one, each with the normal nights before it.

    Of each example, the mean of the window is compared with that of the baseline. The error of the mean difference is
    the larger of two: that of the differences between examples, and that of an example from night to night, over all
    these nights. Where nothing has changed they estimate the same; each alone is too small now and then, where nearly
    all is right, or nearly nothing. The p-value is Student's.

    Args:
        values: a row a night, the last one last; a column an example; NaN where it has none. Higher is better.
        is_normal: of each night whether it may be part of a baseline.
        count: how many nights that is at most.
        margin: the damage that is no matter.
        settings: of each night; no window, and no baseline, has nights with different ones. None: all have the same.
        windows: how many nights each has.

    Returns:
        A test for each window that the nights allow: with a baseline, and two examples at least in both.
    """
    labels = [None] * len(values) if settings is None else list(settings)
    found = (_test(values, labels, is_normal, nights, count, margin) for nights in windows)
    return [test for test in found if test is not None]


def chance_of_so_much_damage(tests: Sequence[WindowTest], margin: float = 0.0) -> float:
    """Returns a p-value that holds for all windows of a night together.

    The chance of each is multiplied by their number (Bonferroni), for they are few and overlap. A window counts where
    the last night by itself is worse by more than the margin, too: so a bad night does not echo in those after it.

    Args:
        tests: of the windows, that of the last night alone among them.
        margin: the damage that is no matter.
    """
    alone = next((test for test in tests if test.nights == 1), None)
    if alone is None or alone.damage <= margin:
        return 1.0
    return min(1.0, len(tests) * min(test.p for test in tests))


def normal_before(begins: int, is_normal: Sequence[bool], settings: Sequence[object], count: int) -> list[int]:
    """Returns the normal nights that a window is compared with: the last ones before it that have the same settings.

    Args:
        begins: the first night of the window.
        is_normal, settings, count: as for ``window_tests``.
    """
    before = [night for night in range(begins) if is_normal[night]]
    alike = takewhile(lambda night: settings[night] == settings[before[-1]], reversed(before))
    return sorted(islice(alike, count))


def _test(
    values: NDArray[np.float64],
    labels: Sequence[object],
    is_normal: Sequence[bool],
    nights: int,
    count: int,
    margin: float,
) -> WindowTest | None:
    begins = len(values) - nights
    baseline = normal_before(max(0, begins), is_normal, labels, count)
    if not baseline or any(label != labels[-1] for label in labels[begins:]):
        return None
    window, other = _Sums.of(values[begins:]), _Sums.of(values[baseline])
    both = (window.count > 0) & (other.count > 0)
    pairs = int(both.sum())
    if pairs < 2:  # noqa: PLR2004 - a spread needs two
        return None
    window, other = window.where(both), other.where(both)
    differences = other.total / other.count - window.total / window.count
    damage = float(differences.mean())
    stderr = max(float(differences.std(ddof=1)) / pairs**0.5, _from_night_to_night(window, other))
    span = float(max(1.0, np.nanmax(values)) - min(0.0, np.nanmin(values)))
    if stderr <= _ROUNDING:
        p = chance_of_unseen((damage - margin) / span, pairs)
    else:
        p = float(special.stdtr(pairs - 1, (margin - damage) / stderr))
    return WindowTest(nights, tuple(baseline), pairs, damage, stderr, p)


@dataclass(frozen=True)
class _Sums:
    """Of each example over some nights: how many values, their sum, and that of their squares."""

    count: NDArray[np.int64]
    total: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray[np.float64]) -> _Sums:
        filled = np.nan_to_num(rows)
        return cls((~np.isnan(rows)).sum(axis=0), filled.sum(axis=0), (filled**2).sum(axis=0))

    def where(self, chosen: NDArray[np.bool_]) -> _Sums:
        return _Sums(self.count[chosen], self.total[chosen], self.squares[chosen])


def _from_night_to_night(window: _Sums, other: _Sums) -> float:
    """Returns the error of the mean difference, from how an example's values spread over all the nights."""
    count = window.count + other.count
    spread = window.squares + other.squares - (window.total + other.total) ** 2 / count
    variance = np.maximum(spread, 0) / (count - 1)
    return float(np.sqrt((variance * (1 / window.count + 1 / other.count)).sum()) / len(count))

"""Where things are in a plot: numbers to places, and the numbers that are written beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import ClassVar

_STEPS = (1, 2, 5, 10)
_TICKS = 5
_LARGEST = 1e300
"""What is larger is drawn here, and differences that are as small are none: the steps between must be numbers."""


@dataclass(frozen=True)
class Scale:
    """From numbers to places.

    Attributes:
        low, high: the smallest and largest number; they differ.
        start, end: the places of these.
    """

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> Scale:
        """Returns one that has room for all of these that are finite."""
        known = [max(-_LARGEST, min(_LARGEST, value)) for value in values if isfinite(value)] or [0.0, 1.0]
        low, high = min(known), max(known)
        room = abs(low) / 2 if abs(low) > 1 / _LARGEST else 0.5
        return cls(low, high, start, end) if high - low > 1 / _LARGEST else cls(low - room, high + room, start, end)

    def place(self, value: float) -> float:
        """Returns where a number is; what is beyond an end is at it."""
        share = min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
        return round(self.start + share * (self.end - self.start), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Returns places and what is written there: a few round numbers."""
        rough = (self.high - self.low) / _TICKS
        unit = 10.0 ** floor(log10(rough))
        step = next(step * unit for step in _STEPS if step * unit >= rough * (1 - 1e-9))
        first = -floor(-self.low / step + 1e-9)
        numbers = [number * step for number in range(first, floor(self.high / step + 1e-9) + 1)]
        return [(self.place(number), f"{number:.6g}") for number in numbers]


@dataclass(frozen=True)
class Point:
    """A number in a plot: ``x`` in percent of the width, heights in pixels.

    Attributes:
        ends: of its interval; none where that is not known.
        text: what it is, in words.
        address: where it leads; '' for nowhere.
    """

    x: float
    y: float
    ends: list[float]
    text: str
    address: str = ""


@dataclass(frozen=True)
class Mark:
    """A place at which something is another, what is written there, and what that means.

    Attributes:
        is_change: whether it is the level that has changed.
    """

    x: float
    name: str
    text: str
    is_change: bool = False


@dataclass(frozen=True)
class Plot:
    """Points from left to right that a line joins; it is as wide as the page, so that its texts stay as they are.

    Attributes:
        up: from numbers to heights.
        below: places and what is written there.
        label: what is drawn, in words.
    """

    HEIGHT: ClassVar = 180
    LEFT: ClassVar = 6.0
    RIGHT: ClassVar = 98.0

    points: list[Point]
    up: Scale
    below: list[tuple[float, str]]
    marks: list[Mark]
    label: str

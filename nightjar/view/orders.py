"""The order of a table, which its headings choose: ``?sort=cost``, and ``?sort=-cost`` for the opposite order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import AfterValidator

from nightjar.view.pages import one_of

METRIC = "metric "
"""The beginning of the name of a metric's column."""


@dataclass(frozen=True)
class Order:
    """An order. ``column`` is an SQL expression; ``-`` before it means that its highest value comes first."""

    name: str
    column: str
    is_reversed: bool = False

    @classmethod
    def of(cls, asked: str, columns: Mapping[str, str], of_metric: str = "") -> Order:
        """Returns the order for a choice of the address. ``of_metric`` is the column for all names of metrics."""
        name = asked.removeprefix("-")
        return cls(name, columns.get(name, of_metric), asked.startswith("-"))

    @property
    def metric(self) -> str | None:
        return self.name.removeprefix(METRIC) if self.name.startswith(METRIC) else None

    @property
    def direction(self) -> str:
        """The direction in the words of ``aria-sort``."""
        return "descending" if self.column.startswith("-") != self.is_reversed else "ascending"

    @property
    def sql(self) -> str:
        """Missing values come last, except in an order that starts with the lowest value by itself."""
        is_first = self.direction == "ascending" and not self.is_reversed
        direction = "DESC" if self.direction == "descending" else "ASC"
        return f"{self.column.removeprefix('-')} {direction} NULLS {'FIRST' if is_first else 'LAST'}"

    def chosen_by(self, heading: str) -> str:
        """Returns the choice that a click on a heading makes."""
        return f"-{heading}" if heading == self.name and not self.is_reversed else heading


def an_order(names: Iterable[str], *, of_metrics: bool = False) -> AfterValidator:
    """Returns a validator for the name of an order, which ``-`` may precede, or of a metric's column."""
    check = one_of(names).func

    def check_order(value: str) -> str:
        name = value.removeprefix("-")
        if not (of_metrics and name.startswith(METRIC)):
            check(name)  # type: ignore[call-arg]
        return value if name else ""

    return AfterValidator(check_order)

"""``trend``: the results of an environment over time, and where they changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from nightjar.analysis import Change, Trend, TrendSeries
from nightjar.analysis import trend as analyse
from nightjar.api.results import ArrowTable, TabularResult, arrow, chart_of
from nightjar.reports.formats import interval
from nightjar.reports.panels import Panel, PanelTable, spans
from nightjar.reports.trend import change_findings, drawing, remarks, trend_chart
from nightjar.warehouse import Warehouse

if TYPE_CHECKING:
    import altair as alt

_WIDTH = 80
_SHOWN = 20


@dataclass(frozen=True, repr=False, eq=False)
class TrendResult(TabularResult):
    """The runs of an environment in time order, in series of one model each.

    Example:
        >>> found = trend("gsm8k", model="openai/gpt-4.1-mini")  # doctest: +SKIP
        >>> [(change.run_id, change.before, change.after) for change in found.changes]  # doctest: +SKIP
        >>> found.plot().save("trend.svg")  # doctest: +SKIP
    """

    trend: Trend

    @property
    def series(self) -> list[TrendSeries]:
        """The runs of each model with their means, intervals and changes, the longest series first."""
        return self.trend.series

    @property
    def changes(self) -> list[Change]:
        """The runs at which the results changed, with the settings that changed too."""
        return [change for series in self.series for change in series.changes]

    def plot(self) -> alt.TopLevelMixin:
        """Returns the chart of ``nightjar trend --svg``. Raises ``ConfigError`` if Altair is not installed."""
        return chart_of(trend_chart(self.trend))

    def panel(self) -> Panel:
        """Returns the changes, and the newest runs of each series."""
        shown = [series for series in self.series if len(series.points) > 1] or self.series
        lines = {label: text for series in shown for label, text in _lines(series)}
        drawn = [line for series in shown for line in ("", series.model or "", *drawing(series, _WIDTH))]
        title = f"{self.trend.env_id}: {self.trend.metric} over time"
        return Panel(title, lines=lines, tables=[_table(series) for series in shown], drawing=drawn)

    def _arrow(self) -> ArrowTable:
        return arrow().Table.from_pylist(
            [
                {
                    "model": series.model,
                    "run_id": point.run_id,
                    "began": point.began,
                    "value": point.value,
                    "low": point.interval.low,
                    "high": point.interval.high,
                    "level": point.level,
                    "examples": point.examples,
                    "is_change": any(point.run_id == change.run_id for change in series.changes),
                }
                for series in self.series
                for point in series.points
            ]
        )


def trend(
    env: str,
    *,
    model: str | None = None,
    metric: str = "reward",
    since: date | None = None,
    alpha: float = 0.01,
    warehouse: str | Path | Warehouse | None = None,
) -> TrendResult:
    """Returns the results of an environment over time, with the runs at which they changed.

    Args:
        env: the environment.
        model: only runs of this model.
        metric: ``reward``, ``correct`` (pass@1), or the name of a metric.
        since: only runs from this day on.
        alpha: the probability that a series without a change gets a mark.
        warehouse: the warehouse to ask (default: where runs are published).

    Raises:
        ConfigError: if the environment has no finished run.

    Example:
        >>> trend("gsm8k").plot()  # doctest: +SKIP
    """
    return TrendResult(analyse(env, model=model, metric=metric, since=since, alpha=alpha, warehouse=warehouse))


def _lines(series: TrendSeries) -> Iterator[tuple[str, str]]:
    name = series.model or "runs"
    for change in series.changes:
        for label, text in change_findings(series, change).items():
            yield f"{name}, {change.run_id}, {label}", text
    for number, remark in enumerate(remarks(series), 1):
        yield f"{name}, examples {number}", remark


def _table(series: TrendSeries) -> PanelTable:
    points = series.points[-_SHOWN:]
    rows = [
        (
            point.run_id,
            f"{point.began:%Y-%m-%d %H:%M}",
            f"{point.value:.4f}",
            interval(point.interval, ".3f") or "–",
            f"{point.examples:,}",
        )
        for point in points
    ]
    headings = ("Run", "Started", "Mean", "95 % interval", "Examples")
    return PanelTable(
        headings,
        rows,
        title=f"{series.model or ''}, newest runs",
        numbers=frozenset(headings[2:]),
        spans=spans([(point.value, point.interval) for point in points]),
    )

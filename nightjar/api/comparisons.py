"""``compare``: is a candidate worse than a baseline by more than is allowed?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar.analysis import Comparison, Comparisons, Decision, Difference, Direction, Terms, compare_all
from nightjar.api.results import ArrowTable, TabularResult, arrow
from nightjar.api.run import Run
from nightjar.api.view_links import page_of_comparison
from nightjar.errors import ConfigError
from nightjar.reports.comparison import comparison_chart, evaluation_rows, findings, one_sided, side_rows, verdict
from nightjar.reports.panels import Panel, PanelTable
from nightjar.warehouse import Warehouse


@dataclass(frozen=True, repr=False, eq=False)
class ComparisonResult(TabularResult):
    """The comparisons of the evaluations that two sides share: one for two runs, several for suites.

    Example:
        >>> found = compare("0a1b2c", "5f4e3d")  # doctest: +SKIP
        >>> found.decision, found.difference.mean, found.difference.interval  # doctest: +SKIP
        ('REGRESSION', -0.08, Interval(low=-0.1, high=-0.06))
    """

    comparisons: Comparisons
    warehouse: Warehouse

    @property
    def decision(self) -> Decision:
        """``PASS``, ``REGRESSION`` or ``INCONCLUSIVE``; the worst of several decisions."""
        return self.comparisons.decision

    @property
    def reason(self) -> str:
        """The reason for the decision."""
        return self._single.reason if self.comparisons.is_single else verdict(self.comparisons)

    @property
    def difference(self) -> Difference:
        """The mean difference with its interval. Raises ``ConfigError`` if there are several evaluations."""
        return self._single.difference

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.comparisons.found)

    def __len__(self) -> int:
        return len(self.comparisons.found)

    def panel(self) -> Panel:
        found = self.comparisons
        if found.is_single:
            one = self._single
            headings = ("", "Baseline", "Candidate", "Change")
            table = PanelTable(headings, side_rows(one), numbers=frozenset(headings[1:]))
            link = page_of_comparison(one.baseline.run_id, one.candidate.run_id, self.warehouse)
            return Panel(one.reason, one.decision, findings(one), [table], chart=comparison_chart(one), link=link)
        headings = ("Decision", "Evaluation", "Difference", "Pairs")
        table = PanelTable(headings, evaluation_rows(found), numbers=frozenset(headings[2:]))
        lines = dict(line.split(": ", 1) for line in one_sided(found))
        return Panel(verdict(found), found.decision, lines, [table])

    @property
    def _single(self) -> Comparison:
        if not self.comparisons.is_single:
            raise ConfigError(f"There are {len(self)} compared evaluations: {self.reason} Iterate over the result")
        return self.comparisons.found[0]

    def _arrow(self) -> ArrowTable:
        return arrow().Table.from_pylist([_row(one) for one in self])


def compare(
    baseline: Run | str | Path,
    candidate: Run | str | Path,
    *,
    max_drop: float = 0.05,
    alpha: float = 0.05,
    metric: str = "reward",
    baseline_metric: str | None = None,
    direction: Direction = "higher",
    by: str | None = None,
    cluster: str | None = None,
    warehouse: str | Path | Warehouse | None = None,
) -> ComparisonResult:
    """Compares two runs, or all evaluations that two sides share, on the examples that both have scored.

    Args:
        baseline: a run, or what ``nightjar compare`` accepts: a run id or its beginning, a run directory or other
            results, ``MODEL@ENV``, ``MODEL@ENV@DAY`` or ``SUITE@DAY``.
        candidate: the same.
        max_drop: how much worse the candidate's mean may be.
        alpha: the chance that the interval misses the true difference.
        metric: ``reward``, ``correct`` (pass@1), or the name of a metric.
        baseline_metric: the metric of the baseline, if it has another name there (default: ``metric``).
        direction: which values are better.
        by: also compare each value of this field of the examples' info, or of ``task``.
        cluster: a field of info; examples with the same value are dependent.
        warehouse: where the runs are (default: the warehouse of the given run, or where runs are published).

    Raises:
        ConfigError: if a side is unknown, or if the runs have no example in common.

    Example:
        >>> compare("0a1b2c", "5f4e3d", max_drop=0.02)  # doctest: +SKIP
    """
    sides = (baseline, candidate)
    given = next((run.stored.warehouse for run in sides if isinstance(run, Run)), None)
    where = Warehouse.of(given if warehouse is None else warehouse)
    a, b = (side.reference if isinstance(side, Run) else side for side in sides)
    terms = Terms(max_drop, alpha, metric, direction, cluster, by, baseline_metric)
    return ComparisonResult(compare_all(a, b, terms, warehouse=where), where)


def _row(one: Comparison) -> dict[str, Any]:
    return {
        "env_id": one.candidate.env_id,
        "baseline": one.baseline.run_id,
        "candidate": one.candidate.run_id,
        "decision": one.decision,
        "baseline_mean": one.baseline.mean,
        "candidate_mean": one.candidate.mean,
        "difference": one.difference.mean,
        "low": one.difference.interval.low,
        "high": one.difference.interval.high,
        "p_value": one.difference.p_value,
        "pairs": one.pairs,
        "broken": len(one.broken),
        "fixed": len(one.fixed),
    }

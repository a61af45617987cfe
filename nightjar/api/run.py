"""``Run``: a run with its results, read from the warehouse or from its run directory when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightjar.analysis import selected
from nightjar.api.results import ArrowTable, TabularResult, chart_of
from nightjar.api.view_links import page_of_run
from nightjar.core.rollout.records import RolloutOutput
from nightjar.errors import MissingWarehouseError
from nightjar.evaluation.stored_runs import StoredRun, find_stored_run
from nightjar.reports.evaluation import RunReport, report_run
from nightjar.reports.evaluation.figures import run_chart, scores_table
from nightjar.reports.evaluation.rendering import failures, findings
from nightjar.reports.panels import Panel, PanelTable
from nightjar.statistics.intervals import Interval
from nightjar.warehouse import Warehouse

if TYPE_CHECKING:
    import altair as alt

_IS_PUBLISHED = "SELECT count(*) FROM runs WHERE run_id = ?"
_ROLLOUTS = "SELECT * FROM rollouts WHERE run_id = ? ORDER BY example_id, rollout_index"


@dataclass(frozen=True)
class RunSummary:
    """The aggregates of a run. Means are over scored rollouts; without scored rollouts, they are None.

    Attributes:
        mean: the mean reward.
        stderr: the standard error of the mean, clustered by example; None if unknown.
        interval: the 95 % interval of the mean; None if unknown.
        rollouts: the number of rollouts that the run should have; ``coverage`` is the scored share of them.
        metrics: the mean of each metric.
        pass_at_k: the probability that at least one of k rollouts is correct; ``pass_all_k``, that all k are.
        errors: the number of failed rollouts by error.
        input_tokens, output_tokens: tokens of all attempts; None if the endpoint reported none.
        cost: in USD; None if the price of the model is unknown.
    """

    mean: float | None
    stderr: float | None
    interval: Interval | None
    examples: int
    rollouts: int
    scored: int
    failed: int
    coverage: float
    metrics: Mapping[str, float]
    pass_at_k: Mapping[int, float]
    pass_all_k: Mapping[int, float]
    errors: Mapping[str, int]
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    seconds: float | None


@dataclass(frozen=True, repr=False, eq=False)
class Run(TabularResult):
    """A run and its results. ``evaluate``, ``open_run`` and ``runs`` return runs.

    The results are read when they are first used. To see further rollouts of a run in progress, open the run again.

    Example:
        >>> run = open_run("0a1b2c")  # doctest: +SKIP
        >>> run.summary.mean, run.summary.interval  # doctest: +SKIP
        (0.71, Interval(low=0.61, high=0.79))
        >>> wrong = [row for row in run.rollouts() if row["reward"] == 0]  # doctest: +SKIP
    """

    stored: StoredRun
    """The run and its warehouse, as the command line uses them."""

    @property
    def id(self) -> str:
        """The run id."""
        return self.stored.run_id

    @property
    def env(self) -> str:
        """The id of the environment."""
        return str(self.stored.metadata["env_id"])

    @property
    def model(self) -> str | None:
        """The model, as the endpoint names it. None for some results of other programs."""
        return self.stored.metadata.get("model")

    @property
    def status(self) -> str:
        """``running``, ``completed``, ``incomplete``, ``failed``, ``cancelled``, ``timed_out`` or ``crashed``."""
        return str(self.stored.metadata["status"])

    @property
    def path(self) -> Path | None:
        """The run directory; None if it is not on this machine."""
        return self.stored.path

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The settings and aggregates, as in ``metadata.json`` of the run directory."""
        return self.stored.metadata

    @property
    def view_url(self) -> str | None:
        """The address of the run's page; None if no web view shows the run."""
        return page_of_run(self.id, self.stored.warehouse)

    @cached_property
    def summary(self) -> RunSummary:
        """The mean with its interval, counts, pass@k, tokens and cost."""
        report = self._report
        reward = report.statistics.reward
        return RunSummary(
            mean=reward.value,
            stderr=reward.stderr,
            interval=None if isinf(reward.interval.low) else reward.interval,
            examples=reward.examples,
            rollouts=report.statistics.rollouts,
            scored=reward.scored,
            failed=report.errors,
            coverage=report.statistics.coverage or 0.0,
            metrics=report.metrics,
            pass_at_k={rate.k: rate.at_k.value for rate in report.statistics.pass_rates if rate.at_k.value is not None},
            pass_all_k={
                rate.k: rate.all_k.value for rate in report.statistics.pass_rates if rate.all_k.value is not None
            },
            errors={failure.chain: failure.count for failure in report.failures},
            input_tokens=report.input_tokens,
            output_tokens=report.output_tokens,
            cost=report.cost,
            seconds=report.seconds,
        )

    def rollouts(self) -> Iterator[RolloutOutput]:
        """Yields the rollouts by example and index, as rows of ``results.jsonl`` (docs/reference/run-directory.md)."""
        yield from map(RolloutOutput, self.stored.rows())

    def plot(self) -> alt.TopLevelMixin:
        """Returns a chart of Altair: the mean reward, pass rates and metrics, and the rewards of rollouts.

        Raises ``ConfigError`` if Altair is not installed.
        """
        return chart_of(run_chart(self._report))

    def panel(self) -> Panel:
        report = self._report
        many = [*failures(report)]
        tables = [scores_table(report)]
        if many:
            headings = ("Rollouts", "About", "Error", "The first")
            tables.append(PanelTable(headings, many, "Failures", frozenset(headings[:1])))
        title = f"{self.env} | {self.model}, run {self.id}:"
        lines = {label: text for label, text in findings(report).items() if label != "Status"}
        return Panel(title, self.status, lines, tables, link=self.view_url)

    @property
    def reference(self) -> str | Path:
        """The id if the run is published, else the run directory. Both name the run in ``compare``."""
        if self.path is None:
            return self.id
        try:
            [[published]] = self.stored.warehouse.query(_IS_PUBLISHED, [self.id]).rows
        except MissingWarehouseError:
            published = 0
        return self.id if published else self.path

    def _arrow(self) -> ArrowTable:
        with self._readable() as (warehouse, run_id):
            return warehouse.query_arrow(_ROLLOUTS, [run_id])

    @cached_property
    def _report(self) -> RunReport:
        with self._readable() as (warehouse, run_id):
            return report_run(run_id, warehouse)

    @contextmanager
    def _readable(self) -> Iterator[tuple[Warehouse, str]]:
        """Yields a warehouse with the run, which is temporary if the run is only in its run directory."""
        with selected([self.reference], self.stored.warehouse) as (warehouse, [[run_id]]):
            yield warehouse, run_id


def open_run(run: str | Path, *, warehouse: str | Path | None = None) -> Run:
    """Returns the run with an id, the beginning of an id, or a run directory.

    Args:
        run: as in ``nightjar eval get``.
        warehouse: the warehouse that is searched beside the local disk (default: where runs are published).

    Raises:
        ConfigError: if there is no such run, or if several ids begin like this.

    Example:
        >>> open_run("no-such-run")
        Traceback (most recent call last):
        ...
        nightjar.errors.ConfigError: There is no run 'no-such-run'. List them: nightjar eval list
    """
    return Run(find_stored_run(str(run), None if warehouse is None else str(warehouse)))

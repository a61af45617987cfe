"""``nightjar trend``, ``plan`` and ``leaderboard``: the runs of an environment over time and across models."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text

from nightjar.analysis import Trend, TrendSeries, leaderboard, plan, trend
from nightjar.cli.options import AlphaOption, EnvIdArgument, JsonOption, MetricOption, WarehouseOption, option
from nightjar.cli.output import columns, labelled, print_json
from nightjar.cli.terminal import echo
from nightjar.core.text import counted, harmless
from nightjar.reports import leaderboard as leaderboards
from nightjar.reports import planning
from nightjar.reports.formats import finite, interval
from nightjar.reports.trend import change_findings, drawing, remarks, trend_svg
from nightjar.warehouse import Warehouse, resolve_warehouse

_WIDEST_PLOT = 120


def show_leaderboard(
    env_id: EnvIdArgument,
    metric: MetricOption = "reward",
    alpha: Annotated[
        float, option("Probability that equal models are shown as different.", min=0, max=1, metavar="X")
    ] = 0.05,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the models of an environment on the examples that all models have scored, and show which models are tied.

    Two models differ only if the interval of their difference, corrected for all pairs of models, excludes 0.

    Example: nightjar leaderboard gsm8k
    """
    where = Warehouse(resolve_warehouse(warehouse))
    found = leaderboard(env_id, metric=metric, alpha=alpha, warehouse=where)
    if as_json:
        print_json(finite(asdict(found)))
        return
    console = Console(highlight=False)
    console.print(columns(leaderboards.HEADINGS, leaderboards.leaderboard_rows(found)))
    console.print(labelled(leaderboards.leaderboard_findings(found)))
    if len(found.rows) > 1:
        echo(f"Next: nightjar compare {found.rows[1].run_id} {found.rows[0].run_id}", err=True)


def show_plan(
    env_id: EnvIdArgument,
    detect: Annotated[float, option("Drop of the mean reward that the two runs must detect.", metavar="X")],
    model: Annotated[
        str | None, option("Model to plan for (default: the model of the newest run).", "--model", "-m")
    ] = None,
    power: Annotated[float, option("Probability that the drop is detected.", min=0, max=1, metavar="X")] = 0.8,
    alpha: AlphaOption = 0.05,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the examples, rollouts, time and cost that two runs need to detect a drop.

    The estimate uses the variance of rewards in earlier runs. Without earlier runs, the output says what a pilot run
    would show. Time and cost are for one of the two runs.

    Example: nightjar plan gsm8k --detect 0.02 --power 0.9
    """
    where = Warehouse(resolve_warehouse(warehouse))
    found = plan(env_id, detect=detect, model=model, power=power, alpha=alpha, warehouse=where)
    if as_json:
        print_json(finite(asdict(found)))
        return
    console = Console(highlight=False)
    console.print(labelled(planning.plan_findings(found)))
    console.print(columns(planning.HEADINGS, planning.plan_rows(found)))
    echo(f"Next: {harmless(planning.next_command(found))}", err=True)


def show_trend(
    env_id: EnvIdArgument,
    model: Annotated[str | None, option("Only runs of this model.", "--model", "-m")] = None,
    metric: MetricOption = "reward",
    since: Annotated[
        datetime | None, option("Only runs from this day on.", formats=["%Y-%m-%d"], metavar="DATE")
    ] = None,
    alpha: Annotated[
        float, option("Probability that a series without a change gets a mark.", min=0, max=1, metavar="X")
    ] = 0.01,
    svg: Annotated[Path | None, option("Also write the plot as SVG.", metavar="FILE")] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plot the results of an environment over time, mark the runs at which the results changed, and explain why.

    The runs of one model form one series. Settings that were used during the same time form separate series.

    Example: nightjar trend gsm8k --model openai/gpt-4.1-mini --svg trend.svg
    """
    where = Warehouse(resolve_warehouse(warehouse))
    day = since and since.date()
    found = trend(env_id, model=model, metric=metric, since=day, alpha=alpha, warehouse=where)
    if svg:
        svg.write_text(trend_svg(found), encoding="utf-8")
        echo(f"Wrote {svg}", err=True)
    if as_json:
        print_json(finite(asdict(found)))
        return
    shown = [series for series in found.series if len(series.points) > 1] or found.series
    for series in shown:
        _print_series(found, series)
    if single := len(found.series) - len(shown):
        echo(
            f"Not shown: {counted(single, 'run')} without another run of the same model and settings; see --json.",
            err=True,
        )
    changes = [change for series in shown for change in series.changes]
    if changes:
        echo(f"Next: nightjar compare {changes[-1].previous} {changes[-1].run_id}", err=True)


def _print_series(found: Trend, series: TrendSeries) -> None:
    console = Console(highlight=False)
    first, last = series.points[0], series.points[-1]
    heading = f"{found.env_id}, {series.model}: {found.metric} of {counted(len(series.points), 'run')}"
    console.print(Text(harmless(heading), style="bold"))
    for line in drawing(series, min(console.width, _WIDEST_PLOT)):
        console.print(Text(line), no_wrap=True)
    newest = f"{last.value:.4f} {interval(last.interval, '.3f') or '(no interval: one example)'}"
    console.print(labelled({"Newest": f"{newest} over {counted(last.examples, 'example')}, run {last.run_id}"}))
    for change in series.changes:
        console.print(labelled(change_findings(series, change)))
    for remark in remarks(series):
        console.print(labelled({"Examples": remark}))
    if not series.changes and first is not last:
        none = f"none; {found.alpha:.1%} of series without a change have a mark"
        console.print(labelled({"Changes": none}))
    console.print()

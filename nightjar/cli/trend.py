"""``nightjar trend``: what the runs of an environment came to, and where that has changed.

nightjar trend gsm8k --model openai/gpt-4.1-mini --since 2026-01-01
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from nightjar.cli.tables import labelled
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import number, print_json
from nightjar.comparison import Trend, TrendSeries, trend
from nightjar.reports.finite import finite
from nightjar.reports.trend import change_findings, drawing, remarks
from nightjar.reports.trend_chart import trend_svg
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse


def show_trend(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="The environment.", show_default=False)],
    model: Annotated[str | None, typer.Option("--model", "-m", help="Runs of this model alone.")] = None,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="reward, correct (share at the pass threshold), or a metric.")
    ] = "reward",
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="Runs from this day on alone.")
    ] = None,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Chance of any mark in a series without a change.")
    ] = 0.01,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the drawing as SVG, too.")] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw what the runs of an environment came to, mark from which on it is better or worse, and say why.

    Runs of one model are one series; settings that were used at the same time are series of their own.

    Example: nightjar trend gsm8k --model openai/gpt-4.1-mini --svg trend.svg
    """
    where = Warehouse(resolve_warehouse(warehouse))
    day = since and since.date()
    found = trend(env_id, model=model, metric=metric, since=day, alpha=alpha, warehouse=where)
    if svg:
        svg.write_text(trend_svg(found), encoding="utf-8")
        echo(f"Written: {svg}", err=True)
    if as_json:
        print_json(finite(asdict(found)))
        return
    shown = [series for series in found.series if len(series.points) > 1] or found.series
    for series in shown:
        _print_series(found, series)
    if single := len(found.series) - len(shown):
        echo(
            f"Not shown: {number(single, 'run')} that no other is beside, by model and settings; --json has all.",
            err=True,
        )
    changes = [change for series in shown for change in series.changes]
    if changes:
        echo(f"Next: nightjar compare {changes[-1].previous} {changes[-1].run_id}", err=True)


def _print_series(found: Trend, series: TrendSeries) -> None:
    console = Console(highlight=False)
    first, last = series.points[0], series.points[-1]
    heading = f"{found.env_id}, {series.model}: {found.metric} of {number(len(series.points), 'run')}"
    console.print(Text(harmless(heading), style="bold"))
    for line in drawing(series, min(console.width, 120)):
        console.print(Text(line), no_wrap=True)
    newest = f"{last.value:.4f} [{last.interval.low:.3f}, {last.interval.high:.3f}]"
    console.print(labelled({"Newest": f"{newest} over {number(last.examples, 'example')}, run {last.run_id}"}))
    for change in series.changes:
        console.print(labelled(change_findings(series, change)))
    for remark in remarks(series):
        console.print(labelled({"Examples": remark}))
    if not series.changes and first is not last:
        none = f"none; without a change, {found.alpha:.1%} of such series have any marked"
        console.print(labelled({"Changes": none}))
    console.print()

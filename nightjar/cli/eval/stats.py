"""``nightjar eval stats``: what a run came to, and how well that is known.

nightjar eval stats 0a1b2c3d4e5f --by subject
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from nightjar.cli.tables import columns, labelled
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.comparison import describe_run
from nightjar.comparison.selecting import selected
from nightjar.comparison.summary import RunStatistics
from nightjar.errors import ConfigError
from nightjar.reports.finite import finite
from nightjar.reports.statistics import mean, pass_rows, told
from nightjar.warehouse import Warehouse, resolve_warehouse


def eval_stats(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Id of a run, how one begins, a run directory, or MODEL@ENV.", show_default=False
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="FIELD", help="Field of info, or task: the mean of each of its values."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="Field of info that examples share which resemble each other, as a passage."
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(min=0, max=1, metavar="X", help="Chance that an interval misses.")] = 0.05,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run came to and how well that is known: intervals, pass@k, categories, spread.

    Example: nightjar eval stats 0a1b2c --by subject
    """
    with selected([run], Warehouse(resolve_warehouse(warehouse))) as (where, [run_ids]):
        if len(run_ids) > 1:
            raise ConfigError(f"{run!r} are {len(run_ids)} runs: {', '.join(run_ids[:5])}. Name one of them")
        found = describe_run(run_ids[0], warehouse=where, by=by, cluster=cluster, alpha=alpha)
    if as_json:
        print_json(finite(asdict(found)))
    else:
        _print(found, by)


def _print(found: RunStatistics, by: str | None) -> None:
    console = Console()
    console.print(labelled(told(found)))
    if rows := pass_rows(found.pass_rates):
        console.print(columns(("k", "pass@k", "pass^k"), rows))
    if found.categories:
        means = [(name, f"{one.examples:,}", mean(one)) for name, one in found.categories.items()]
        console.print(columns((by or "", "examples", "avg reward"), means))

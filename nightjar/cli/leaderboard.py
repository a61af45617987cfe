"""``nightjar leaderboard``: the models of an environment, and which of them are tied.

nightjar leaderboard gsm8k
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from nightjar.cli.tables import columns, labelled
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.comparison import leaderboard
from nightjar.reports.finite import finite
from nightjar.reports.leaderboard import HEADINGS, leaderboard_findings, leaderboard_rows
from nightjar.warehouse import Warehouse, resolve_warehouse


def show_leaderboard(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="The environment.", show_default=False)],
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="reward, correct (share at the pass threshold), or a metric.")
    ] = "reward",
    alpha: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Chance that any two equal models are told apart.")
    ] = 0.05,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank the models of an environment over the examples that all have scored, and say which are tied.

    Two models are told apart only where the interval of their difference is above or below 0, with all pairs of models
    taken together.

    Example: nightjar leaderboard gsm8k
    """
    where = Warehouse(resolve_warehouse(warehouse))
    found = leaderboard(env_id, metric=metric, alpha=alpha, warehouse=where)
    if as_json:
        print_json(finite(asdict(found)))
        return
    console = Console(highlight=False)
    console.print(columns(HEADINGS, leaderboard_rows(found)))
    console.print(labelled(leaderboard_findings(found)))
    if len(found.rows) > 1:
        echo(f"Next: nightjar compare {found.rows[1].run_id} {found.rows[0].run_id}", err=True)

"""``nightjar plan``: how many examples and rollouts show a drop.

nightjar plan gsm8k --detect 0.02
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
from nightjar.comparison import plan
from nightjar.reports.finite import finite
from nightjar.reports.planning import HEADINGS, next_command, plan_findings, plan_rows
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse


def show_plan(
    env_id: Annotated[str, typer.Argument(metavar="ENV", help="The environment.", show_default=False)],
    detect: Annotated[
        float, typer.Option(metavar="X", help="The drop of the mean reward that is to be seen.", show_default=False)
    ],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model to plan for (default: that of the newest run).")
    ] = None,
    power: Annotated[float, typer.Option(min=0, max=1, metavar="X", help="Chance that the drop is seen.")] = 0.8,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Chance that the interval of the difference misses.")
    ] = 0.05,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many examples and rollouts two runs need for a drop to be seen, and what they take.

    From how much rewards varied in the runs before; without any, what a pilot would tell. Time and cost are those of
    one of the two runs, as the runs before had them.

    Example: nightjar plan gsm8k --detect 0.02 --power 0.9
    """
    where = Warehouse(resolve_warehouse(warehouse))
    found = plan(env_id, detect=detect, model=model, power=power, alpha=alpha, warehouse=where)
    if as_json:
        print_json(finite(asdict(found)))
        return
    console = Console(highlight=False)
    console.print(labelled(plan_findings(found)))
    console.print(columns(HEADINGS, plan_rows(found)))
    echo(f"Next: {harmless(next_command(found))}", err=True)

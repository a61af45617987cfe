"""``nightjar nights show``: one night, evaluation by evaluation.

nightjar nights show nightly 2026-11-20
"""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.nights.arguments import NightArgument, SuiteArgument, night_of
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.comparison.judging import beside
from nightjar.evaluation.nights import as_of_now
from nightjar.reports.nights import change_of, how_to_complete, number, why
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.storage.nights import Night


def nights_show(
    suite: SuiteArgument, night: NightArgument, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Show a night: each evaluation beside the last accepted night, and how to complete what is missing.

    Example: nightjar nights show nightly 2026-11-20
    """
    place = Warehouse(resolve_warehouse(warehouse))
    found = as_of_now(place, night_of(place, suite, night))
    if as_json:
        print_json(found)
        return
    echo(harmless(found.line))
    _print_table(found)
    for one in found.evaluations:
        if one.status != "completed" and found.verdict != "running":
            echo(harmless(f"{one.name}: {why(one)}. To complete it: {how_to_complete(found, one)}"))


def _print_table(night: Night) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Evaluation", overflow="fold")
    for heading in ("Reward", "Scored", "Change", "Beside", "Cost"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("Status", no_wrap=True)
    for one in night.evaluations:
        scored = f"{one.scored}/{one.rollouts}" if one.rollouts else "–"
        against = f"{beside(one).removeprefix('on ')}, {one.pairs} examples" if one.against_night else "–"
        cells = (number(one.avg_reward, one.stderr), scored, change_of(one), against, number(one.cost))
        table.add_row(Text(harmless(one.name)), *cells, one.status or "no run")
    Console().print(table)

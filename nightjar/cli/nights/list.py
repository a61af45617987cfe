"""``nightjar nights``: the nights that there were, with their verdicts.

nightjar nights --suite nightly
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation.nights import as_of_now
from nightjar.hosting.night_states import as_it_stands
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.storage.nights import Night

_UNSETTLED = ("running", "incomplete")
_STYLES = {"worse": "red", "incomplete": "yellow", "crashed": "red", "accepted": "green"}


def nights(
    context: typer.Context,
    suite: Annotated[str | None, typer.Option(metavar="NAME", help="Nights of this suite alone.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="So many at the most.")] = 30,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the nights of suites, the newest first: what each came to, and what it cost.

    Examples: nightjar nights --suite nightly | nightjar nights show nightly 2026-11-20
    """
    if context.invoked_subcommand is not None:
        return
    place = Warehouse(resolve_warehouse(warehouse))
    found = [one for one in place.nights() if suite in {None, one.suite}]
    newest = sorted(found, key=lambda one: (one.night, one.suite), reverse=True)[:limit]
    shown = as_it_stands([as_of_now(place, one) if one.verdict in _UNSETTLED else one for one in newest])
    if as_json:
        print_json(shown)
        return
    _print_table(shown)
    if len(found) > limit:
        echo(f"The newest {limit} of {len(found)} nights; --limit shows more.", err=True)
    nothing = "There are no nights. Plan them: nightjar deploy SUITE.toml --cron '0 2 * * *'"
    echo("Look at one: nightjar nights show SUITE DATE" if found else nothing, err=True)


def _print_table(shown: Sequence[Night]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("Night", "Suite", "Verdict"):
        table.add_column(heading, no_wrap=True)
    table.add_column("Complete", justify="right", no_wrap=True)
    table.add_column("Cost", justify="right", no_wrap=True)
    table.add_column("What it came to", overflow="fold")
    for one in shown:
        complete = sum(each.status == "completed" for each in one.evaluations)
        cost = "–" if one.cost is None else f"{one.cost:.4g}"
        verdict = Text(one.verdict, style=_STYLES.get(one.verdict, ""))
        said = harmless(one.line.removeprefix(f"{one.suite} {one.night} {one.verdict}: "))
        cells = (Text(harmless(one.suite)), verdict, f"{complete}/{len(one.evaluations)}", cost, Text(said))
        table.add_row(one.night, *cells)
    Console().print(table)

"""``nightjar compare``: is a run worse than another by more than it may be?

nightjar compare 0a1b2c3d4e5f 5f4e3d2c1b0a --max-drop 0.02
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.comparison import Comparison, compare_runs
from nightjar.reports.comparison import comparison_record, comparison_report, findings, side_rows
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse

_EXIT_CODES = {"PASS": 0, "REGRESSION": 1, "INCONCLUSIVE": 2}
_STYLES = {"PASS": "bold green", "REGRESSION": "bold red", "INCONCLUSIVE": "bold yellow"}
_RUN = "Id of a run, a run directory or other results, or MODEL@ENV."


def compare(
    baseline: Annotated[str, typer.Argument(metavar="BASELINE", help=_RUN, show_default=False)],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help=_RUN, show_default=False)],
    max_drop: Annotated[float, typer.Option(min=0, metavar="X", help="How much lower the mean reward may be.")] = 0.05,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Chance that the interval of the difference misses.")
    ] = 0.05,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="Field of info that examples share which resemble each other, as a passage."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 for a REGRESSION, 2 where it is INCONCLUSIVE.")
    ] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print markdown.")] = False,
) -> None:
    """Compare two runs over the examples that both have scored: is the candidate worse by more than it may be?

    PASS where the whole interval of the difference is within --max-drop, REGRESSION where all of it is beyond,
    INCONCLUSIVE otherwise, with how many examples would decide it.

    Example: nightjar compare 0a1b2c 5f4e3d --max-drop 0.02 --strict
    """
    if as_json and markdown:
        raise typer.BadParameter("--json and --markdown: choose one")
    where = Warehouse(resolve_warehouse(warehouse))
    found = compare_runs(baseline, candidate, warehouse=where, max_drop=max_drop, alpha=alpha, cluster=cluster)
    if as_json:
        print_json(comparison_record(found))
    elif markdown:
        echo(comparison_report(found))
    else:
        _print(found)
    raise typer.Exit(_EXIT_CODES[found.decision] if strict else 0)


def _print(found: Comparison) -> None:
    console = Console()
    console.print(Text.assemble((found.decision, _STYLES[found.decision]), f"  {found.reason}"))
    sides = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    sides.add_column("")
    for heading in ("Baseline", "Candidate", "Change"):
        sides.add_column(heading, justify="right", overflow="fold")
    for row in side_rows(found):
        sides.add_row(*(Text(harmless(text)) for text in row))
    console.print(sides)
    lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for label, text in findings(found).items():
        lines.add_row(f"{label}:", Text(harmless(text)))
    console.print(lines)
    if flips := found.broken + found.fixed:
        command = f"nightjar eval samples {found.candidate.run_id} --example {flips[0].example_id}"
        echo(f"Next: {harmless(command)}", err=True)

"""``nightjar gate``: may a candidate go where the baseline is?

nightjar gate --policy configs/gates/release.yaml 0a1b2c3d4e5f 5f4e3d2c1b0a
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.comparison import Verdict, gate
from nightjar.reports.gate import error_rate, gate_record, gate_report, gate_rows, left_out, reasons
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse

_EXIT_CODES = {"GO": 0, "NO-GO": 1, "INCONCLUSIVE": 2}
_STYLES = {"GO": "bold green", "NO-GO": "bold red", "INCONCLUSIVE": "bold yellow"}
_OUTCOME_STYLES = {"PASS": "green", "BREACH": "red", "MISSING": "red", "INSUFFICIENT": "yellow"}
_SHOWN = ("Benchmark", "Tier", "Outcome", "Change", "Interval", "Allowed", "Pairs")
"""What has room on a terminal of 80 columns; the other formats have the means, too."""


class ReportFormat(StrEnum):
    """What is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


def gate_command(
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BASELINE] CANDIDATE",
            help="Each a run's id, a folder of results, MODEL@ENV or SUITE@DATE; the baseline may stand in the policy.",
            show_default=False,
        ),
    ] = None,
    *,
    policy: Annotated[Path, typer.Option("--policy", "-p", metavar="FILE", help="What may be lost, in YAML.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all of it as JSON.")
    ] = None,
    report_format: Annotated[
        ReportFormat, typer.Option("--format", metavar="FORM", help="What is printed: text, markdown or json.")
    ] = ReportFormat.TEXT,
    as_json: JsonOption = False,
    strict: Annotated[
        bool,
        typer.Option("--strict/--no-strict", help="Exit 1 for a NO-GO, 2 where it is INCONCLUSIVE; or always 0."),
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say of every benchmark how it was measured.")] = False,
    record: Annotated[
        bool, typer.Option("--record/--no-record", help="Keep the verdict in the warehouse, for SQL.")
    ] = True,
    warehouse: WarehouseOption = None,
) -> None:
    """Say whether a candidate may go where the baseline is, by a policy: GO, NO-GO or INCONCLUSIVE.

    GO where every benchmark is within what it may lose; NO-GO where one has lost more, or is missing though the policy
    lists it; INCONCLUSIVE where that cannot be told. Only GO exits with 0.

    Example: nightjar gate --policy configs/gates/release.yaml 0a1b2c 5f4e3d
    """
    baseline, candidate = _sides(sides or [])
    place = Warehouse(resolve_warehouse(warehouse))
    found = gate(policy, baseline, candidate, warehouse=place, record=record)
    if output:
        output.write_text(json.dumps(gate_record(found), indent=2, ensure_ascii=False) + "\n", "utf-8")
    if as_json or report_format is ReportFormat.JSON:
        print_json(gate_record(found))
    elif report_format is ReportFormat.MARKDOWN:
        echo(gate_report(found))
    else:
        _print(found, is_verbose=verbose)
    if found.gate_id:
        asked = f"FROM comparisons WHERE gate_id = '{found.gate_id}'"
        echo(f'Recorded. Next: nightjar sql "{asked}"', err=True)
    raise typer.Exit(_EXIT_CODES[found.decision] if strict else 0)


def _sides(named: list[str]) -> tuple[str | None, str | None]:
    match named:
        case []:
            return None, None
        case [candidate]:
            return None, candidate
        case [baseline, candidate]:
            return baseline, candidate
    raise typer.BadParameter(f"Name a baseline and a candidate, found {len(named)}: {' '.join(named)}")


def _print(found: Verdict, *, is_verbose: bool) -> None:
    console = Console()
    console.print(Text.assemble((found.decision, _STYLES[found.decision]), f"  {harmless(found.reason)}"))
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in _SHOWN:
        is_text = heading in _SHOWN[:3]
        rows.add_column(
            heading, justify="left" if is_text else "right", no_wrap=heading != "Benchmark", overflow="fold"
        )
    for row in gate_rows(found):
        rows.add_row(*(Text(harmless(row[name]), style=_OUTCOME_STYLES.get(row[name], "")) for name in _SHOWN))
    if found.benchmarks:
        console.print(rows)
    for name, text in reasons(found, is_verbose=is_verbose):
        console.print(Text(harmless(f"{name}: {text}")))
    for text in filter(None, [left_out(found), error_rate(found)]):
        console.print(Text(harmless(text)))

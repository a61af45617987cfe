"""``nightjar compare``: is a run worse than another by more than it may be?

nightjar compare 0a1b2c3d4e5f 5f4e3d2c1b0a --max-drop 0.02
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from nightjar.cli.tables import columns, labelled
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.comparison import Comparison, Comparisons, Flip, Terms, compare_all, record_comparisons
from nightjar.reports.comparison import (
    category_rows,
    comparison_record,
    comparison_report,
    comparisons_report,
    evaluation_rows,
    findings,
    one_sided,
    side_rows,
    verdict,
)
from nightjar.reports.comparison_page import SHOWN_FLIPS, comparison_page
from nightjar.reports.html import write_page
from nightjar.terminal import harmless
from nightjar.warehouse import Warehouse, resolve_warehouse

_EXIT_CODES = {"PASS": 0, "REGRESSION": 1, "INCONCLUSIVE": 2}
_STYLES = {"PASS": "bold green", "REGRESSION": "bold red", "INCONCLUSIVE": "bold yellow"}
_RUN = "Id of a run, a run directory or other results, or MODEL@ENV."


def compare(
    baseline: Annotated[str, typer.Argument(metavar="BASELINE", help=_RUN, show_default=False)],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help=_RUN, show_default=False)],
    max_drop: Annotated[float, typer.Option(min=0, metavar="X", help="How much worse the mean may be.")] = 0.05,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Chance that the interval of the difference misses.")
    ] = 0.05,
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="'reward', 'correct' (pass@1), or the name of a metric.")
    ] = "reward",
    direction: Annotated[Literal["higher", "lower"], typer.Option(help="Which of its values are better.")] = "higher",
    by: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field of info, or task: the difference of each of its values, too."),
    ] = None,
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
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Also write a page with the answers that changed, for any browser."
        ),
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep it in the warehouse, for SQL.")] = False,
) -> None:
    """Compare two runs over the examples that both have scored: is the candidate worse by more than it may be?

    Each side may be the id of a run or how one begins, a run directory, a folder, results of NeMo Evaluator or
    verifiers, MODEL@ENV, MODEL@ENV@DAY or SUITE@DAY; of several evaluations those that both have are compared.

    PASS where the whole interval of the difference is within --max-drop, REGRESSION where all of it is beyond,
    INCONCLUSIVE otherwise, with how many examples would decide it.

    Example: nightjar compare 0a1b2c 5f4e3d --max-drop 0.02 --strict
    """
    if as_json and markdown:
        raise typer.BadParameter("--json and --markdown: choose one")
    terms = Terms(max_drop, alpha, metric, direction, cluster, by)
    where, excerpts = Warehouse(resolve_warehouse(warehouse)), SHOWN_FLIPS if html else 0
    compared = compare_all(baseline, candidate, terms, warehouse=where, excerpts=excerpts)
    is_single = len(compared.found) == 1 and not compared.missing and not compared.new
    if as_json:
        print_json(comparison_record(compared.found[0] if is_single else compared))
    elif markdown:
        echo(comparison_report(compared.found[0]) if is_single else comparisons_report(compared))
    elif is_single:
        _print(compared.found[0], candidate, warehouse)
    else:
        _print_all(compared)
    if html:
        write_page(html, comparison_page(compared))
        echo(f"Wrote {harmless(str(html))}", err=True)
    if record:
        record_comparisons(where, compared.found)
        echo('Recorded. Next: nightjar sql "FROM comparisons"', err=True)
    raise typer.Exit(_EXIT_CODES[compared.decision] if strict else 0)


def _print_all(compared: Comparisons) -> None:
    console = Console()
    console.print(Text.assemble((compared.decision, _STYLES[compared.decision]), f"  {verdict(compared)}"))
    rows: list[list[str | Text]] = [[Text(row[0], _STYLES[row[0]]), *row[1:]] for row in evaluation_rows(compared)]
    console.print(columns(("Decision", "Evaluation", "Difference", "Pairs"), rows))
    for line in one_sided(compared):
        console.print(Text(harmless(line)))
    echo("Next: --markdown or --html FILE has each of them in full", err=True)


def _print(found: Comparison, candidate: str, warehouse: str | None) -> None:
    console = Console()
    console.print(Text.assemble((found.decision, _STYLES[found.decision]), f"  {found.reason}"))
    console.print(columns(("", "Baseline", "Candidate", "Change"), side_rows(found)))
    console.print(labelled(findings(found)))
    if found.categories:
        headings = (str(found.terms.by), "Pairs", "Baseline", "Candidate", "Difference")
        console.print(columns(headings, category_rows(found)))
    if flips := found.broken + found.fixed:
        echo(f"Next: {harmless(_next(found, flips[0], candidate, warehouse))}", err=True)


def _next(found: Comparison, flip: Flip, candidate: str, warehouse: str | None) -> str:
    """Returns the command that shows a flip; of a run that is only among files, how its texts can be seen."""
    is_directory = (Path(candidate) / "metadata.json").is_file()
    if not is_directory and (Path(candidate).exists() or "*" in candidate):
        return "--html FILE has the answers that changed"
    command = ["nightjar", "eval", "samples", candidate if is_directory else found.candidate.run_id]
    command += ["--example", str(flip.example_id), *(["--warehouse", warehouse] if warehouse else [])]
    return shlex.join(command)

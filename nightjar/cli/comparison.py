"""``nightjar compare`` and ``nightjar gate``: is a candidate worse than a baseline by more than is allowed?"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from nightjar.analysis import Comparison, Comparisons, Flip, Terms, Verdict, compare_all, gate, record_comparisons
from nightjar.cli.options import AlphaOption, ClusterOption, JsonOption, WarehouseOption, argument, option
from nightjar.cli.output import columns, labelled, print_json
from nightjar.cli.terminal import echo
from nightjar.core.files import there_is
from nightjar.core.text import harmless
from nightjar.reports import comparison as report
from nightjar.reports.gate import error_rate, gate_record, gate_report, gate_rows, left_out, reasons
from nightjar.reports.html import write_page
from nightjar.warehouse import Warehouse, resolve_warehouse

_EXIT_CODES = {"PASS": 0, "GO": 0, "REGRESSION": 1, "NO-GO": 1, "INCONCLUSIVE": 2}
_STYLES = ("bold green", "bold red", "bold yellow")

_OUTCOME_STYLES = {"PASS": "green", "BREACH": "red", "MISSING": "red", "INSUFFICIENT": "yellow"}
_GATE_COLUMNS = ("Benchmark", "Tier", "Outcome", "Change", "Interval", "Allowed", "Pairs")
"""The columns that fit on a terminal 80 characters wide. The other formats also show the means."""

_SIDE_HELP = "Run ID, run directory or other results, or MODEL@ENV."


def compare(
    baseline: Annotated[str, argument(_SIDE_HELP, metavar="BASELINE")],
    candidate: Annotated[str, argument(_SIDE_HELP, metavar="CANDIDATE")],
    max_drop: Annotated[float, option("How much worse the candidate's mean may be.", min=0, metavar="X")] = 0.05,
    alpha: AlphaOption = 0.05,
    metric: Annotated[str, option("'reward', 'correct' (pass@1), or the name of a metric.", metavar="NAME")] = "reward",
    baseline_metric: Annotated[
        str | None, option("Metric of the baseline, if it has another name there (default: --metric).", metavar="NAME")
    ] = None,
    direction: Annotated[Literal["higher", "lower"], option("Which values are better.")] = "higher",
    by: Annotated[
        str | None, option("Also compare each value of this field of info, or of 'task'.", metavar="FIELD")
    ] = None,
    cluster: ClusterOption = None,
    strict: Annotated[bool, option("Exit with 1 for REGRESSION, with 2 for INCONCLUSIVE.", "--strict")] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
    markdown: Annotated[bool, option("Print markdown.", "--markdown")] = False,
    html: Annotated[Path | None, option("Also write a page with the answers that changed.", dir_okay=False)] = None,
    record: Annotated[bool, option("Store the comparison in the warehouse, for SQL.", "--record")] = False,
) -> None:
    """Compare two runs on the examples that both have scored: is the candidate worse by more than --max-drop?

    A side is a run ID or the beginning of a run ID, a run directory, a folder, results of NeMo Evaluator, verifiers,
    Inspect or lm-eval, MODEL@ENV, MODEL@ENV@DAY or SUITE@DAY. If a side has several evaluations, the common evaluations
    are compared. Runs of different programs are compared on the examples with the same question and answer.

    The verdict is PASS if the whole interval of the difference is within --max-drop, and REGRESSION if the whole
    interval is beyond it. Otherwise it is INCONCLUSIVE, and the output says how many examples would decide.

    Example: nightjar compare 0a1b2c 5f4e3d --max-drop 0.02 --strict
    """
    if as_json and markdown:
        raise typer.BadParameter("--json and --markdown exclude each other")
    terms = Terms(max_drop, alpha, metric, direction, cluster, by, baseline_metric)
    where, excerpts = Warehouse(resolve_warehouse(warehouse)), report.SHOWN_FLIPS if html else 0
    compared = compare_all(baseline, candidate, terms, warehouse=where, excerpts=excerpts)
    if as_json:
        print_json(report.comparison_record(compared.found[0] if compared.is_single else compared))
    elif markdown:
        echo(report.comparisons_report(compared))
    elif compared.is_single:
        _print_comparison(compared.found[0], candidate, warehouse)
    else:
        _print_comparisons(compared)
    if html:
        write_page(html, report.comparison_page(compared))
        echo(f"Wrote {harmless(str(html))}", err=True)
    if record:
        record_comparisons(where, compared.found)
        echo('Recorded. Next: nightjar sql "FROM comparisons"', err=True)
    raise typer.Exit(_EXIT_CODES[compared.decision] if strict else 0)


def gate_command(
    sides: Annotated[
        list[str] | None,
        argument("Sides, as in 'nightjar compare'. The policy may name the baseline.", metavar="[BASELINE] CANDIDATE"),
    ] = None,
    *,
    policy: Annotated[
        Path, option("YAML file that says how much each benchmark may lose.", "--policy", "-p", metavar="FILE")
    ],
    output: Annotated[Path | None, option("Also write the verdict as JSON.", "--output", "-o", metavar="FILE")] = None,
    report_format: Annotated[
        Literal["text", "markdown", "json"],
        option("Output format: text, markdown or json.", "--format", metavar="FORM"),
    ] = "text",
    as_json: JsonOption = False,
    strict: Annotated[bool, option("Exit with 1 for NO-GO, with 2 for INCONCLUSIVE.", "--strict/--no-strict")] = True,
    verbose: Annotated[bool, option("Explain the outcome of every benchmark.", "--verbose")] = False,
    record: Annotated[bool, option("Store the verdict in the warehouse, for SQL.", "--record/--no-record")] = True,
    warehouse: WarehouseOption = None,
) -> None:
    """Decide by a policy whether a candidate may replace the baseline: GO, NO-GO or INCONCLUSIVE.

    GO means that every benchmark is within its allowed loss. NO-GO means that a benchmark has lost more, or that a
    benchmark in the policy has no run. INCONCLUSIVE means that the data does not decide. With --strict, only GO exits
    with 0.

    Example: nightjar gate --policy configs/gates/release.yaml 0a1b2c 5f4e3d
    """
    baseline, candidate = _sides(sides or [])
    place = Warehouse(resolve_warehouse(warehouse))
    found = gate(policy, baseline, candidate, warehouse=place, record=record)
    if output:
        output.write_text(json.dumps(gate_record(found), indent=2, ensure_ascii=False) + "\n", "utf-8")
    if as_json or report_format == "json":
        print_json(gate_record(found))
    elif report_format == "markdown":
        echo(gate_report(found))
    else:
        _print_verdict(found, is_verbose=verbose)
    if found.gate_id:
        query = f"FROM comparisons WHERE gate_id = '{found.gate_id}'"
        echo(f'Recorded. Next: nightjar sql "{query}"', err=True)
    raise typer.Exit(_EXIT_CODES[found.decision] if strict else 0)


def _sides(named: list[str]) -> tuple[str | None, str | None]:
    if len(named) > 2:  # noqa: PLR2004 - the two sides
        raise typer.BadParameter(f"Name a baseline and a candidate, found {len(named)}: {' '.join(named)}")
    baseline, candidate = [None, None, *named][-2:]
    return baseline, candidate


def _decision(decision: str, reason: str) -> Text:
    return Text.assemble((decision, _STYLES[_EXIT_CODES[decision]]), f"  {reason}")


def _print_comparisons(compared: Comparisons) -> None:
    console = Console()
    console.print(_decision(compared.decision, report.verdict(compared)))
    rows: list[list[str | Text]] = [
        [Text(decision, _STYLES[_EXIT_CODES[decision]]), *others]
        for decision, *others in report.evaluation_rows(compared)
    ]
    console.print(columns(("Decision", "Evaluation", "Difference", "Pairs"), rows))
    for line in report.one_sided(compared):
        console.print(Text(harmless(line)))
    echo("Next: --markdown or --html FILE shows each comparison in full", err=True)


def _print_comparison(found: Comparison, candidate: str, warehouse: str | None) -> None:
    console = Console()
    console.print(_decision(found.decision, found.reason))
    console.print(columns(("", "Baseline", "Candidate", "Change"), report.side_rows(found)))
    console.print(labelled(report.findings(found)))
    if found.categories:
        headings = (str(found.terms.by), "Pairs", "Baseline", "Candidate", "Difference")
        console.print(columns(headings, report.category_rows(found)))
    if flips := found.broken + found.fixed:
        echo(f"Next: {harmless(_next_command(found, flips[0], candidate, warehouse))}", err=True)


def _next_command(found: Comparison, flip: Flip, candidate: str, warehouse: str | None) -> str:
    """Returns the command that shows a flip, or a hint if the run is only in files of another program."""
    is_directory = there_is(Path(candidate, "metadata.json"))
    if not is_directory and (there_is(candidate) or "*" in candidate):
        return "--html FILE shows the answers that changed"
    command = ["nightjar", "eval", "samples", candidate if is_directory else found.candidate.run_id]
    command += ["--example", str(flip.example_id), *(["--warehouse", warehouse] if warehouse else [])]
    return shlex.join(command)


def _print_verdict(found: Verdict, *, is_verbose: bool) -> None:
    console = Console()
    console.print(_decision(found.decision, harmless(found.reason)))
    rows = [
        [Text(harmless(row[name]), style=_OUTCOME_STYLES.get(row[name], "")) for name in _GATE_COLUMNS]
        for row in gate_rows(found)
    ]
    if found.benchmarks:
        console.print(columns(_GATE_COLUMNS, rows, numbers=_GATE_COLUMNS[3:], folded=("Benchmark",)))
    for name, text in reasons(found, is_verbose=is_verbose):
        console.print(Text(harmless(f"{name}: {text}")))
    for text in filter(None, [left_out(found), error_rate(found)]):
        console.print(Text(harmless(text)))

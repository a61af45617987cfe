"""``nightjar eval report`` and ``eval stats``: the results of runs, with their uncertainty."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.console import Console

from nightjar.analysis import describe_run, selected
from nightjar.analysis.run_statistics import RunStatistics
from nightjar.cli.eval.hosted import run_elsewhere
from nightjar.cli.options import (
    AlphaOption,
    ClusterOption,
    JsonOption,
    PrefectUrlOption,
    WarehouseOption,
    argument,
    option,
)
from nightjar.cli.output import columns, labelled, print_json
from nightjar.cli.terminal import echo
from nightjar.core.files import there_is
from nightjar.core.text import counted
from nightjar.errors import ConfigError
from nightjar.evaluation.stored_runs import stored_run, stored_runs
from nightjar.reports.evaluation import RENDERERS, Report, gather
from nightjar.reports.formats import finite
from nightjar.reports.html import write_page
from nightjar.reports.statistics import mean, pass_rows, run_findings
from nightjar.view.exporting import render_html
from nightjar.warehouse import Warehouse, resolve_warehouse

ReportFormat: TypeAlias = Literal["markdown", "html", "csv", "json", "latex"]

_RUN_ID = re.compile(r"[\w.-]+")
_SUFFIXES: dict[ReportFormat, str] = {"markdown": "md", "html": "html", "csv": "csv", "json": "json", "latex": "tex"}
_RENDERERS: dict[str, Callable[[Report], str]] = {**RENDERERS, "html": render_html}


def eval_report(
    paths: Annotated[
        list[str] | None,
        argument("Run IDs, folders, MODEL@ENV or SUITE@DATE (default: the newest run).", metavar="[RUNS]..."),
    ] = None,
    *,
    form: Annotated[
        ReportFormat | None,
        option("Output format (default: that of the file's suffix, else markdown).", "--format", "-f"),
    ] = None,
    output: Annotated[Path | None, option("Write to this file, or into this folder.", "--output", "-o")] = None,
    all_formats: Annotated[bool, option("Write a report in each format into a folder.", "--all-formats")] = False,
    with_results: Annotated[
        bool, option("Include all rollouts, without texts, in the JSON.", "--with-results")
    ] = False,
    by: Annotated[str | None, option("Field of info, or 'task', whose values are categories.", metavar="FIELD")] = None,
    alpha: AlphaOption = 0.05,
    warehouse: WarehouseOption = None,
    prefect_url: PrefectUrlOption = None,
) -> None:
    """Write a report on runs: a table, then for each run intervals, plots, samples and failures.

    The HTML page is one file that opens offline. A report shows a few rollouts of each kind, and counts the others.

    Example: nightjar eval report outputs/evals -o report.html
    """
    form = form or _form_of(output)
    if with_results and not (all_formats or form == "json"):
        raise typer.BadParameter("--with-results requires --format json or --all-formats")
    asked, place = _located(paths or [_newest(warehouse)], warehouse, prefect_url)
    with selected(asked, place, each=True) as (where, found):
        run_ids = list(dict.fromkeys(run_id for run_ids in found for run_id in run_ids))
        report = gather(run_ids, where, by=by, alpha=alpha, results=with_results)
    if all_formats:
        for each, suffix in _SUFFIXES.items():
            _write(report, each, (output or Path()) / f"report.{suffix}")
    elif output:
        is_folder = output.is_dir() or not output.suffix
        _write(report, form, output / f"report.{_SUFFIXES[form]}" if is_folder else output)
    else:
        echo(_RENDERERS[form](report).encode("utf-8", "replace").decode(), nl=False)


def _form_of(output: Path | None) -> ReportFormat:
    """Returns the format that the suffix of a file names. Raises a usage error for a suffix of no format."""
    if output is None or output.is_dir() or not output.suffix:
        return "markdown"
    forms: dict[str, ReportFormat] = {f".{suffix}": form for form, suffix in _SUFFIXES.items()} | {
        ".htm": "html",
        ".txt": "markdown",
    }
    if (form := forms.get(output.suffix.lower())) is None:
        raise typer.BadParameter(f"No format has the suffix {output.suffix!r}. Name one: --format markdown")
    return form


def _located(asked: Sequence[str], warehouse: str | None, prefect_url: str | None) -> tuple[list[str], Warehouse]:
    """Returns names for ``selected``, and the warehouse. Runs that are not here are found where the server says."""
    ids = [one for one in asked if not warehouse and _RUN_ID.fullmatch(one) and not there_is(one)]
    found = {one: run_elsewhere(one, prefect_url) for one in ids if stored_run(one) is None}
    others = {one: run for one, run in found.items() if run is not None}
    places = {run.warehouse.location: run.warehouse for run in others.values() if run.path is None}
    if len(places) > 1:
        raise ConfigError(
            f"The runs are in several warehouses: {', '.join(places)}. Copy the runs here: "
            "nightjar eval pull RUN --from WAREHOUSE"
        )
    names = [str(others[one].path or others[one].run_id) if one in others else one for one in asked]
    return names, next(iter(places.values()), Warehouse(resolve_warehouse(warehouse)))


def _newest(warehouse: str | None) -> str:
    newest = stored_runs(warehouse=warehouse)[:1]
    if not newest:
        raise ConfigError("There is no run yet. Start one: nightjar eval run ENV -m MODEL")
    echo(f"The newest run: {newest[0].run_id}", err=True)
    return str(newest[0].path or newest[0].run_id)


def _write(report: Report, form: str, path: Path) -> None:
    write_page(path, _RENDERERS[form](report), makes_folder=True)
    echo(f"Wrote {path}: {counted(len(report.runs), 'run')}")


def eval_stats(
    run: Annotated[str, argument("Run ID, the beginning of a run ID, a run directory, or MODEL@ENV.", metavar="RUN")],
    by: Annotated[
        str | None, option("Show the mean for each value of this field of info, or of 'task'.", metavar="FIELD")
    ] = None,
    cluster: ClusterOption = None,
    alpha: AlphaOption = 0.05,
    warehouse: WarehouseOption = None,
    prefect_url: PrefectUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the results of a run with their uncertainty: intervals, pass@k, categories, spread.

    Example: nightjar eval stats 0a1b2c --by subject
    """
    asked, place = _located([run], warehouse, prefect_url)
    with selected(asked, place) as (where, [run_ids]):
        if len(run_ids) > 1:
            raise ConfigError(
                f"{run!r} matches {counted(len(run_ids), 'run')}: {', '.join(run_ids[:5])}. Name one of them"
            )
        found = describe_run(run_ids[0], warehouse=where, by=by, cluster=cluster, alpha=alpha)
    if as_json:
        print_json(finite(asdict(found)))
    else:
        _print_statistics(found, by)


def _print_statistics(found: RunStatistics, by: str | None) -> None:
    console = Console()
    console.print(labelled(run_findings(found)))
    if rows := pass_rows(found.pass_rates):
        console.print(columns(("k", "pass@k", "pass^k"), rows))
    if found.categories:
        means = [(name, f"{one.examples:,}", mean(one)) for name, one in found.categories.items()]
        console.print(columns((by or "", "examples", "avg reward"), means))

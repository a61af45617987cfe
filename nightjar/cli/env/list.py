"""``nightjar env list``, and ``nightjar list``: the environments that can be run.

nightjar env list --json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.data.built_in import data_of, whereabouts
from nightjar.cli.terminal import echo
from nightjar.packages import EnvironmentPackage, list_environments

_WIDE = 72
"""Columns of a terminal in which a description and a licence have room beside the names."""


def env_list(
    path: Annotated[
        Path, typer.Option("--path", "-p", help="Folder of the environments that are developed here.")
    ] = Path("environments"),
    source: Annotated[
        Literal["all", "builtin", "local", "installed", "lm-eval", "skills"],
        typer.Option(
            "--source",
            "-s",
            help="Those from there alone; lm-eval: tasks of EleutherAI's harness; skills: NeMo Skills.",
        ),
    ] = "all",
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where NeMo Skills has its datasets.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the environments: built-in, with whether their data is here, in ./environments, and installed.

    An installed package counts when it depends on nightjar-evals or verifiers and its module has a
    load_environment(); none of their code is run. Data is gated where its authors want consent first.

    Examples: nightjar env list | nightjar env list --json | nightjar list --source skills --data-dir datasets
    """
    if source == "lm-eval":
        _show_tasks_of_lm_eval(as_json=as_json)
        return
    if source == "skills":
        _show_skills(data_dir, as_json=as_json)
        return
    packages = [each for each in list_environments(path) if source in {"all", each.origin.replace("-", "")}]
    if as_json:
        echo(json.dumps([_record(package) for package in packages], indent=2))
        return
    benchmarks = [package for package in packages if package.origin == "built-in"]
    others = [package for package in packages if package.origin != "built-in"]
    if benchmarks:
        _print_benchmarks(benchmarks)
    if others or not benchmarks:
        _print_table(others)
    echo("Next: nightjar eval run NAME, data get NAME, env validate NAME, env init NAME", err=True)


def _show_tasks_of_lm_eval(*, as_json: bool) -> None:
    from nightjar.nemo.environments.lm_eval_task import list_tasks

    names = [f"lm-eval://{name}" for name in list_tasks()]
    echo(json.dumps([{"env_id": name} for name in names], indent=2) if as_json else "\n".join(names))
    echo("Run one: nightjar eval run lm-eval://TASK", err=True)


def _show_skills(data_dir: Path | None, *, as_json: bool) -> None:
    from nightjar.nemo.environments.skills_dataset import list_skills_benchmarks

    rows = [{"env_id": f"skills://{each['benchmark']}", **each} for each in list_skills_benchmarks(data_dir)]
    if as_json:
        echo(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    _add_names(table, "Environment", [row["env_id"] for row in rows])
    for column in ("Metrics", "Splits"):
        table.add_column(column)
    for row in rows:
        table.add_row(*(Text(cell) for cell in (row["env_id"], row["metrics_type"], ", ".join(row["splits"]))))
    Console().print(table)
    echo("Run one: nightjar eval run skills://NAME", err=True)


def _record(package: EnvironmentPackage) -> dict[str, Any]:
    return {
        "env_id": package.env_id,
        "version": package.version,
        "origin": package.origin,
        "location": package.location,
        "module": str(package.module.path),
        "description": package.description,
        "tags": list(package.tags),
        "distribution": package.distribution,
        "installed_version": package.installed_version,
        **(_data_record(package) if package.origin == "built-in" else {}),
    }


def _data_record(package: EnvironmentPackage) -> dict[str, Any]:
    data = data_of(package)
    return {
        "num_examples": data and data.num_examples,
        "data_license": data and data.license,
        "data": whereabouts(data),
        "data_files": [str(path) for path in data.paths()] if data else [],
    }


def _print_benchmarks(packages: Sequence[EnvironmentPackage]) -> None:
    console = Console()
    is_wide = console.width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    _add_names(table, "Benchmark", [package.env_id for package in packages])
    if is_wide:
        table.add_column("What it is", overflow="fold")
    table.add_column("Examples", no_wrap=True, justify="right")
    for column in ("Licence", "Data") if is_wide else ("Data",):
        table.add_column(column, no_wrap=True)
    for package in packages:
        data = data_of(package)
        size = f"{data.num_examples:,}" if data and data.num_examples else ""
        what = package.description.partition(": ")[2] or package.description
        cells = (package.env_id, what, size, data.license if data else "", whereabouts(data))
        table.add_row(*(Text(cell) for cell in (cells if is_wide else (cells[0], cells[2], cells[4]))))
    console.print(table)


def _print_table(packages: Sequence[EnvironmentPackage]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    _add_names(table, "Environment", [package.env_id for package in packages])
    table.add_column("Version", no_wrap=True)
    for column in ("From", "Description"):
        table.add_column(column, overflow="fold")
    for package in packages:
        cells = (package.env_id, package.version or "", _from(package), package.description)
        table.add_row(*(Text(cell) for cell in cells))
    Console().print(table)


def _add_names(table: Table, title: str, names: Sequence[str]) -> None:
    """Adds the column of what is typed: whole, however narrow the terminal is."""
    table.add_column(title, no_wrap=True, min_width=max(map(len, names), default=0))


def _from(package: EnvironmentPackage) -> str:
    if package.origin == "local" and package.installed_version is not None:
        return f"{package.location} (installed: {package.installed_version})"
    return package.location

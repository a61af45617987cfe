"""``nightjar eval list``: the runs that there are, the newest first.

nightjar eval list --env gsm8k --status failed
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.eval.arguments import OutputDirOption
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation.stored_runs import StoredRun, stored_runs
from nightjar.terminal import harmless

_FIELDS = ("run_id", "status", "env_id", "model", "avg_reward", "stderr", "scored", "failed", "rollouts", "started_at",
           "time_ms", "tags", "suite", "rescored_from")  # fmt: skip


def eval_list(
    env: Annotated[str | None, typer.Option(metavar="NAME", help="Runs of an environment; * is a wildcard.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="Runs of a model; * is a wildcard.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Such as running, completed, incomplete, failed or crashed.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="So many at the most.")] = 20,
    output_dir: OutputDirOption = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that there are, the newest first: on disk here, or in the warehouse.

    With --output-dir those of that folder alone, with --warehouse those of that warehouse alone.

    Examples: nightjar eval list --env gsm8k --status failed | nightjar eval list --model '*mini*' --json
    """
    wanted = {"env_id": env, "model": model, "status": status}
    found = [run for run in stored_runs(output_dir, warehouse) if _is_wanted(run, wanted)]
    if as_json:
        print_json([_record(run) for run in found[:limit]])
        return
    _print_table(found[:limit])
    if len(found) > limit:
        echo(f"The newest {limit} of {len(found)} runs; --limit shows more.", err=True)
    echo("Look at one: nightjar eval get RUN | nightjar eval samples RUN" if found else "There are no runs.", err=True)


def _is_wanted(run: StoredRun, wanted: dict[str, str | None]) -> bool:
    given = {name: pattern for name, pattern in wanted.items() if pattern is not None}
    return all(fnmatchcase(run.metadata.get(name) or "", pattern) for name, pattern in given.items())


def _record(run: StoredRun) -> dict[str, Any]:
    return {name: run.metadata.get(name) for name in _FIELDS} | {"path": run.path and str(run.path)}


def _print_table(runs: list[StoredRun]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("Run", "Started", "Environment | model", "Status"):
        table.add_column(column, no_wrap="|" not in column, overflow="fold")
    for column in ("Scored", "Reward"):
        table.add_column(column, no_wrap=True, justify="right")
    for run in runs:
        told = run.metadata
        reward = "–" if told.get("avg_reward") is None else f"{told['avg_reward']:.3f}"
        started = (told.get("started_at") or "")[5:16].replace("T", " ")
        scored = f"{told.get('scored', '?')}/{told['rollouts']}"
        cells = (run.run_id, started, f"{told['env_id']} | {told['model']}", told["status"], scored, reward)
        table.add_row(*(Text(harmless(cell)) for cell in cells))
    Console().print(table)

"""``nightjar eval list``: the runs that there are, the newest first.

nightjar eval list --env gsm8k --status failed
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nightjar.cli.eval.arguments import OutputDirOption, PrefectUrlOption, server_if_any
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.errors import ServiceError
from nightjar.evaluation.stored_runs import stored_runs
from nightjar.hosting.all_runs import STATUSES, ListedRun, joined
from nightjar.hosting.hosted_runs import HostedRun, hosted_runs
from nightjar.terminal import harmless

_WIDE = 100


def _known_status(status: str | None) -> str | None:
    if status is not None and not any(fnmatchcase(known, status.lower()) for known in STATUSES):
        raise typer.BadParameter(f"{status!r} is none of {', '.join(STATUSES)}")
    return status


def eval_list(
    env: Annotated[str | None, typer.Option(metavar="NAME", help="Runs of an environment; * is a wildcard.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="Runs of a model; * is a wildcard.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", callback=_known_status, help=f"One of: {', '.join(STATUSES)}; * is a wildcard."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="So many a page.")] = 20,
    page: Annotated[int, typer.Option("--page", "-p", min=1, metavar="N", help="Which page.")] = 1,
    output_dir: OutputDirOption = None,
    warehouse: WarehouseOption = None,
    prefect_url: PrefectUrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs that there are, the newest first: on Prefect's server, on disk here, or in the warehouse.

    HOSTED ones a worker does, all others are LOCAL. With --output-dir those of that folder alone, with --warehouse
    those of that warehouse alone.

    Examples: nightjar eval list --env gsm8k --status failed | nightjar eval list --model '*mini*' --json
    """
    hosted = [] if output_dir or warehouse else _hosted(prefect_url)
    wanted = {"env_id": env, "model": model}
    runs = joined(hosted, stored_runs(output_dir, warehouse))
    found = [run for run in runs if _is_wanted(run, wanted, status)]
    found.sort(key=lambda run: run.started_at, reverse=True)
    shown = found[(page - 1) * limit : page * limit]
    if as_json:
        print_json([run.record() for run in shown])
        return
    _print_table(shown)
    if len(found) > page * limit:
        echo(f"{len(shown)} of {len(found)} runs. More: --page {page + 1}", err=True)
    echo("Look at one: nightjar eval get RUN | nightjar eval samples RUN" if shown else "There are no runs.", err=True)


def _hosted(prefect_url: str | None) -> list[HostedRun]:
    """Returns the runs that a server knows; none where it does not answer, which is said."""
    try:
        api = server_if_any(prefect_url)
        return [*hosted_runs(api)] if api else []
    except ServiceError as error:
        echo(f"Without the runs on Prefect's server: {error}", err=True)
        return []


def _is_wanted(run: ListedRun, wanted: dict[str, str | None], status: str | None) -> bool:
    given = {name: pattern for name, pattern in wanted.items() if pattern is not None}
    states = {run.state.lower(), str(run.told("status"))}
    is_of_status = status is None or any(fnmatchcase(state, status.lower()) for state in states)
    return is_of_status and all(fnmatchcase(run.told(name) or "", pattern) for name, pattern in given.items())


def _print_table(runs: Sequence[ListedRun]) -> None:
    console = Console(markup=False, emoji=False)
    is_wide = console.width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("Run", *(["Started"] if is_wide else []), "Environment | model", "Status", "Type"):
        table.add_column(column, no_wrap="|" not in column, overflow="fold")
    for column in ("Examples", "Average", "Cost"):
        table.add_column(column, no_wrap=True, justify="right")
    for run in runs:
        table.add_row(*(Text(harmless(cell)) for cell in _cells(run, is_wide=is_wide)))
    console.print(table)


def _cells(run: ListedRun, *, is_wide: bool) -> list[str]:
    reward, cost = run.told("avg_reward"), run.stored.cost if run.stored else None
    examples = run.told("num_examples")
    return [
        run.run_id,
        *([run.started_at[5:16].replace("T", " ")] if is_wide else []),
        f"{run.told('env_id')} | {run.told('model')}",
        run.state,
        run.kind,
        f"{'all' if examples == -1 else examples} × {run.told('rollouts_per_example')}",
        "–" if reward is None else f"{reward:.3f}",
        "–" if cost is None else f"{cost:.2f}",
    ]

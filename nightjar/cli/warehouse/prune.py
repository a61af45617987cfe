"""``nightjar warehouse prune``: old runs out of the warehouse."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.filesize import decimal as size

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.location import open_store
from nightjar.cli.warehouse.output import number, print_json, print_records
from nightjar.warehouse import pruning
from nightjar.warehouse.pruning import Candidate, Criteria, candidates, parse_age


def prune(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="Runs that started so long ago: 12h, 180d, 26w, 2y."),
    ] = None,
    env: Annotated[str | None, typer.Option(help="Runs of this environment.")] = None,
    model: Annotated[str | None, typer.Option(help="Runs of this model.")] = None,
    status: Annotated[
        str | None,
        typer.Option(help="running, completed, incomplete, failed or cancelled runs."),
    ] = None,
    keep_last: Annotated[
        int,
        typer.Option(
            "--keep-last", min=0, help="Keep N runs of every environment and model: the newest, quick and failed last."
        ),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove runs from the warehouse. Their run directories stay; publishing one again brings it back.

    A run goes when it meets everything that is given.

    Example: nightjar warehouse prune --older-than 180d --keep-last 5 --dry-run
    """
    if not any((older_than, env, model, status, keep_last)):
        raise typer.BadParameter("say which runs are to go: --older-than, --env, --model, --status or --keep-last")
    before = datetime.now(UTC) - parse_age(older_than) if older_than else None
    store = open_store(warehouse)
    found = candidates(store, Criteria(before, env, model, status, keep_last))
    if found and not as_json:
        _print_candidates(found)
    is_wanted = bool(found) and not dry_run and _is_confirmed(len(found), yes=yes)
    if is_wanted:
        pruning.prune(store, [candidate.run_id for candidate in found])
    if as_json:
        print_json({"removed": is_wanted, "runs": found})
    else:
        _print_outcome(len(found), str(store), is_removed=is_wanted)


def _print_candidates(found: list[Candidate]) -> None:
    print_records([_record(one) for one in found])
    rollouts, total = sum(one.rollouts for one in found), sum(one.bytes for one in found)
    echo(f"{number(len(found), 'run')}, {number(rollouts, 'rollout')}, about {size(total)}")


def _record(one: Candidate) -> dict[str, Any]:
    shown = {"run_id": one.run_id, "env_id": one.env_id, "model": one.model, "status": one.status}
    return {**shown, "started": one.started_at.date(), "rollouts": one.rollouts}


def _is_confirmed(count: int, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter("without a terminal to ask on, say --yes (or --dry-run to see what would go)")
    return typer.confirm(f"Remove {count:,} runs from the warehouse?", err=True)


def _print_outcome(count: int, location: str, *, is_removed: bool) -> None:
    said = "Nothing was removed." if count else "No run meets that: nothing was removed."
    if is_removed:
        said = f"Removed {number(count, 'run')} from {location}. Back with: nightjar publish RUN_DIRECTORY"
    echo(said, err=True)

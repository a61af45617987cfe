"""``nightjar warehouse import``: results from elsewhere into the warehouse, many at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.location import open_store
from nightjar.cli.warehouse.output import number, print_json, print_records, progress_of
from nightjar.foreign import Imported, import_all
from nightjar.warehouse import Warehouse, resolve_warehouse


def import_results(
    paths: Annotated[list[Path], typer.Argument(help="Folders or files with results, at any depth.")],
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish results from elsewhere: run directories of Nightjar, results of verifiers, bundles of NeMo Evaluator.

    They stay where they are. Importing again changes nothing; one that cannot be read does not stop the others.

    Example: nightjar warehouse import ../old-project/outputs results/eval-20260101.json
    """
    store = open_store(warehouse, must_exist=False)
    store.check_writable()
    with progress_of("Importing") as progress:
        imported = list(import_all(Warehouse(resolve_warehouse(warehouse)), paths, progress))
    if as_json:
        print_json(imported)
    else:
        _print_imported(str(store), imported)
    if any(one.error for one in imported):
        raise typer.Exit(1)


def _print_imported(location: str, imported: list[Imported]) -> None:
    done = [one for one in imported if not one.error]
    names = ("run_id", "kind", "env_id", "model", "rollouts")
    if done:
        print_records([{**{name: getattr(one, name) for name in names}, "what": one.novelty} for one in done])
    for one in imported:
        if one.error:
            echo(f"Not imported: {one.path}: {one.error}", err=True)
    echo(f"{number(len(done), 'run')} in {location}. Next: nightjar sql 'FROM leaderboard'", err=True)

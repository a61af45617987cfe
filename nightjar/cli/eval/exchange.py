"""``nightjar eval push`` and ``pull``: runs to and from the Hugging Face Hub and other installations."""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.cli.options import JsonOption, OutputDirOption, RunArgument, WarehouseOption, argument, option
from nightjar.cli.output import print_json
from nightjar.cli.terminal import echo
from nightjar.evaluation.hub import push
from nightjar.evaluation.moving import Moved, pull_from, push_to
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.warehouse import Warehouse, resolve_warehouse


def eval_push(
    run: RunArgument,
    name: Annotated[
        str | None,
        option("owner/name (default: from environment and model).", "--hf-hub-dataset-name", "-D", metavar="NAME"),
    ] = None,
    is_public: Annotated[bool, option("Make a new dataset public.", "--public")] = False,
    to: Annotated[str | None, option("Folder or object store in place of the hub.", metavar="LOCATION")] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a run to the Hugging Face Hub as a private dataset, or with --to to a folder or object store.

    On the hub it has a dataset card, and pushing again replaces it; the token is HF_TOKEN, or that of 'hf auth login'.
    With --to the run is published there together with its run directory, so that others can resume it.

    Example: nightjar eval push 0a1b2c -D my-team/gsm8k-nightly
    """
    if to and (name or is_public):
        raise typer.BadParameter("--to excludes --hf-hub-dataset-name and --public, which apply to the hub")
    found = find_stored_run(run, warehouse=warehouse)
    if to:
        target = Warehouse(to)
        moved = push_to(found, target)
        _show_moved(moved, f"Pushed run {moved.run_id} to {target.location}", as_json)
        return
    url = push(found.directory, name, is_public=is_public)
    if as_json:
        print_json({"run_id": found.run_id, "url": url})
    else:
        echo(f"Pushed run {found.run_id}: {url}")


def eval_pull(
    run: Annotated[str, argument("ID of a run there, or the beginning of one.", metavar="RUN")],
    source: Annotated[str, option("Folder or object store to which it was pushed.", "--from", metavar="LOCATION")],
    output_dir: OutputDirOption = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pull a run that was pushed with 'eval push --to', or that is in another warehouse.

    The run is added to the warehouse here. If its run directory was pushed, it is added to ./outputs, and --resume can
    resume it. Pulling again changes nothing, unless the run has grown.

    Example: nightjar eval pull 0a1b2c --from s3://team/exchange
    """
    found = find_stored_run(run, warehouse=source)
    moved = pull_from(found, Warehouse(resolve_warehouse(warehouse)), output_dir)
    _show_moved(moved, f"Pulled run {moved.run_id} from {found.warehouse.location}", as_json)


def _show_moved(moved: Moved, done: str, as_json: bool) -> None:
    if as_json:
        print_json({"run_id": moved.run_id, "path": moved.path and str(moved.path), "is_new": moved.is_new})
        return
    echo(done if moved.is_new else f"{done}: it was there already, nothing was changed")
    if moved.path is None:
        echo("Only its results: its run directory is missing", err=True)

"""``nightjar eval push``: a run to the Hugging Face Hub, or to another installation.

HF_TOKEN=... nightjar eval push 0a1b2c3d4e5f -D my-team/gsm8k-nightly
nightjar eval push 0a1b2c3d4e5f --to s3://team/exchange
"""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.cli.eval.arguments import RunArgument
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation.hub import push
from nightjar.evaluation.moving import Moved, push_to
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.warehouse import Warehouse


def eval_push(
    run: RunArgument,
    name: Annotated[
        str | None,
        typer.Option(
            "--hf-hub-dataset-name",
            "-D",
            metavar="NAME",
            help="Name of the data set, such as owner/name (default: made of environment, model and numbers).",
        ),
    ] = None,
    is_public: Annotated[bool, typer.Option("--public", help="Let everybody read a data set that is new.")] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="LOCATION", help="A folder or object store, in the hub's place: for 'eval pull'."),
    ] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a run to the Hugging Face Hub as a private data set, or with --to to a folder or object store.

    To the hub it goes with a card, and pushing again replaces it; the token is HF_TOKEN, or that of 'hf auth login'.
    Elsewhere it is published, and its run directory goes with it, so that who pulls it can go on with it.

    Example: nightjar eval push 0a1b2c -D my-team/gsm8k-nightly
    """
    if to and (name or is_public):
        raise typer.BadParameter("--to excludes --hf-hub-dataset-name and --public, which are of the hub")
    found = find_stored_run(run, warehouse=warehouse)
    if to:
        target = Warehouse(to)
        moved = push_to(found, target)
        show_moved(moved, f"Pushed run {moved.run_id} to {target.location}", as_json)
        return
    url = push(found.directory, name, is_public=is_public)
    if as_json:
        print_json({"run_id": found.run_id, "url": url})
    else:
        echo(f"Pushed run {found.run_id}: {url}")


def show_moved(moved: Moved, done: str, as_json: bool) -> None:
    """Says that a run was pushed or pulled, and whether that changed anything."""
    if as_json:
        print_json({"run_id": moved.run_id, "path": moved.path and str(moved.path), "is_new": moved.is_new})
        return
    echo(done if moved.is_new else f"{done}: it was there already, nothing was changed")
    if moved.path is None:
        echo("Its results alone: its run directory is not there", err=True)

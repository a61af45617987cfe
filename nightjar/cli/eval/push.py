"""``nightjar eval push``: a run to the Hugging Face Hub.

HF_TOKEN=... nightjar eval push 0a1b2c3d4e5f -D my-team/gsm8k-nightly
"""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.cli.eval.arguments import RunArgument
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation.hub import push
from nightjar.evaluation.stored_runs import find_stored_run


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
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Push a run to the Hugging Face Hub, as a private data set with a card; pushing again replaces it.

    The token is HF_TOKEN, or that of 'hf auth login'.

    Example: nightjar eval push 0a1b2c -D my-team/gsm8k-nightly
    """
    found = find_stored_run(run, warehouse=warehouse)
    url = push(found.directory, name, is_public=is_public)
    if as_json:
        print_json({"run_id": found.run_id, "url": url})
    else:
        echo(f"Pushed run {found.run_id}: {url}")

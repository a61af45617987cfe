"""``nightjar eval pull``: a run from another installation.

nightjar eval pull 0a1b2c3d4e5f --from s3://team/exchange
"""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.cli.eval.arguments import OutputDirOption
from nightjar.cli.eval.push import show_moved
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.evaluation.moving import pull_from
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.warehouse import Warehouse, resolve_warehouse


def eval_pull(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of a run there, or how one begins.", show_default=False)
    ],
    source: Annotated[
        str, typer.Option("--from", metavar="LOCATION", help="A folder or object store that the run was pushed to.")
    ],
    output_dir: OutputDirOption = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pull a run that was pushed with 'eval push --to', or that is in a warehouse elsewhere.

    It is in the warehouse here then, to be looked at and compared, and where its run directory was pushed also in
    ./outputs, to be gone on with: --resume. Pulling again changes nothing, unless there is more of it.

    Example: nightjar eval pull 0a1b2c --from s3://team/exchange
    """
    found = find_stored_run(run, warehouse=source)
    moved = pull_from(found, Warehouse(resolve_warehouse(warehouse)), output_dir)
    show_moved(moved, f"Pulled run {moved.run_id} from {found.warehouse.location}", as_json)

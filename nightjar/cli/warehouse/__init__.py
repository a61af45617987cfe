"""``nightjar warehouse`` and ``nightjar publish``: what is done with published runs besides asking."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def warehouse_option(panel: str | None = None) -> Any:
    """Returns the option ``--warehouse``, in a panel of the help."""
    return typer.Option(
        "--warehouse",
        help="Folder or URL of the warehouse (default: NIGHTJAR_WAREHOUSE, else ./outputs/warehouse).",
        rich_help_panel=panel,
    )


WarehouseOption = Annotated[str | None, warehouse_option()]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

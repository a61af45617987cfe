"""``nightjar view``: the runs of a warehouse, in a browser.

nightjar view --port 4300
"""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from nightjar.cli.eval.view_config import command_of
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import WarehouseOption
from nightjar.errors import ConfigError
from nightjar.serving.launching import serve
from nightjar.warehouse import Warehouse, resolve_warehouse


def view(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen at; on any but this machine's own with a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port (default: 4280, or the next that is free).")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser.")] = False,
    warehouse: WarehouseOption = None,
) -> None:
    """Look at runs, examples and conversations in a browser, until Ctrl-C. It only reads.

    Example: nightjar view --port 4300 --no-browser
    """
    where = Warehouse(resolve_warehouse(warehouse))
    is_there = where.folder is None or (where.folder / "segments").is_dir()
    if where.folder is not None and where.folder.is_file():
        raise ConfigError(f"The warehouse {where.location} is a file; expected a folder.")

    def announce(address: str) -> None:
        missing = "" if is_there else ", which is not there yet: the first run that is published makes it,"
        echo(f"Warehouse {where.location}{missing} at {address}  (Ctrl-C ends it)")
        if not no_browser:
            webbrowser.open(address)

    serve(where, host, port, announce, command_of)

"""``nightjar view``: runs in a browser."""

from __future__ import annotations

import webbrowser
from functools import partial
from typing import Annotated
from urllib.parse import quote

from nightjar.analysis.selecting import selected
from nightjar.cli.eval.flags import command_of
from nightjar.cli.options import WarehouseOption, argument, option
from nightjar.cli.terminal import echo
from nightjar.core.text import counted
from nightjar.errors import ConfigError
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.reading.process import prepare


def view(
    paths: Annotated[
        list[str] | None,
        argument("Files or folders of results to show without importing them, or runs of the warehouse."),
    ] = None,
    host: Annotated[
        str, option("Address to listen on; a non-local address needs a token.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int | None, option("Port (default: 4280, or the next free port).", min=0, max=65535)] = None,
    no_browser: Annotated[bool, option("Do not open a browser.", "--no-browser")] = False,
    warehouse: WarehouseOption = None,
) -> None:
    """Browse runs, examples and conversations in a web browser, until Ctrl-C. Read-only.

    Shows the warehouse, or the results in files: of Nightjar, Inspect, lm-eval, verifiers or NeMo Evaluator. Files
    are not imported, and notes on their rollouts are not kept.

    Example: nightjar view --port 4300 --no-browser

    Example: nightjar view logs/2026-01-31T10-00-00+00-00_gsm8k_2Xb4.eval
    """
    prepare()
    from nightjar.view.server import serve

    where = Warehouse(resolve_warehouse(warehouse))
    if paths:
        with selected(paths, where, each=True) as (shown, found):
            run_ids = list(dict.fromkeys(run_id for run_ids in found for run_id in run_ids))
            what = f"Warehouse {where.location}" if shown is where else f"{counted(len(run_ids), 'run')}, not imported,"
            page = f"runs/{quote(run_ids[0], '')}" if len(run_ids) == 1 else ""
            serve(shown, host, port, partial(_announce, what, page, opens=not no_browser), command_of)
        return
    exists = where.folder is None or (where.folder / "segments").is_dir()
    if where.folder is not None and where.folder.is_file():
        raise ConfigError(f"The warehouse {where.location} is a file; expected a folder.")
    missing = "" if exists else ", which does not exist yet and is created when the first run is published,"
    what = f"Warehouse {where.location}{missing}"
    serve(where, host, port, partial(_announce, what, "", opens=not no_browser), command_of)


def _announce(what: str, page: str, address: str, *, opens: bool) -> None:
    """Prints and opens the address of a page. ``address`` is that of the first page, and may end with a token."""
    base, mark, token = address.partition("?")
    echo(f"{what} at {base}{page}{mark}{token}  (Ctrl-C ends it)")
    if opens:
        webbrowser.open(f"{base}{page}{mark}{token}")

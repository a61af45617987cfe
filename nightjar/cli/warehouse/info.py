"""``nightjar warehouse`` and ``nightjar warehouse info``: what there is."""

from __future__ import annotations

from typing import Any

import typer
from rich.filesize import decimal as size

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.location import open_store
from nightjar.cli.warehouse.output import number, print_json, print_labelled
from nightjar.warehouse.reading.reader import ask_once
from nightjar.warehouse.storage.store import Store

_SUMMARY = """
SELECT
    (SELECT count(*) FROM segments.runs) AS runs,
    (SELECT count(*) FROM segments.rollouts) AS rollouts,
    (
        SELECT {'run_id': run_id, 'env_id': env_id, 'model': model, 'status': status, 'started_at': started_at}
        FROM segments.runs ORDER BY started_at DESC NULLS LAST, run_id LIMIT 1
    ) AS newest_run
"""


def warehouse(context: typer.Context) -> None:
    """Look after the warehouse: where all runs are that were published. Without a command: what there is.

    Example: nightjar warehouse doctor
    """
    if context.invoked_subcommand is None:
        info()


def info(warehouse: WarehouseOption = None, as_json: JsonOption = False) -> None:
    """Show where the warehouse is, how much it holds, and the newest run.

    Example: nightjar warehouse info --json
    """
    show = print_json if as_json else _print_summary
    show(_summary(open_store(warehouse)))


def _summary(store: Store) -> dict[str, Any]:
    [found] = ask_once(store, _SUMMARY).records()
    catalog = store.catalog()
    return {
        "location": str(store),
        **found,
        "segments": len(catalog.live),
        "bytes": sum(segment.size for segment in catalog.needed.values()),
        "retired_bytes": sum(segment.size for segment in catalog.retired.values()),
    }


def _print_summary(record: dict[str, Any]) -> None:
    retired = f", and {size(record['retired_bytes'])} to be removed" if record["retired_bytes"] else ""
    lines = {
        "Warehouse": record["location"],
        "Holds": f"{number(record['runs'], 'run')}, {number(record['rollouts'], 'rollout')}",
        "Size": f"{size(record['bytes'])} in {number(record['segments'], 'segment')}{retired}",
    }
    if newest := record["newest_run"]:
        started = f", {newest['started_at']:%Y-%m-%d %H:%M} UTC" if newest["started_at"] else ""
        lines["Newest run"] = f"{newest['run_id']}: {newest['env_id']} | {newest['model']}, {newest['status']}{started}"
    print_labelled(lines)
    echo("Next:       nightjar sql 'FROM leaderboard' | nightjar warehouse doctor", err=True)

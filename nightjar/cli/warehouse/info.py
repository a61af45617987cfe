"""``nightjar warehouse``: what there is, and ``compact``; the other commands have files of their own.

nightjar warehouse
nightjar warehouse doctor
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightjar.cli.warehouse.location import JsonOption, WarehouseOption, open_store

if TYPE_CHECKING:
    from nightjar.warehouse.storage.segments import Catalog
    from nightjar.warehouse.storage.store import Store

_SUMMARY = """
SELECT
    (SELECT count(*) FROM segments.runs) AS runs,
    (SELECT count(*) FROM segments.rollouts) AS rollouts,
    run_id, env_id, model, status, started_at
FROM (SELECT 1) LEFT JOIN (FROM segments.runs ORDER BY started_at DESC NULLS LAST, run_id LIMIT 1) ON true
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
    from nightjar.cli.warehouse.output import print_json

    record = _summary(open_store(warehouse))
    if as_json:
        print_json(record)
    else:
        _print_summary(record)


def compact(
    now: Annotated[bool, typer.Option("--now", help="Remove at once what is replaced, not after an hour.")] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Merge all small segments, so that queries open fewer files. Publishing does what is needed by itself.

    Readers and publishers go on meanwhile. What is replaced stays for an hour, for those who are reading it, and is
    removed by the next publish after that.

    Example: nightjar warehouse compact
    """
    from nightjar.cli.warehouse.output import number, print_json, size
    from nightjar.warehouse.reading.snapshot import write_snapshot
    from nightjar.warehouse.writing.packing import RETIRED_FOR, pack_everything

    store = open_store(warehouse)
    before = _held(store.catalog())
    packs = pack_everything(store, timedelta(0) if now else RETIRED_FOR)
    write_snapshot(store)
    catalog = store.catalog()
    after, retired = _held(catalog), _retired_bytes(catalog)
    if as_json:
        print_json({"packs": packs, "before": before, "after": after, "retired_bytes": retired})
        return
    typer.echo(
        f"{number(before['segments'], 'segment')}, {size(before['bytes'])} → "
        f"{number(after['segments'], 'segment')}, {size(after['bytes'])}"
    )
    if retired:
        typer.echo(f"{size(retired)} of what was replaced are removed after an hour; at once: --now", err=True)


def _held(catalog: Catalog) -> dict[str, int]:
    needed = [segment.size for segment in catalog.needed.values()]
    return {"segments": len(needed), "bytes": sum(needed)}


def _retired_bytes(catalog: Catalog) -> int:
    return sum(segment.size for segment in catalog.retired.values())


def _summary(store: Store) -> dict[str, Any]:
    from nightjar.warehouse.reading.reader import ask_once

    found = ask_once(store, _SUMMARY)
    [(runs, rollouts, *newest)] = found.rows
    catalog = store.catalog()
    return {
        "location": str(store),
        "runs": runs,
        "rollouts": rollouts,
        "segments": len(catalog.live),
        "bytes": _held(catalog)["bytes"],
        "retired_bytes": _retired_bytes(catalog),
        "newest_run": dict(zip(found.columns[2:], newest, strict=True)) if runs else None,
    }


def _print_summary(record: dict[str, Any]) -> None:
    from nightjar.cli.warehouse.output import number, size

    retired = f", and {size(record['retired_bytes'])} to be removed" if record["retired_bytes"] else ""
    lines = {
        "Warehouse": record["location"],
        "Holds": f"{number(record['runs'], 'run')}, {number(record['rollouts'], 'rollout')}",
        "Size": f"{size(record['bytes'])} in {number(record['segments'], 'segment')}{retired}",
    }
    if newest := record["newest_run"]:
        started = f", {newest['started_at']:%Y-%m-%d %H:%M} UTC" if newest["started_at"] else ""
        lines["Newest run"] = f"{newest['run_id']}: {newest['env_id']} | {newest['model']}, {newest['status']}{started}"
    for label, text in lines.items():
        typer.echo(f"{label + ':':<12}{text}")
    typer.echo("Next:       nightjar sql 'FROM leaderboard' | nightjar warehouse doctor", err=True)

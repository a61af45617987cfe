"""``nightjar warehouse compact``: fewer, larger segments."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from rich.filesize import decimal as size

from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.location import open_store
from nightjar.cli.warehouse.output import number, print_json
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.segments import Catalog
from nightjar.warehouse.writing.packing import RETIRED_FOR, pack_everything


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
    store = open_store(warehouse)
    before = _held(store.catalog())
    packs = pack_everything(store, timedelta(0) if now else RETIRED_FOR)
    write_snapshot(store)
    catalog = store.catalog()
    after, retired = _held(catalog), sum(segment.size for segment in catalog.retired.values())
    if as_json:
        print_json({"packs": packs, "before": before, "after": after, "retired_bytes": retired})
        return
    echo(" → ".join(f"{number(one['segments'], 'segment')}, {size(one['bytes'])}" for one in (before, after)))
    if retired:
        echo(f"{size(retired)} of what was replaced are removed after an hour; at once: --now", err=True)


def _held(catalog: Catalog) -> dict[str, int]:
    return {"segments": len(catalog.needed), "bytes": sum(segment.size for segment in catalog.needed.values())}

"""Finds what does not belong in the folder of a warehouse: what dead processes left, and files of others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from nightjar.warehouse.doctor.findings import FIX, Finding, number
from nightjar.warehouse.doctor.mending import SET_ASIDE
from nightjar.warehouse.doctor.sizes import length
from nightjar.warehouse.reading.snapshot import NAME
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.prices import FILE_NAME as PRICES_NAME
from nightjar.warehouse.storage.segments import COMMIT, KINDS

_OWN_NAMES = {"segments", NAME, f"{NAME}.wal", PRICES_NAME, SET_ASIDE}
_OWN_PATTERNS = ("*.lock", "nightjar-*.duckdb", ".*")
_LEFTOVERS = (f".{NAME}.*.tmp", f".{PRICES_NAME}.*.tmp")
_LEFTOVER_AFTER_SECONDS = 60.0


def leftovers(folder: Folder) -> list[Path]:
    """Returns what processes that are dead left half written: segments, and files that were to replace others."""
    return [*folder.leftovers(), *_leftover_files(folder)]


def remove_leftovers(folder: Folder) -> None:
    """Removes what dead processes left half written."""
    folder.remove_leftovers()
    for path in _leftover_files(folder):
        path.unlink(missing_ok=True)


def stray_findings(folder: Folder) -> Iterator[Finding]:
    """Yields what does not belong there; it does no harm."""
    if left := leftovers(folder):
        what = f"{number(len(left), 'leftover')} of killed processes, {sum(map(length, left)) / 1e6:,.1f} MB"
        yield Finding(what, folder.command(FIX), needs_action=False)
    for path in _unknown(folder):
        yield Finding(f"{path} is not Nightjar's", "remove it, if nobody needs it", needs_action=False)


def _leftover_files(folder: Folder) -> list[Path]:
    old = time.time() - _LEFTOVER_AFTER_SECONDS
    return [path for pattern in _LEFTOVERS for path in sorted(folder.path.glob(pattern)) if path.lstat().st_mtime < old]


def _unknown(folder: Folder) -> Iterator[Path]:
    for path in sorted(folder.path.glob("*")):
        if path.name not in _OWN_NAMES and not any(path.match(pattern) for pattern in _OWN_PATTERNS):
            yield path
    known = {COMMIT, *(f"{kind}.parquet" for kind in KINDS)}
    for path in sorted(folder.segments_path.glob("*")):
        if not path.is_dir():
            yield path
        elif not path.name.startswith("."):
            yield from (file for file in sorted(path.glob("*")) if file.name not in known)

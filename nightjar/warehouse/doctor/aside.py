"""Looks at segments that were set aside: which runs were in them, and which of these are missing now?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import parquet
from nightjar.warehouse.doctor.findings import Finding, known_here, publish_command, rebuild_command
from nightjar.warehouse.doctor.mending import SET_ASIDE
from nightjar.warehouse.reading.damage import listed
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import COMMIT, Catalog, Segment

_QUERIES = {
    "runs": "SELECT run_id, version, run_dir",
    "rollouts": "SELECT DISTINCT run_id, NULL, NULL",
    "attempts": "SELECT DISTINCT run_id, NULL, NULL",
}
"""What the files of a segment tell of its runs, the one that tells most first."""

_DIGEST_CHARACTERS = 64
"""The name of a segment begins with the id of its run, or with a digest of so many characters."""

_FEW = 3


@dataclass(frozen=True)
class _Run:
    """A run that was in a segment; None for what is not known."""

    version: str | None = None
    run_dir: str | None = None


def aside_findings(folder: Folder, catalog: Catalog) -> Iterator[Finding]:
    """Yields which runs are missing, or older than they were, since a segment was set aside.

    Args:
        folder: the warehouse.
        catalog: what is in it and can be read.
    """
    for path in sorted((folder.path / SET_ASIDE).glob("*")):
        runs = _runs_of(path)
        missing = {run_id: run for run_id, run in runs.items() if run_id not in catalog.holders}
        older = {run_id: run for run_id, run in runs.items() if _is_older(run_id, run, catalog)}
        where = f"since a damaged segment was set aside: {path}"
        if not runs:
            remedy = f"{rebuild_command(folder, [])} with all run directories, then remove what was set aside"
            yield Finding(f"An unknown run is missing {where}", remedy)
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield Finding(f"{_begun(missing)} {verb} missing {where}", _remedy(folder, missing), runs=_names(missing))
        if older:
            verb = "counts" if len(older) == 1 else "count"
            what = f"{_begun(older)} {verb} as of an earlier moment {where}"
            yield Finding(what, f"{_remedy(folder, older)}; or accept it, and remove {path}", runs=_names(older))
        if runs and not missing and not older:
            what = f"{path} was damaged and set aside; its runs are all there again"
            yield Finding(what, "remove it", needs_action=False, runs=_names(runs))


def _is_older(run_id: str, run: _Run, catalog: Catalog) -> bool:
    holder = catalog.holders.get(run_id)
    return holder is not None and run.version is not None and holder.versions[run_id] < run.version


def _remedy(folder: Folder, runs: Mapping[str, _Run]) -> str:
    here = known_here(run.run_dir for run in runs.values())
    if len(here) == len(runs):
        return publish_command(folder, here)
    elsewhere = sorted(run.run_dir or f"of {run_id!r}" for run_id, run in runs.items() if run.run_dir not in here)
    named = ", ".join(elsewhere[:_FEW]) + (" …" if len(elsewhere) > _FEW else "")
    return (
        f"{publish_command(folder, here or ['RUN_DIR'])}{', and so' if here else ','} from wherever it is now the run "
        f"directory {named}; where there is none any more, remove what was set aside"
    )


def _runs_of(path: Path) -> dict[str, _Run]:
    described: dict[str, _Run] = {}
    with suppress(OSError, WarehouseError):
        versions = Segment.load(path.name, (path / COMMIT).read_bytes()).versions
        described = {run_id: _Run(version) for run_id, version in versions.items()}
    for kind in _QUERIES:
        if kind == "runs" or not described:
            described |= _read(path, kind)
    return described or _named(path.name)


def _read(path: Path, kind: str) -> dict[str, _Run]:
    with closing(duckdb.connect(":memory:")) as connection, suppress(duckdb.Error, UnicodeDecodeError):
        rows = connection.execute(f"{_QUERIES[kind]} FROM {parquet(path / f'{kind}.parquet')}").fetchall()
        return {run_id: _Run(version, run_dir) for run_id, version, run_dir in rows}
    return {}


def _named(segment_id: str) -> dict[str, _Run]:
    """The run that the name of a segment of one run begins with."""
    name, dot, version = segment_id.partition(".")
    is_digest = len(name) == _DIGEST_CHARACTERS and "%" not in name
    return {unquote(name): _Run(version.rstrip("-"))} if dot and not is_digest else {}


def _begun(runs: Mapping[str, _Run]) -> str:
    text = listed(runs)
    return text[0].upper() + text[1:]


def _names(runs: Mapping[str, _Run]) -> tuple[str, ...]:
    return tuple(sorted(runs))

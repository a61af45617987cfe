"""Segments that were set aside: the folder ``damaged``, and which runs were in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import parquet
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import COMMIT, Catalog, Segment, is_pack_id

SET_ASIDE = "damaged"
"""The folder, beside ``segments``, of segments that cannot be read."""

_DIGEST_CHARACTERS = 64
"""The name of a segment begins with the id of its run, or with a digest of so many characters."""


@dataclass(frozen=True)
class AsideRun:
    """A run that was in a segment; None for what is not known.

    Attributes:
        version: of its content.
        run_dir: where it was written.
    """

    version: str | None = None
    run_dir: str | None = None

    @property
    def is_here(self) -> bool:
        """Says whether its run directory is on this machine."""
        return self.run_dir is not None and (Path(self.run_dir) / "metadata.json").is_file()


def set_aside(folder: Folder, name: str) -> Path:
    """Moves a segment to where it does not count, and returns where that is.

    Raises:
        WarehouseError: it cannot be moved.
    """
    target = folder.path / SET_ASIDE / name
    try:
        target.parent.mkdir(exist_ok=True)
        while target.exists():
            target = target.with_name(f"{target.name}-")
        return (folder.segments_path / name).rename(target)
    except OSError as error:
        raise WarehouseError(f"Cannot set aside segment {name!r}: {error.strerror}") from error


def aside_segments(folder: Folder) -> Iterator[tuple[Path, dict[str, AsideRun]]]:
    """Yields each segment that was set aside, with its runs by their ids; none where nothing of it can be read."""
    for path in sorted((folder.path / SET_ASIDE).glob("*")):
        yield path, runs_in(path)


def runs_in(path: Path) -> dict[str, AsideRun]:
    """Returns the runs of a damaged segment: by its ``runs.parquet``, its ``segment.json``, or else by its name."""
    query = f"SELECT run_id, version, run_dir FROM {parquet(path / 'runs.parquet')}"  # noqa: S608 - own path, quoted
    with closing(duckdb.connect(":memory:")) as connection, suppress(duckdb.Error, UnicodeDecodeError):
        found = connection.execute(query).fetchall()
        return {run_id: AsideRun(version, run_dir) for run_id, version, run_dir in found}
    with suppress(OSError, WarehouseError):
        versions = Segment.load(path.name, (path / COMMIT).read_bytes()).versions
        return {run_id: AsideRun(version) for run_id, version in versions.items()}
    return _named(path.name)


def missing_from(catalog: Catalog, runs: Mapping[str, AsideRun]) -> dict[str, AsideRun]:
    """Returns the runs that a warehouse does not hold any more."""
    return {run_id: run for run_id, run in runs.items() if run_id not in catalog.holders}


def older_in(catalog: Catalog, runs: Mapping[str, AsideRun]) -> dict[str, AsideRun]:
    """Returns the runs that a warehouse holds as of an earlier moment."""
    held = {run_id: run for run_id, run in runs.items() if run_id in catalog.holders}
    return {
        run_id: run for run_id, run in held.items() if catalog.holders[run_id].versions[run_id] < (run.version or "")
    }


def run_dirs_of(runs: Iterable[AsideRun]) -> list[str]:
    """Returns the run directories that are on this machine, in order."""
    return sorted({str(run.run_dir) for run in runs if run.is_here})


def _named(segment_id: str) -> dict[str, AsideRun]:
    """The run that the name of a segment of one run begins with."""
    name, _, version = segment_id.partition(".")
    is_digest = len(name) == _DIGEST_CHARACTERS and "%" not in name
    return {} if is_digest or is_pack_id(segment_id) or not version else {unquote(name): AsideRun(version.rstrip("-"))}

"""Run directories by their ids, wherever they are below the folders that runs go to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nightjar.errors import RunDirectoryError
from nightjar.packages.names import ENVIRONMENTS_DIR
from nightjar.runs.directory import OUTPUT_DIR, RunDirectory


def run_directories(output_dir: Path | None = None) -> Iterator[RunDirectory]:
    """Yields the run directories of a folder; of ``./outputs`` and those of the environments here, where it is None."""
    folders = [output_dir] if output_dir else [OUTPUT_DIR, *ENVIRONMENTS_DIR.glob("*/outputs")]
    for folder in folders:
        for config in folder.glob("evals/*/*/config.json"):
            yield RunDirectory(config.parent)


def find_run(asked: str, output_dir: Path | None = None) -> RunDirectory:
    """Returns the run that somebody means.

    Args:
        asked: a run directory, the id of a run, or how one begins.
        output_dir: as for ``run_directories``.

    Raises:
        RunDirectoryError: there is none, or there are several.
    """
    if (Path(asked) / "config.json").is_file():
        return RunDirectory(Path(asked))
    found = [directory for directory in run_directories(output_dir) if directory.run_id.startswith(asked)]
    exact = [directory for directory in found if directory.run_id == asked]
    match exact or found:
        case [directory]:
            return directory
        case []:
            where = output_dir or OUTPUT_DIR
            raise RunDirectoryError(
                f"No run {asked!r} in {str(where)!r}. List those that are there: nightjar eval list"
            )
        case several:
            names = ", ".join(str(directory.path) for directory in several[:5])
            raise RunDirectoryError(
                f"{len(several)} runs begin with {asked!r}: {names}. Give more of the id, or the path"
            )

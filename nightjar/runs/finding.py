"""Run directories, wherever they are below the folders that runs go to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nightjar.packages.names import ENVIRONMENTS_DIR
from nightjar.runs.directory import OUTPUT_DIR, RunDirectory


def run_directories(output_dir: Path | None = None) -> Iterator[RunDirectory]:
    """Yields the run directories of a folder; of ``./outputs`` and those of the environments here, where it is None."""
    folders = [output_dir] if output_dir else [OUTPUT_DIR, *ENVIRONMENTS_DIR.glob("*/outputs")]
    for folder in folders:
        for metadata in folder.glob("evals/*/*/metadata.json"):
            yield RunDirectory(metadata.parent)

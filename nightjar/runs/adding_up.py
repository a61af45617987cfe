"""Adds a run up that no engine has open: one whose process is gone, or one that was joined from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.runs.directory import RunDirectory
from nightjar.runs.journal import Journal
from nightjar.runs.summary import Summary, summarize_rows


def add_up(directory: RunDirectory, metadata: Mapping[str, Any]) -> Summary:
    """Puts the results of a run in order, and returns what they come to.

    Args:
        directory: the run directory, which nobody else writes.
        metadata: says how many rollouts were asked for, and when one is correct.

    Raises:
        RunDirectoryError: a file is damaged, or cannot be written.
    """
    journal = Journal(directory, hash_of=str)  # nothing is appended
    journal.finish()
    return summarize_rows(
        journal.rows(),
        rollouts=metadata["rollouts"],
        rollouts_per_example=metadata["rollouts_per_example"],
        pass_threshold=metadata["pass_threshold"],
    )

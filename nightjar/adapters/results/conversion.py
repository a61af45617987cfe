"""Makes a run directory of what was found."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory

from nightjar.adapters.results import nemo, verifiers
from nightjar.adapters.results.discovery import FoundResults, Kind
from nightjar.adapters.results.results import ForeignRun
from nightjar.errors import RunDirectoryError, WarehouseError
from nightjar.runs import RunDirectory, summarize

_log = logging.getLogger(__name__)

_READERS: Mapping[Kind, Callable[[FoundResults, Path], ForeignRun]] = {"verifiers": verifiers.read, "nemo": nemo.read}


def convert(found: FoundResults, scratch: Path) -> Path:
    """Returns a run directory with what was found; the folder itself where Nightjar wrote it.

    It holds ``results.jsonl`` and ``metadata.json`` as docs/run-directory.md describes them; the other programs keep
    no ledger of attempts. The same results always give the same content and the same ``run_id``, wherever they lie;
    it stays the same when the other program resumes its run.

    Args:
        found: by ``find_results``.
        scratch: a folder that gets the run directory, named by its ``run_id``; one of that name is replaced.

    Raises:
        WarehouseError: the results are damaged or ambiguous, or cannot be read or written.
    """
    if found.kind == "nightjar":
        return found.path
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=scratch, prefix=".importing-") as unfinished:
            folder = Path(unfinished, "run")
            folder.mkdir()
            run = _READERS[found.kind](found, folder)
            RunDirectory(folder).write_metadata(_metadata(run, folder))
            target = scratch / run.run_id
            shutil.rmtree(target, ignore_errors=True)
            return folder.rename(target)
    except (OSError, RunDirectoryError) as error:
        raise WarehouseError(f"Cannot import {str(found.path)!r}: {error}") from error


def _metadata(run: ForeignRun, folder: Path) -> dict[str, object]:
    written = run.written
    num_examples = max(run.num_examples, written.examples)
    rollouts_per_example = max(run.rollouts_per_example, written.most_rollouts)
    summary = summarize(
        folder / "results.jsonl",
        rollouts=max(num_examples * (run.rollouts_per_example or written.most_rollouts), written.rollouts),
        rollouts_per_example=rollouts_per_example,
        pass_threshold=run.pass_threshold,
    )
    _compare_rewards(run)
    is_whole = written.examples == num_examples
    return {
        "run_id": run.run_id,
        "status": "completed" if summary.scored == summary.rollouts else "incomplete",
        **run.settings,
        "num_examples": num_examples,
        "rollouts_per_example": rollouts_per_example,
        "dataset_fingerprint": written.dataset_fingerprint if is_whole else None,
        "pass_threshold": run.pass_threshold,
        **summary.metadata(),
        "state_columns": run.state_columns,
        "flow_run_id": None,
        "original": run.original,
    }


def _compare_rewards(run: ForeignRun) -> None:
    """Warns where the other program's average is not that of its rows, failed ones counted as it counts them."""
    said, found = run.original_reward, run.written.original_reward
    if said is not None and found is not None and not isclose(said, found, abs_tol=run.reward_precision):
        _log.warning(
            "%s: the average reward was given as %s, but the rows give %s; Nightjar's aggregates follow the rows.",
            run.run_id, said, found,
        )  # fmt: skip

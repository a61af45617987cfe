"""``load_rescored``: the rubric as it is now over the rollouts of a run as they were, as a run of its own.

The new run directory is given the ledger of the source. So the same engine that resumes a run scores it: every rollout
is generated already, and the model is not asked.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nightjar.clients.unasked import UnaskedClient
from nightjar.engine import Run
from nightjar.errors import ConfigError, RunDirectoryError
from nightjar.evaluation.loading import Prepared, open_run, prepare
from nightjar.evaluation.saved_config import saved_config
from nightjar.messages import dump_messages, normalize_messages
from nightjar.parts import Part
from nightjar.rollout.records import Key
from nightjar.runs import RunDirectory, new_run_id, runs_folder
from nightjar.runs.jsonl import JsonLines, parse_line, replace_file, scan_lines, whole_lines

logger = logging.getLogger(__name__)


def load_rescored(
    source: RunDirectory,
    *,
    rubric: str | None = None,
    env_args: Mapping[str, Any] | None = None,
    max_concurrent_scoring: int | None = None,
    output_dir: Path | None = None,
    part: Part | None = None,
) -> Run:
    """Opens a new run in which all that was generated in another is to be scored.

    What failed there has failed here too; what the other has not come to is missing.

    Args:
        source: the run directory; nothing in it is changed.
        rubric: ``path/to/file.py:NAME``, see ``load_rubric``; None for the environment's.
        env_args: arguments of the environment that replace those of the source, one by one.
        max_concurrent_scoring: groups scored at once; None for as many as the source.
        output_dir: None for the folder of the source.
        part: scores only the examples of this part of the new run; None for all.

    Raises:
        ConfigError: the environment or the rubric cannot be loaded, or the examples are others now.
        RunError: the source cannot be read, or the new run directory cannot be written.
    """
    taken = {"num_examples": source.read_config()["selected_examples"]}
    config = saved_config(source).model_copy(update=taken)
    if config.part:
        raise ConfigError(f"Run {source.run_id!r} is a part: score the run again that the parts are joined into")
    changed = {"env_args": {**config.env_args, **(env_args or {})}, "save_to_hf_hub": False}
    changed |= {"part": str(part)} if part else {}
    limit = {"max_concurrent_scoring": max_concurrent_scoring} if max_concurrent_scoring else {}
    config = config.model_copy(update={**changed, **limit})
    prepared = prepare(config, rubric)
    _check_examples(source, prepared)
    folder = runs_folder(config.env_id, config.model, output_dir) if output_dir else source.path.parent
    directory = RunDirectory(folder / (str(part) if part else new_run_id()))
    _copy_rollouts(source, directory, prepared.selection.hashes if part else None)
    plan = replace(prepared.plan, asks_model=False)
    return open_run(replace(prepared, plan=plan), UnaskedClient(), directory, rescored_from=source.run_id)


def _check_examples(source: RunDirectory, prepared: Prepared) -> None:
    """Makes sure that what was generated is of the examples that there are now; an answer or info may have changed."""
    hashes, examples = (prepared.whole or prepared.selection).hashes, prepared.env.examples
    rows = (line.row for path in (source.attempts_path, source.results_path) for line in scan_lines(path))
    other = {row["example_id"] for row in rows if hashes.get(row["example_id"]) != row["example_hash"]}
    results = (line.row for line in scan_lines(source.results_path)) if other else ()
    asked = {row["example_id"]: row["prompt"] for row in results if row["example_id"] in other & hashes.keys()}
    mended = {each for each, prompt in asked.items() if _messages(examples[each]["prompt"]) == prompt}
    if lost := sorted(other - mended):
        raise ConfigError(
            f"{len(lost)} examples of run {source.run_id!r} are not what environment {prepared.config.env_id!r} has in "
            f"their place now, example {lost[0]} among them: the dataset has changed, and cannot be scored with"
        )
    if mended:
        logger.warning("%d examples have another answer or info now: they are scored with that", len(mended))


def _messages(prompt: Any) -> Any:
    return dump_messages(normalize_messages(prompt))


def _copy_rollouts(source: RunDirectory, directory: RunDirectory, taken: Container[int] | None) -> None:
    """Gives a new run the ledger of another, and of its results those whose generation failed.

    Args:
        source, directory: the other run and the new one.
        taken: the examples of a part of the run; None for all.

    Raises:
        RunDirectoryError: there is no ledger, or the new files cannot be written.
    """
    try:
        directory.path.mkdir(parents=True)
        shutil.copyfile(source.attempts_path, directory.attempts_path)
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}"
        raise RunDirectoryError(f"Run {source.run_id!r} cannot be scored again: {reason}") from error
    if taken is not None:
        _keep_alone(directory.attempts_path, taken)
    generated = {_key(line.row) for line in scan_lines(source.attempts_path) if line.row["error"] is None}
    failed = [line.row for line in scan_lines(source.results_path) if line.row["error"] is not None]
    results = JsonLines(directory.results_path)
    results.append(
        [row for row in failed if _key(row) not in generated and (taken is None or row["example_id"] in taken)]
    )
    results.close()


def _keep_alone(path: Path, taken: Container[int]) -> None:
    lines = ((line, parse_line(line, path, number)["example_id"]) for number, _, line in whole_lines(path))
    replace_file(path, (line for line, example_id in lines if example_id in taken))


def _key(row: Mapping[str, Any]) -> Key:
    return Key(row["example_id"], row["rollout_index"])

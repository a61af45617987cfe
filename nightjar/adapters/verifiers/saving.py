"""Results as files, in the words of verifiers: ``results.jsonl`` and ``metadata.json`` of a folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from nightjar.envs.datasets import hub_dataset_name, results_dataset
from nightjar.errors import RunDirectoryError
from nightjar.rollout.records import RolloutOutput
from nightjar.rollout.timing import RolloutTiming
from nightjar.runs.jsonl import JsonLines, replace_file, scan_lines

logger = logging.getLogger(__name__)

_RESULTS, _METADATA = "results.jsonl", "metadata.json"
_NOT_SAVED = ("path_to_save", "date")


def make_serializable(value: object) -> str | int | float | bool | list[Any] | dict[str, Any] | None:
    """Returns a value as JSON can hold it: models as objects, moments and paths as texts, the rest as ``repr``."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): make_serializable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [make_serializable(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Path) else repr(value)


def serialize_timing(timing: object) -> dict[str, Any]:
    """Returns how long a rollout took as results have it."""
    if isinstance(timing, RolloutTiming):
        return {name: timing[name] for name in ("generation_ms", "scoring_ms", "total_ms")}
    return dict(timing) if isinstance(timing, Mapping) else {}


def load_outputs(results_path: Path) -> list[RolloutOutput]:
    """Returns the rows of a folder with results; a torn last line is left out.

    Raises:
        ValueError: a line is damaged; it is named.
    """
    try:
        return [RolloutOutput(line.row) for line in scan_lines(Path(results_path) / _RESULTS)]
    except RunDirectoryError as error:
        raise ValueError(str(error)) from error


def validate_resume_metadata(
    results_path: Path, env_id: str, model: str, num_examples: int, rollouts_per_example: int
) -> None:
    """Makes sure that results are of an evaluation that may be gone on with as asked for.

    Raises:
        ValueError: they are not; the differing fields are named.
    """
    saved = orjson.loads((Path(results_path) / _METADATA).read_bytes())
    asked = {"env_id": env_id, "model": model, "rollouts_per_example": rollouts_per_example}
    differing = {name: (saved.get(name), value) for name, value in asked.items() if saved.get(name) != value}
    if 0 <= num_examples < saved.get("num_examples", 0):
        differing["num_examples"] = (saved["num_examples"], num_examples)
    if differing:
        fields = "; ".join(f"{name}: saved={old!r}, current={new!r}" for name, (old, new) in differing.items())
        raise ValueError(
            f"Cannot resume from {results_path}: metadata mismatch ({fields}). Use matching evaluation settings or "
            "provide a new results path."
        )


def save_outputs(outputs: Sequence[Mapping[str, Any]], results_path: Path, mode: str = "w") -> None:
    """Writes rows to the file of a folder with results, in the place of what is there or, with ``"a"``, after it."""
    path = Path(results_path) / _RESULTS
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == "w":
        replace_file(path, [])
    file = JsonLines(path)  # it cuts off a torn last line
    file.append([{name: make_serializable(value) for name, value in row.items()} for row in outputs])
    file.close()


def save_new_outputs(new_outputs: Sequence[Mapping[str, Any]], results_path: Path) -> None:
    """Writes rows after those that are there."""
    save_outputs(new_outputs, results_path, mode="a")


def sanitize_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata as they are saved: without the path and the date."""
    return {name: value for name, value in metadata.items() if name not in _NOT_SAVED}


def save_metadata(metadata: Mapping[str, Any], result_path: Path) -> None:
    """Replaces the metadata of a folder with results."""
    path = Path(result_path) / _METADATA
    path.parent.mkdir(parents=True, exist_ok=True)
    content = make_serializable(sanitize_metadata(metadata))
    replace_file(path, [orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)])


def get_hf_hub_dataset_name(outputs: Mapping[str, Any]) -> str:
    """Returns what results are called on the Hugging Face Hub."""
    return hub_dataset_name(outputs["metadata"])


def push_results_to_hf_hub(results: Mapping[str, Any], dataset_name: str | None = None) -> None:
    """Pushes the rows of results to the Hugging Face Hub as a private data set; logs where that fails."""
    name = dataset_name or get_hf_hub_dataset_name(results)
    try:
        results_dataset(results).push_to_hub(name, private=True)
    except Exception:  # results that were paid for are not lost over it
        logger.exception("The results are not on the Hugging Face Hub as %r", name)

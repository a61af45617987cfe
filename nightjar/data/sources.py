"""Where datasets come from: a file on this machine, or the Hugging Face Hub."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import orjson

from nightjar.errors import DatasetError, error_text

logger = logging.getLogger(__name__)


def read_jsonl(path: str | Path, required: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Reads a file with one JSON object a line; empty lines are passed over.

    Args:
        path: the file.
        required: columns that every line must have.

    Raises:
        DatasetError: the file is missing, empty or broken; file and line are named.

    Example:
        >>> _ = Path("sums.jsonl").write_text('{"question": "What is 2+2?", "answer": "4"}')
        >>> read_jsonl("sums.jsonl", required=("question", "answer"))
        [{'question': 'What is 2+2?', 'answer': '4'}]
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DatasetError(f"Cannot read dataset {str(path)!r}: {error.strerror}") from error
    rows = [
        _parse_row(line, f"{path}, line {number}", required)
        for number, line in enumerate(content.split(b"\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise DatasetError(f"Dataset {str(path)!r} is empty")
    return rows


def _parse_row(line: bytes, place: str, required: tuple[str, ...]) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DatasetError(f"{place}: not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise DatasetError(f"{place}: expected a JSON object, found {type(row).__name__}")
    missing = [column for column in required if column not in row]
    if missing:
        raise DatasetError(f"{place}: no {' and no '.join(map(repr, missing))}; found {sorted(row)}")
    return row


def load_hub_dataset(name: str, config: str | None, split: str) -> list[dict[str, Any]]:
    """Loads a split of a dataset from the Hugging Face Hub, the first time, and from Nightjar's cache from then on.

    A benchmark so stays the same, needs no network, and does not wait for ``datasets`` to be imported. To have it
    loaded anew, delete its file under ``cache_folder()``.

    Raises:
        DatasetError: it cannot be had; what the hub said is in the message.

    Example:
        >>> os.environ["NIGHTJAR_CACHE"] = "cache"
        >>> file = Path("cache/datasets/openai--gsm8k/main/test.jsonl")  # what the first call leaves behind
        >>> file.parent.mkdir(parents=True)
        >>> _ = file.write_text('{"question": "6 * 7?", "answer": "6 * 7 = 42 #### 42"}')
        >>> load_hub_dataset("openai/gsm8k", "main", "test")[0]["question"]
        '6 * 7?'
    """
    parts = [part.strip("/").replace("/", "--") for part in (name, config or "default", split)]
    path = cache_folder().joinpath("datasets", *parts).with_suffix(".jsonl")
    if path.is_file():
        return read_jsonl(path)
    rows = _load_from_hub(name, config, split)
    _keep(path, rows)
    return rows


def cache_folder() -> Path:
    """Returns the folder of what can be had again: ``NIGHTJAR_CACHE``, or else ``~/.cache/nightjar``.

    Example:
        >>> os.environ["NIGHTJAR_CACHE"] = "cache"
        >>> str(cache_folder())
        'cache'
    """
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "nightjar"
    return Path(os.environ.get("NIGHTJAR_CACHE", default)).expanduser()


def _load_from_hub(name: str, config: str | None, split: str) -> list[dict[str, Any]]:
    import datasets

    try:
        rows: list[dict[str, Any]] = datasets.load_dataset(name, config, split=split).to_list()
    except Exception as error:
        reason = error_text(error).strip().partition("\n")[0]
        raise DatasetError(
            f"Cannot load dataset {name!r}, split {split!r}, from the Hugging Face Hub: {reason}. "
            'Where there is no network, name a file: -a \'{"dataset": "path.jsonl"}\''
        ) from error
    return rows


def _keep(path: Path, rows: list[dict[str, Any]]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
        beside.replace(path)
    except (OSError, TypeError) as error:
        beside.unlink(missing_ok=True)
        logger.warning("Cannot keep the dataset in %s: %s", path, error)

"""Datasets of the Hugging Face Hub, kept on this machine."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import orjson

from nightjar.data.files import read_rows
from nightjar.errors import DatasetError, error_text

logger = logging.getLogger(__name__)


def load_hub_dataset(name: str, config: str | None, split: str, data_file: str | None = None) -> list[dict[str, Any]]:
    """Loads a split of a dataset from the Hugging Face Hub, the first time, and from Nightjar's cache from then on.

    A benchmark so stays the same, needs no network, and does not wait for ``datasets`` to be imported. To have it
    loaded anew, delete its file under ``cache_folder()``.

    Args:
        name: of the repository.
        config: a part of it.
        split: of that part.
        data_file: the file to take, where a repository has several that differ; ``split`` says nothing then.

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
    path = hub_dataset_path(name, config, data_file or split)
    if path.is_file():
        return read_rows(path)
    rows = _load_from_hub(name, config, split, data_file)
    try:
        _keep(path, rows)
    except (OSError, TypeError) as error:
        logger.warning("Cannot keep the dataset in %s: %s", path, error)
    return rows


def fetch_hub_dataset(name: str, config: str | None, split: str, data_file: str | None = None) -> Path:
    """Loads a split from the hub, also where it is kept already, and keeps it; returns where.

    Args:
        name, config, split, data_file: as for ``load_hub_dataset``.

    Raises:
        DatasetError: it cannot be had, or cannot be kept.
    """
    path = hub_dataset_path(name, config, data_file or split)
    try:
        _make_folder(path.parent)
        _keep(path, _load_from_hub(name, config, split, data_file))
    except (OSError, TypeError) as error:
        where = "free some space, or name another folder in NIGHTJAR_CACHE"
        raise DatasetError(f"Cannot keep dataset {name!r} in {str(path)!r}: {error_text(error)}; {where}") from error
    return path


def hub_dataset_path(name: str, config: str | None, split: str) -> Path:
    """Returns where a split, or a file, of a dataset is kept; whether it is there or not."""
    parts = [part.strip("/").replace("/", "--") for part in (name, config or "default", split.removesuffix(".jsonl"))]
    folder = cache_folder().joinpath("datasets", *parts[:-1])
    return folder / f"{parts[-1]}.jsonl"


def cache_folder() -> Path:
    """Returns the folder of what can be had again: ``NIGHTJAR_CACHE``, or else ``~/.cache/nightjar``.

    Example:
        >>> os.environ["NIGHTJAR_CACHE"] = "cache"
        >>> str(cache_folder())
        'cache'
    """
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "nightjar"
    return Path(os.environ.get("NIGHTJAR_CACHE", default)).expanduser()


def _load_from_hub(name: str, config: str | None, split: str, data_file: str | None) -> list[dict[str, Any]]:
    import datasets

    what = {"data_files": data_file, "split": "train"} if data_file else {"split": split}
    try:
        rows: list[dict[str, Any]] = datasets.load_dataset(name, config, **what).to_list()
    except Exception as error:
        reason = error_text(error).strip().partition("\n")[0]
        raise DatasetError(
            f"Cannot load dataset {name!r}, split {data_file or split!r}, from the Hugging Face Hub: {reason}"
        ) from error
    return rows


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def _keep(path: Path, rows: list[dict[str, Any]]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        beside.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise

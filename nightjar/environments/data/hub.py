"""Loads datasets of the Hugging Face Hub. Rows are cached on this machine.

The library ``datasets`` reads every dataset of the hub. Where it is not installed, rows come from the Parquet files
that the hub makes of a dataset (https://huggingface.co/docs/dataset-viewer/parquet).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from nightjar.core.extras import installation
from nightjar.core.files import cache_folder, replacing
from nightjar.core.secrecy import error_text
from nightjar.environments.data.parquet import read_parquet
from nightjar.environments.data.sources import read_rows
from nightjar.errors import DatasetError

logger = logging.getLogger(__name__)

_PARQUET_BRANCH = "refs/convert/parquet"
"""The branch of a dataset's repository with the Parquet files ``CONFIG/SPLIT/0000.parquet`` and so on."""


def load_hub_dataset(name: str, config: str | None, split: str, data_file: str | None = None) -> list[dict[str, Any]]:
    """Loads a split, or a ``data_file``, from the Hugging Face Hub. Later calls use Nightjar's cache.

    The cache keeps a benchmark unchanged; reading it needs no network and no import of ``datasets``, which is slow. To
    download a split again, delete its file in ``cache_folder()``. Raises ``DatasetError``.

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
    rows = _download(name, config, split, data_file)
    try:
        _keep(path, rows)
    except (OSError, TypeError) as error:
        logger.warning("Cannot store the dataset in %s: %s", path, error)
    return rows


def fetch_hub_dataset(name: str, config: str | None, split: str, data_file: str | None = None) -> Path:
    """Downloads a split into the cache, replacing an existing copy, and returns its path."""
    path = hub_dataset_path(name, config, data_file or split)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):  # found before the download
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))
        _keep(path, _download(name, config, split, data_file))
    except (OSError, TypeError) as error:
        where = "free some space, or set NIGHTJAR_CACHE to another folder"
        raise DatasetError(f"Cannot store dataset {name!r} in {str(path)!r}: {error_text(error)}; {where}") from error
    return path


def hub_dataset_path(name: str, config: str | None, split: str) -> Path:
    """Returns the cache file of a split or a ``data_file``, whether it exists or not."""
    parts = [part.strip("/").replace("/", "--") for part in (name, config or "default", split.removesuffix(".jsonl"))]
    folder = cache_folder().joinpath("datasets", *parts[:-1])
    return folder / f"{parts[-1]}.jsonl"


def _download(name: str, config: str | None, split: str, data_file: str | None) -> list[dict[str, Any]]:
    try:
        import datasets  # noqa: F401
    except ModuleNotFoundError:
        load, advice = _from_files, f". For other datasets: {installation('datasets')}"
    else:
        load, advice = _from_library, ""
    try:
        return load(name, config, split, data_file)
    except Exception as error:
        reason = error_text(error).strip().partition("\n")[0].rstrip(".")
        raise DatasetError(
            f"Cannot load dataset {name!r}, split {data_file or split!r}, from the Hugging Face Hub: {reason}{advice}"
        ) from error


def _from_library(name: str, config: str | None, split: str, data_file: str | None) -> list[dict[str, Any]]:
    import datasets

    what = {"data_files": data_file, "split": "train"} if data_file else {"split": split}
    rows: list[dict[str, Any]] = datasets.load_dataset(name, config, **what).to_list()
    return rows


def _from_files(name: str, config: str | None, split: str, data_file: str | None) -> list[dict[str, Any]]:
    import huggingface_hub

    hub = huggingface_hub.HfApi(library_name="nightjar")
    if data_file:
        return read_rows(hub.hf_hub_download(name, data_file, repo_type="dataset"))
    files = hub.list_repo_files(name, repo_type="dataset", revision=_PARQUET_BRANCH)
    found = _parquet_files(files, config, split)
    return read_parquet(
        [Path(hub.hf_hub_download(name, file, repo_type="dataset", revision=_PARQUET_BRANCH)) for file in found]
    )


def _parquet_files(files: Sequence[str], config: str | None, split: str) -> list[str]:
    """Returns the files of a split. If ``config`` is None, the dataset must have one configuration, or a default."""
    parts = sorted(file.split("/") for file in files if file.endswith(".parquet") and file.count("/") > 1)
    configs = list(dict.fromkeys(part[0] for part in parts))
    chosen = config or ("default" if len(configs) > 1 else next(iter(configs), ""))
    if chosen not in configs:
        raise DatasetError(f"no Parquet files of configuration {chosen!r}, found {', '.join(configs) or 'none'}")
    splits = dict.fromkeys(part[1] for part in parts if part[0] == chosen)
    if split not in splits:
        raise DatasetError(f"no Parquet files of split {split!r}, found {', '.join(splits)}")
    return ["/".join(part) for part in parts if part[:2] == [chosen, split]]


def _keep(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))

"""Shards: parts of an evaluation that are done apart, and put together again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from nightjar.errors import ConfigError
from nightjar.foreign.discovery import bundles_in
from nightjar.foreign.reading import read_lines, read_object
from nightjar.nemo.engine.artifacts import Bundle, Result, bundle_of, write_all
from nightjar.nemo.observability.types import StepRecord

_OF_SHARDS = ("shard_range", "n_shards", "shard")
_VARIABLES = (("NEL_SHARD_IDX", "NEL_TOTAL_SHARDS"), ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"))


def get_shard_range(total: int, shard_idx: int, total_shards: int) -> tuple[int, int]:
    """Returns the first problem of a shard and the one after its last; the first shards have one more where needed.

    Raises:
        ConfigError: there is no such shard.

    Example:
        >>> [get_shard_range(10, shard, 3) for shard in range(3)]
        [(0, 4), (4, 7), (7, 10)]
    """
    if not 0 <= shard_idx < total_shards:
        raise ConfigError(f"There is no shard {shard_idx} of {total_shards}: they are counted from 0")
    size, more = divmod(total, total_shards)
    start = shard_idx * size + min(shard_idx, more)
    return start, start + size + (shard_idx < more)


def shard_from_env() -> tuple[int, int] | None:
    """Returns which shard of how many the environment's variables say this is; None where they do not.

    Raises:
        ConfigError: they say no numbers.
    """
    for names in _VARIABLES:
        values = [os.environ.get(name) for name in names]
        if None not in values:
            try:
                return int(values[0] or ""), int(values[1] or "")
            except ValueError:
                raise ConfigError(f"{' and '.join(names)} must be numbers, found {values}") from None
    return None


def merge_results(shard_dirs: Sequence[str | Path], output_dir: str | Path, n_repeats: int | None = None) -> Bundle:
    """Puts shards together that ``write_all`` wrote, and writes the bundle of the whole; the shards stay as they are.

    It is that of the evaluation that was not cut, but for times: all numbers are made of all rows anew. Of a step that
    several shards have, the last counts.

    Args:
        shard_dirs: a folder each.
        output_dir: gets the files of the whole.
        n_repeats: how often each problem was asked; what the shards say unless given.

    Raises:
        ConfigError: there are none, or they are of several benchmarks or settings.
        WarehouseError: a file is damaged.
    """
    folders = [Path(folder) for folder in shard_dirs]
    bundles = [read_object(path) for folder in folders for path in bundles_in(folder)]
    if not bundles or len(bundles) != len(folders):
        raise ConfigError(f"Expected one bundle in each of {len(folders)} folders, found {len(bundles)}")
    told = [(bundle["benchmark"]["name"], bundle["benchmark"]["repeats"], _settings(bundle)) for bundle in bundles]
    if any(one != told[0] for one in told):
        raise ConfigError("The shards are of several benchmarks or settings, and make no whole")
    results: dict[tuple[int, int], Result] = {_key(row): row for folder in folders for row in _rows(folder, "results")}
    steps = {_key(row): StepRecord.from_dict(row) for folder in folders for row in _rows(folder, "trajectories")}
    stats = [orjson.loads((folder / "runtime_stats.json").read_bytes()) for folder in folders]
    bundle = bundle_of(
        told[0][0],
        [results[key] for key in sorted(results)],
        [steps[key] for key in sorted(steps)],
        told[0][2],
        repeats=n_repeats or told[0][1],
        elapsed_seconds=max(one["elapsed_seconds"] for one in stats),
        retries=sum(one["total_retries"] for one in stats),
    )
    write_all(bundle, output_dir)
    return bundle


def _settings(bundle: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in bundle["config"].items() if name not in _OF_SHARDS}


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    return (line.content for line in read_lines(folder / f"{name}.jsonl"))


def _key(row: dict[str, Any]) -> tuple[int, int]:
    return row["problem_idx"], row["repeat"]

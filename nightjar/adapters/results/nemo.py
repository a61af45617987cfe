"""Reads what NeMo Evaluator writes: a bundle ``eval-*.json``, and ``results.jsonl`` beside it, also in shards.

The rows are told about in :mod:`~nightjar.adapters.results.nemo_rows`. Of the configuration, what shapes sampling
becomes ``sampling_args`` and what is left ``env_args``, without secrets; the scores of the bundle, or of those of all
shards that were not merged, are kept under ``original``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar.adapters.results.discovery import BUNDLES, FoundResults, is_bundle
from nightjar.adapters.results.nemo_rows import RowReader
from nightjar.adapters.results.redaction import public_url, without_secrets
from nightjar.adapters.results.results import ForeignRun, ResultsWriter, digest
from nightjar.adapters.results.values import (
    integer,
    iso_time,
    mapping,
    milliseconds,
    number,
    read_object,
    text,
    unix_time,
)
from nightjar.errors import WarehouseError

_SAMPLING = ("temperature", "max_tokens", "top_p", "seed", "stop", "frequency_penalty", "presence_penalty")
_NOT_ARGUMENTS = frozenset(
    {
        "base_url", "benchmark", "max_problems", "model", "model_url", "n_shards", "repeats", "shard", "shard_range",
        "shuffle", *_SAMPLING,
    }
)  # fmt: skip
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_ID_CHARACTERS = 8
_THRESHOLD = 0.5
_REWARD_PRECISION = 1e-4
"""Of scores, which are rounded to four digits."""


def read(found: FoundResults, folder: Path) -> ForeignRun:
    """Writes the results of a run into a folder, and returns what its bundle says.

    The run is identified by the bundle's ``run_id``, which names a second and a benchmark, and by a digest of it, the
    exact time and the configuration, since several runs may begin in one second; of a run in shards by those of all
    shards, merged or not.

    Raises:
        WarehouseError: a file is damaged or cannot be read, or more than one bundle lies beside the results.
    """
    own = [] if found.shards and not _bundles(found.path) else [_bundle(found.path)]
    parts = [_bundle(path) for path in found.shards] or own
    bundle = (own or parts)[0]
    folders = [found.path.parent if found.path.is_file() else found.path] if own else found.shards
    rows = RowReader()
    with ResultsWriter(folder) as writer:
        for source in folders:
            rows.write_rows(source, writer)
        written = writer.finish()
    config = mapping(bundle.get("config"))
    benchmark = mapping(bundle.get("benchmark"))
    return ForeignRun(
        run_id=_run_id(parts),
        settings=_settings(bundle, parts),
        num_examples=_num_examples(config, is_whole=bool(found.shards) or "n_shards" in config),
        rollouts_per_example=integer(benchmark.get("repeats")) or 0,
        pass_threshold=_THRESHOLD,
        state_columns=list(rows.state_columns),
        original={"program": "nemo-evaluator", "bundles": [_account(part) for part in own or parts]},
        original_reward=_average(mapping(benchmark.get("scores"))) if len(own or parts) == 1 else None,
        reward_precision=_REWARD_PRECISION,
        written=written,
    )


def _account(bundle: Mapping[str, Any]) -> dict[str, Any]:
    return {name: bundle.get(name) for name in ("run_id", "config_hash", "timestamp", "n_results", "benchmark")}


def _bundles(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob(BUNDLES)) if is_bundle(path)]


def _bundle(path: Path) -> dict[str, Any]:
    """Reads a bundle, or the only one of a folder."""
    folder, named = (path.parent, {path}) if path.is_file() else (path, set[Path]())
    bundles = sorted(named.union(_bundles(folder)))
    if len(bundles) > 1:
        names = ", ".join(bundle.name for bundle in bundles)
        raise WarehouseError(
            f"{str(folder)!r} holds {len(bundles)} bundles beside one results.jsonl: {names}. "
            "Its rows are of the run that was written last: move the other bundles elsewhere."
        )
    if not bundles:
        raise WarehouseError(f"No bundle {BUNDLES} of NeMo Evaluator in {str(folder)!r}")
    bundle = read_object(bundles[0])
    if not (text(bundle.get("run_id")) and text(mapping(bundle.get("benchmark")).get("name"))):
        raise WarehouseError(f"{bundles[0]} is no bundle of NeMo Evaluator: it names no run_id or no benchmark")
    return bundle


def _run_id(parts: Sequence[Mapping[str, Any]]) -> str:
    identity = [[part.get(name) for name in ("run_id", "timestamp", "config_hash")] for part in parts]
    name = _UNSAFE.sub("_", parts[0]["run_id"]).strip(".")
    return f"{name}-{digest(identity)[:_ID_CHARACTERS]}"


def _settings(bundle: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    config = mapping(bundle.get("config"))
    url = text(config.get("base_url")) or text(config.get("model_url")) or ""
    elapsed = [_elapsed_seconds(part) for part in parts]
    ends = [unix_time(part.get("timestamp")) for part in parts]
    starts = [end - (seconds or 0) for end, seconds in zip(ends, elapsed, strict=True) if end is not None]
    started_at = iso_time(min(starts, default=None))
    date, _, clock = (started_at or "").partition("T")
    return {
        "env_id": mapping(bundle.get("benchmark"))["name"],
        "env_args": without_secrets(
            {name: value for name, value in config.items() if _is_argument(name) and value is not None}
        ),
        "extra_env_kwargs": {},
        "env_version": None,
        "model": text(config.get("model")),
        "base_url": public_url(url).removesuffix("/").removesuffix("/chat/completions") or None,
        "sampling_args": without_secrets({k: config[k] for k in _SAMPLING if config.get(k) is not None}),
        "date": date or None,
        "time": clock.partition(".")[0] or None,
        "time_ms": milliseconds(max((seconds for seconds in elapsed if seconds is not None), default=None)),
        "started_at": started_at,
        "finished_at": iso_time(max((end for end in ends if end is not None), default=None)),
        "version_info": {"sdk_version": bundle.get("sdk_version")},
    }


def _is_argument(name: str) -> bool:
    return name not in _NOT_ARGUMENTS and not name.startswith("_")


def _elapsed_seconds(bundle: Mapping[str, Any]) -> float | None:
    scores = mapping(mapping(bundle.get("benchmark")).get("scores"))
    return number(mapping(scores.get("runtime")).get("elapsed_seconds"))


def _num_examples(config: Mapping[str, Any], *, is_whole: bool) -> int:
    """Returns how many problems were asked for; of one shard alone, those of the shard; 0 where nothing tells."""
    limits = config.get("shard_range")
    if not is_whole and isinstance(limits, list) and len(limits) == 2:  # noqa: PLR2004 - first, and one past the last
        return max(0, (integer(limits[1]) or 0) - (integer(limits[0]) or 0))
    return integer(mapping(config.get("shuffle")).get("ds_effective_size")) or 0


def _average(scores: Mapping[str, Any]) -> float | None:
    found = (
        mapping(scores.get("mean_reward")).get("value"),
        mapping(scores.get("summary")).get("mean"),
        mapping(scores.get("pass@1")).get("value"),
    )
    return next((value for value in map(number, found) if value is not None), None)

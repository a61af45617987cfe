"""Merges shards: bundles or run directories of parts of an evaluation that ran separately."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from nightjar.clients.providers import is_loopback
from nightjar.compat.nemo.engine.artifacts import SHARD_FIELDS, Bundle, Result, bundle_of, write_all
from nightjar.compat.nemo.engine.results import bundle_of_run, step_of_result
from nightjar.compat.nemo.observability import ModelResponse, StepRecord
from nightjar.core.failures import category_of_answer, category_of_error
from nightjar.engine.runs import RunDirectory
from nightjar.errors import ConfigError, WarehouseError
from nightjar.importers.discovery import FoundResults, bundles_in
from nightjar.importers.nemo import broken
from nightjar.importers.reading import Lenient, Line, Object, read_lines, read_object

Place = tuple[int, int]
_VARIABLES = (("NEL_SHARD_IDX", "NEL_TOTAL_SHARDS"), ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"))


class _Row(Lenient):
    """A row; missing and invalid fields have their defaults, and unknown fields are kept."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    problem_idx: int | None = None
    repeat: int = Field(0, ge=0)
    reward: float | None = None
    scorer_rewards: Object
    prompt: str = ""
    model_response: str | None = None
    extracted_answer: Any = None
    expected_answer: Any = ""
    scoring_details: Object
    metadata: Object
    tokens: int | None = None
    latency_ms: float | None = None


@dataclass(frozen=True)
class EvaluationPart:
    """A part of an evaluation. An unknown range or number is None.

    ``config`` omits the settings of the shard; the settings in ``compared`` must be the same in all parts.
    ``shard_range`` is the first problem and the last plus 1. ``results`` and ``steps`` have (problem, repeat) as keys.
    """

    path: Path
    benchmark: str
    repeats: int | None
    config: Mapping[str, Any]
    compared: Mapping[str, Any]
    shard_range: Place | None = None
    shards: int | None = None
    results: Mapping[Place, Result] = field(default_factory=dict)
    steps: Mapping[Place, StepRecord] = field(default_factory=dict)
    elapsed_seconds: float = 0.0
    retries: int = 0


def part_of(found: FoundResults) -> EvaluationPart:
    if found.kind == "nightjar":
        return _of_run_directory(found.path)
    folder = found.path.parent if found.path.is_file() else found.path
    return shard_part(folder)


def shard_part(folder: Path) -> EvaluationPart:
    bundles = bundles_in(folder)
    if len(bundles) != 1:
        raise ConfigError(f"Expected one bundle (eval-*.json) in {str(folder)!r}, found {len(bundles)}")
    bundle = read_object(bundles[0])
    config = bundle.get("config") or {}
    results = {_place(row): row for row in map(_row, read_lines(folder / "results.jsonl"))}
    recorded = _recorded_steps(folder)
    stats = _stats(folder, bundle)
    shard_range = config.get("shard_range")
    return EvaluationPart(
        path=folder,
        benchmark=str(bundle["benchmark"].get("name") or config.get("benchmark") or ""),
        repeats=bundle["benchmark"].get("repeats"),
        config={name: value for name, value in config.items() if name not in SHARD_FIELDS},
        compared=_compared(config),
        shard_range=(shard_range[0], shard_range[1]) if shard_range else None,
        shards=config.get("n_shards"),
        results=results,
        steps={place: _step(row, recorded.get(place)) for place, row in results.items()},
        elapsed_seconds=stats.get("elapsed_seconds") or 0.0,
        retries=stats.get("total_retries") or 0,
    )


def _of_run_directory(path: Path) -> EvaluationPart:
    metadata, bundle = RunDirectory(path).read_metadata(), bundle_of_run(path)
    artifacts = bundle["_artifacts"]
    config = {name: value for name, value in bundle["config"].items() if name != "max_problems"}  # that of the part
    env = {name: metadata.get(name) for name in ("env_args", "env_version")}
    return EvaluationPart(
        path=path,
        benchmark=bundle["benchmark"]["name"],
        repeats=bundle["benchmark"]["repeats"],
        config=config,
        compared=_compared({**config, **env}),
        results={_place(row): row for row in bundle["_results"]},
        steps={(step.problem_idx, step.repeat): step for step in artifacts.steps},
        elapsed_seconds=artifacts.runtime.elapsed_seconds,
        retries=artifacts.runtime.total_retries,
    )


def _compared(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that results depend on, without the port of a local proxy."""
    settings = {name: value for name, value in config.items() if name not in (*SHARD_FIELDS, "output_dir")}
    if is_loopback(str(settings.get("model_url") or "")):
        del settings["model_url"]
    return settings


def _row(line: Line) -> Result:
    row = _Row.model_validate(line.content).model_dump()
    if row["problem_idx"] is None:
        raise WarehouseError(f"{line.place} is not a row: problem_idx must be an integer")
    return {**row, "reward": None} if broken(row["scoring_details"]) else row


def _step(row: Result, recorded: StepRecord | None) -> StepRecord:
    step = recorded or step_of_result(row, model_response=_response(row), model_ms=row["latency_ms"] or 0.0)
    step.reward = row["reward"]
    if error := broken(row["scoring_details"]):
        category = step.failure_category or row["scoring_details"].get("error_category")
        step.failure_category = category or category_of_error(error)
    elif step.reward is not None:
        answer = row["model_response"] or ""
        step.failure_category = category_of_answer(step.reward, answer, row["scoring_details"], row["extracted_answer"])
    return step


def _response(row: Result) -> ModelResponse | None:
    if row["model_response"] is None or row["reward"] is None:
        return None
    return ModelResponse(row["model_response"], total_tokens=row["tokens"], latency_ms=row["latency_ms"] or 0.0)


def _stats(folder: Path, bundle: Mapping[str, Any]) -> Mapping[str, Any]:
    path = folder / "runtime_stats.json"
    if path.is_file():
        return read_object(path)
    runtime: Mapping[str, Any] = (bundle["benchmark"].get("scores") or {}).get("runtime") or {}
    return runtime


def _recorded_steps(folder: Path) -> dict[Place, StepRecord]:
    path = folder / "trajectories.jsonl"
    steps = (line.content for line in read_lines(path)) if path.is_file() else ()
    return {_place(step): StepRecord.from_dict(step) for step in steps}


def _place(row: Mapping[str, Any]) -> Place:
    return row.get("problem_idx", -1), row.get("repeat") or 0


def get_shard_range(total: int, shard_idx: int, total_shards: int) -> tuple[int, int]:
    """Returns the first problem of a shard and the last plus 1. The first shards have one problem more if needed.

    Example:
        >>> [get_shard_range(10, shard, 3) for shard in range(3)]
        [(0, 4), (4, 7), (7, 10)]
    """
    if not 0 <= shard_idx < total_shards:
        raise ConfigError(f"There is no shard {shard_idx} of {total_shards}: shards are counted from 0")
    size, more = divmod(total, total_shards)
    start = shard_idx * size + min(shard_idx, more)
    return start, start + size + (shard_idx < more)


def shard_from_env() -> tuple[int, int] | None:
    for names in _VARIABLES:
        values = [os.environ.get(name) for name in names]
        if None not in values:
            try:
                return int(values[0] or ""), int(values[1] or "")
            except ValueError:
                raise ConfigError(f"{' and '.join(names)} must be numbers, found {values}") from None
    return None


def merge_results(shard_dirs: Sequence[str | Path], output_dir: str | Path, n_repeats: int | None = None) -> Bundle:
    """Merges shards that ``write_all`` wrote, and writes the merged bundle. Raises ``ConfigError`` if settings differ.

    All numbers are computed from all rows, so only times differ from an undivided evaluation. If several
    shards contain a step, the last one counts.
    """
    bundle = merged([shard_part(Path(folder)) for folder in shard_dirs], n_repeats)
    write_all(bundle, output_dir)
    return bundle


def merged(parts: Sequence[EvaluationPart], n_repeats: int | None = None) -> Bundle:
    if not parts:
        raise ConfigError("There are no shards to merge")
    if differing := differences(parts):
        fields = "; ".join(f"{name}: {', '.join(map(repr, values))}" for name, values in differing.items())
        raise ConfigError(f"Cannot merge parts of different benchmarks or settings. They differ in {fields}")
    results: dict[tuple[int, int], Result] = {}
    steps: dict[tuple[int, int], StepRecord] = {}
    for part in parts:
        results |= part.results
        steps |= part.steps
    known = n_repeats or next((part.repeats for part in parts if part.repeats), None)
    repeats = known or max((repeat + 1 for _, repeat in results), default=1)
    return bundle_of(
        parts[0].benchmark,
        [results[place] for place in sorted(results)],
        [steps[place] for place in sorted(steps)],
        dict(parts[0].config),
        repeats=repeats,
        elapsed_seconds=max(part.elapsed_seconds for part in parts),
        retries=sum(part.retries for part in parts),
        expected_rows=repeats * len(_problems(parts, {problem for problem, _ in results})),
    )


def differences(parts: Sequence[EvaluationPart]) -> dict[str, list[Any]]:
    settings = [{"benchmark": part.benchmark, "repeats": part.repeats, **part.compared} for part in parts]
    found = {}
    for name in dict.fromkeys(name for each in settings for name in each):
        values = [each.get(name) for each in settings]
        found[name] = [value for place, value in enumerate(values) if value not in values[:place]]
    return {name: values for name, values in found.items() if len(values) > 1}


def missing_steps(parts: Sequence[EvaluationPart], bundle: Bundle) -> list[str]:
    """Describes missing shards, duplicate shards and missing steps, one sentence each.

    Problems are numbered without gaps from the lowest first problem of a shard, unless they were shuffled.
    """
    sentences = []
    shards = _count(parts)
    if (gone := shards - len({part.shard_range or part.path for part in parts})) > 0:
        sentences.append(f"{gone} of {shards} shards {'is' if gone == 1 else 'are'} missing")
        sentences += _twice(parts)
    repeats, rows = bundle["benchmark"]["repeats"], {(row["problem_idx"], row["repeat"]) for row in bundle["_results"]}
    problems = _problems(parts, {problem for problem, _ in rows})
    missing = [problem for problem in problems for repeat in range(repeats) if (problem, repeat) not in rows]
    if missing:
        count, expected = len(missing), len(problems) * repeats
        lacking = ", ".join(_ranges(dict.fromkeys(missing)))
        sentences.append(f"{count:,} of {expected:,} steps are missing (problems {lacking})")
    return sentences


def _ranges(numbers: Iterable[int]) -> Iterator[str]:
    """Yields sorted numbers as ranges: 1-3, 7, 9-10."""
    for _, together in groupby(enumerate(numbers), key=lambda one: one[1] - one[0]):
        found = [number for _, number in together]
        yield f"{found[0]}-{found[-1]}" if len(found) > 1 else str(found[0])


def _count(parts: Sequence[EvaluationPart]) -> int:
    return max((part.shards for part in parts if part.shards), default=0)


def _twice(parts: Sequence[EvaluationPart]) -> Iterator[str]:
    places: dict[tuple[int, int], list[str]] = {}
    for part in parts:
        if part.shard_range:
            places.setdefault(part.shard_range, []).append(str(part.path))
    for (start, end), paths in places.items():
        if len(paths) > 1:
            yield f"{' and '.join(paths)} are the same shard (problems {'-'.join(map(str, (start, end - 1)))})"


def _problems(parts: Sequence[EvaluationPart], seen: set[int]) -> list[int]:
    if parts[0].config.get("shuffle_seed") is not None or not seen:
        return sorted(seen)
    spans = {part.shard_range for part in parts if part.shard_range}
    first = 0 if _count(parts) else min([*seen, *(start for start, _ in spans)])
    return [*range(first, max([max(seen) + 1, *(end for _, end in spans), _total(spans, _count(parts))]))]


def _total(spans: set[tuple[int, int]], shards: int) -> int:
    """Returns the highest number of problems that gives shards with these ranges; 0 if no number fits."""
    longest = max((end - start for start, end in spans), default=0)
    totals = range(shards * longest, shards * max(0, longest - 1), -1)
    return next((n for n in totals if spans <= {get_shard_range(n, shard, shards) for shard in range(shards)}), 0)

"""Builds bundles, the files in which NeMo Evaluator stores results, from the rows of an evaluation."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import orjson

import nightjar
from nightjar.compat.nemo.metrics import (
    category_breakdown,
    finite_ends,
    scorer_scores,
    scores_of,
    scoring_details_breakdown,
    summary_stats,
)
from nightjar.compat.nemo.observability import (
    CostEstimate,
    FailureRecord,
    FailureReport,
    ModelResponse,
    RunArtifacts,
    RuntimeStats,
    StepRecord,
)
from nightjar.core.failures import MODEL_CATEGORIES
from nightjar.core.files import replace_file
from nightjar.engine.runs.jsonl import encoded
from nightjar.errors import ConfigError, WarehouseError
from nightjar.importers.discovery import bundles_in, find_results
from nightjar.importers.reading import read_object
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.warehouse import model_price

Bundle: TypeAlias = dict[str, Any]
Result: TypeAlias = dict[str, Any]

SHARD_FIELDS = ("shard_range", "n_shards", "shard")
"""Fields of a config that differ between the shards of an evaluation."""
_NOT_HASHED = frozenset({"output_dir", *SHARD_FIELDS})
_BESIDE_A_BUNDLE = ("results.jsonl", "trajectories.jsonl", "runtime_stats.json", "failure_analysis.json")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_EXEMPLARS = 3
_MILLION, _THOUSAND = 1e6, 1e3


def build_artifact_bundle(
    benchmark_name: str,
    results: list[Result],
    metrics: dict[str, Any],
    config: dict[str, Any],
    categories: Mapping[str, Any] | None = None,
    *,
    repeats: int | None = None,
) -> Bundle:
    now = datetime.now(UTC)
    counted = max((row["repeat"] + 1 for row in results), default=0)
    hashed = {name: value for name, value in config.items() if name not in _NOT_HASHED}
    digest = hashlib.sha256(json.dumps(hashed, sort_keys=True, default=str).encode()).hexdigest()
    benchmark: dict[str, Any] = {
        "name": benchmark_name,
        "samples": len({row["problem_idx"] for row in results}),
        "repeats": counted if repeats is None else repeats,
        "scores": metrics,
    }
    return {
        "run_id": f"eval-{now:%Y%m%dT%H%M%S%fZ}-{_UNSAFE.sub('_', benchmark_name)}",
        "config_hash": f"sha256:{digest}",
        "sdk_version": f"nightjar {nightjar.__version__}",
        "timestamp": now.isoformat(),
        "config": config,
        "benchmark": {**benchmark, **({"categories": dict(categories)} if categories else {})},
        "n_results": len(results),
    }


def bundle_of(
    benchmark_name: str,
    results: list[Result],
    steps: Sequence[StepRecord],
    config: dict[str, Any],
    *,
    repeats: int,
    elapsed_seconds: float,
    retries: int,
    expected_rows: int | None = None,
) -> Bundle:
    """Returns the bundle of rows and steps, sorted by problem and repeat. The bundle's numbers depend only on the rows.

    ``retries`` counts repeated requests and further attempts. ``expected_rows`` is None if no rows are missing.
    """
    artifacts = RunArtifacts(list(steps), _runtime(steps, elapsed_seconds, retries), _failures(steps))
    scores = scores_of(results, repeats, expected_rows) | scorer_scores(results)
    scores |= {
        "summary": summary_stats([row["reward"] for row in results]),
        "breakdowns": _breakdowns(results),
        "runtime": artifacts.runtime.to_dict(),
        "failures": artifacts.failures.to_dict(),
    }
    categories = {
        each.category: {"mean_reward": each.mean_reward, "n": each.n_samples, **finite_ends(each.ci)}
        for each in category_breakdown(results)
    }
    bundle = build_artifact_bundle(benchmark_name, results, scores, config, categories, repeats=repeats)
    return {**bundle, "_results": results, "_artifacts": artifacts}


def _breakdowns(results: Sequence[Result]) -> dict[str, list[dict[str, Any]]]:
    found = scoring_details_breakdown(results)
    return {
        name: [
            {"group": one.category, "n": one.n_samples, "mean_reward": one.mean_reward, **finite_ends(one.ci)}
            for one in groups
        ]
        for name, groups in found.items()
    }


def _runtime(steps: Sequence[StepRecord], elapsed_seconds: float, retries: int) -> RuntimeStats:
    responses = [step.model_response for step in steps if step.model_response is not None]
    latencies = [step.model_ms for step in steps if step.model_response is not None]
    p50, p90, p99 = np.percentile(latencies, [50, 90, 99]) if latencies else (0.0, 0.0, 0.0)
    tokens = sum(map(_tokens, responses))
    return RuntimeStats(
        total_steps=len(steps),
        total_tokens=tokens,
        total_prompt_tokens=sum(response.prompt_tokens or 0 for response in responses),
        total_completion_tokens=sum(response.completion_tokens or 0 for response in responses),
        total_reasoning_tokens=sum(response.reasoning_tokens or 0 for response in responses),
        elapsed_seconds=round(elapsed_seconds, 3),
        latency_p50_ms=round(float(p50), 3),
        latency_p90_ms=round(float(p90), 3),
        latency_p99_ms=round(float(p99), 3),
        tokens_per_second=round(tokens / elapsed_seconds, 3) if elapsed_seconds else 0.0,
        steps_per_second=round(len(steps) / elapsed_seconds, 3) if elapsed_seconds else 0.0,
        model_errors=sum(step.failure_category in MODEL_CATEGORIES and step.reward is None for step in steps),
        total_retries=retries,
        finish_reason_counts=dict(
            sorted(Counter(each.finish_reason for each in responses if each.finish_reason).items())
        ),
    )


def _tokens(response: ModelResponse) -> int:
    return response.total_tokens or (response.prompt_tokens or 0) + (response.completion_tokens or 0)


def _failures(steps: Sequence[StepRecord]) -> FailureReport:
    report = FailureReport(total_steps=len(steps))
    for step in steps:
        if step.failure_category is None:
            continue
        report.total_failures += 1
        record = report.categories.setdefault(step.failure_category, FailureRecord(step.failure_category))
        record.count += 1
        record.percentage = record.count / len(steps)
        if record.count <= _EXEMPLARS:
            record.exemplars.append(_exemplar(step))
    return report


def _exemplar(step: StepRecord) -> dict[str, Any]:
    return {
        "problem_idx": step.problem_idx,
        "repeat": step.repeat,
        "prompt": step.prompt,
        "response": step.model_response.content if step.model_response else None,
        "expected_answer": step.expected_answer,
        "error": step.model_error,
    }


def cost_of(model: str, stats: RuntimeStats) -> CostEstimate | None:
    """Returns the cost of an evaluation's tokens; None if the warehouse has no price of the model."""
    prices = model_price(Warehouse(resolve_warehouse()), model)
    if prices is None:
        return None
    prompt_cost = stats.total_prompt_tokens * prices[0] / _MILLION
    completion_cost = stats.total_completion_tokens * prices[1] / _MILLION
    return CostEstimate(
        prompt_cost=prompt_cost,
        completion_cost=completion_cost,
        total_cost=prompt_cost + completion_cost,
        price_per_1k_prompt=prices[0] / _THOUSAND,
        price_per_1k_completion=prices[1] / _THOUSAND,
    )


def write_all(bundle: Bundle, output_dir: str | Path) -> dict[str, Path]:
    """Writes the files of a bundle and returns their paths.

    Moves the files of another run into a subfolder that is named after that run.
    """
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    _set_aside(folder, bundle["run_id"])
    artifacts: RunArtifacts = bundle.get("_artifacts") or RunArtifacts()
    if (model := bundle["config"].get("model")) and artifacts.runtime.cost is None:
        artifacts.runtime.cost = cost_of(str(model), artifacts.runtime)
    steps = (encoded(step.to_dict()) for step in artifacts.steps)
    contents: dict[str, tuple[str, Iterable[bytes]]] = {
        "results": ("results.jsonl", map(_line, bundle.get("_results", []))),
        "trajectories": ("trajectories.jsonl", steps),
        "runtime_stats": ("runtime_stats.json", _document(artifacts.runtime.to_dict())),
        "failure_analysis": ("failure_analysis.json", _document(artifacts.failures.to_dict())),
        "bundle": (f"{bundle['run_id']}.json", _document(_public(bundle))),
    }
    for name, lines in contents.values():
        replace_file(folder / name, lines)
    return {name: folder / file for name, (file, _) in contents.items()}


def _public(bundle: Bundle) -> dict[str, Any]:
    """Returns the content of a bundle's file, without the scores of an evaluation in which every step failed."""
    benchmark = bundle["benchmark"]
    scores = {name: score for name, score in benchmark["scores"].items() if score.get("value", 0) is not None}
    public = {name: value for name, value in bundle.items() if name[0] != "_"}
    return {**public, "benchmark": {**benchmark, "scores": scores}}


def _line(row: Result) -> bytes:
    """Returns a line. A failed step has no field ``reward``, because ``nel compare`` stops at null."""
    return encoded({name: value for name, value in row.items() if name != "reward" or value is not None})


def _document(content: Any) -> list[bytes]:
    return [encoded(content, orjson.OPT_INDENT_2)]


def _set_aside(folder: Path, run_id: str) -> None:
    for other in folder.glob("eval-*.json"):
        if other.stem != run_id:
            place = folder / other.stem
            place.mkdir(exist_ok=True)
            for name in (*_BESIDE_A_BUNDLE, other.name):
                if (folder / name).exists():
                    (folder / name).rename(place / name)


def bundle_paths(path: Path) -> list[Path]:
    """Returns the bundle at a path, or all bundles below a folder, except shards that were merged."""
    if path.is_file():
        return [path]
    folders: dict[Path, None] = {}
    for found in find_results(path):
        if found.kind == "nemo":
            folders |= dict.fromkeys([found.path] if bundles_in(found.path) else found.shards)
    return [bundle for folder in folders for bundle in bundles_in(folder)]


def discover_bundles(directory: str | Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in bundle_paths(Path(directory)):
        name = extract_benchmark_name(path)
        if name in found:
            raise ConfigError(f"Benchmark {name!r} has two bundles: {found[name]} and {path}. Name one of them")
        if name:
            found[name] = path
    return found


def extract_benchmark_name(bundle_path: str | Path) -> str | None:
    try:
        benchmark = read_object(Path(bundle_path)).get("benchmark")
    except WarehouseError:
        return None
    name = benchmark.get("name") if isinstance(benchmark, dict) else None
    return name if isinstance(name, str) and name else None


def match_bundles(
    base: Mapping[str, Path], cand: Mapping[str, Path]
) -> tuple[dict[str, tuple[Path, Path]], set[str], set[str]]:
    both = {name: (path, cand[name]) for name, path in base.items() if name in cand}
    return both, set(base) - set(cand), set(cand) - set(base)

"""Converts rows of runs to the format of NeMo Evaluator: results, steps and their bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar.compat.nemo.engine.artifacts import Bundle, Result, bundle_of
from nightjar.compat.nemo.engine.trajectories import atif_documents
from nightjar.compat.nemo.observability import ModelResponse, StepRecord
from nightjar.core.failures import category_of_answer, category_of_error
from nightjar.core.messages import content_text
from nightjar.engine.runs import RunDirectory
from nightjar.environments.seeded.scorers import PREFIX

TRAJECTORY, RESPONSE = "agent_trajectory", "model_response"
"""Columns of rows: the solver's actions, and the finish reason, reasoning tokens and latency of the last response."""
_USAGES = "usages"
"""Key in ``RESPONSE``: the token usage of each response."""
_DETAILS = "scoring_details"
"""Column of runs of benchmarks with NeMo Evaluator's interface."""
_SHARED = (
    "problem_idx", "repeat", "prompt", "expected_answer", "reward", "extracted_answer", "scoring_details",
)  # fmt: skip
"""Fields with the same names in rows and steps."""
_EXTRACTED = ("extracted_answer", "parsed_answer")
"""Columns of the extracted answer: the scorer's column, otherwise the parser's column."""


def bundle_of_rows(rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any], config: Mapping[str, Any]) -> Bundle:
    is_benchmark = _DETAILS in (metadata.get("state_columns") or ())
    results = [result_of(row, metadata["env_id"], is_benchmark=is_benchmark) for row in rows]
    return bundle_of(
        metadata["env_id"],
        results,
        [step_of(row, result) for row, result in zip(rows, results, strict=True)],
        dict(config),
        repeats=metadata["rollouts_per_example"],
        elapsed_seconds=(metadata["time_ms"] or 0) / 1000,
        retries=(metadata.get("requests") or {}).get("again", 0),
    )


def bundle_of_run(run_dir: str | Path) -> Bundle:
    directory = RunDirectory(Path(run_dir))
    responses = {line.key: _response_of_attempt(line.row) for line in directory.attempts() if line.row.get("state")}
    rows = [{RESPONSE: responses.get(line.key), **line.row} for line in directory.results()]
    metadata = directory.read_metadata()
    return bundle_of_rows(rows, metadata, settings_of(metadata, directory.read_config()))


def settings_of(metadata: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a run that its results depend on, under the names of NeMo Evaluator."""
    limit, arguments = config.get("num_examples"), config.get("env_args") or {}
    own = config.get("extra_env_kwargs") or {}
    named = {
        "system_prompt": own.get("system_prompt", arguments.get("system_prompt")),
        "scorers": own.get("scorers"),
        "params": {name: value for name, value in arguments.items() if name != "system_prompt"} or None,
        "api_client_type": metadata.get("api_client_type"),
    }
    return {
        "benchmark": metadata["env_id"],
        "model": metadata["model"],
        "base_url": metadata["base_url"],
        "repeats": metadata["rollouts_per_example"],
        "max_problems": limit if limit and limit > 0 else None,
        "shuffle_seed": config.get("shuffle_seed"),
        **metadata["sampling_args"],
        **{name: value for name, value in named.items() if value is not None},
    }


def _response_of_attempt(attempt: Mapping[str, Any]) -> dict[str, Any]:
    calls = attempt["state"].get("trajectory") or []
    answers = [call.get("response") or {} for call in calls]
    return {
        "finish_reason": answers[-1].get("finish_reason") if answers else None,
        "reasoning_tokens": sum((answer.get("usage") or {}).get("reasoning_tokens") or 0 for answer in answers),
        "latency_ms": sum(call.get("latency_ms") or 0 for call in calls),
        _USAGES: [answer.get("usage") for answer in answers],
    }


def result_of(row: Mapping[str, Any], name: str, *, is_benchmark: bool) -> Result:
    usage, extracted = row["token_usage"] or {}, _extracted(row)
    scorers = {name: value for name, value in row["metrics"].items() if name.startswith(PREFIX)}
    method = f"byob_{name}" if is_benchmark else next(iter(row["metrics"]), "")
    known = {"method": method, "extracted": extracted}
    details = known | dict(row.get(_DETAILS) or row["metrics"])
    details |= {name: {"correct": bool(value), "reward": value} for name, value in scorers.items()}
    return {
        "problem_idx": row["example_id"],
        "repeat": row["rollout_index"],
        "reward": row["reward"],
        "scorer_rewards": scorers,
        "prompt": _last(row["prompt"], "user"),
        "model_response": _last(row["completion"] or [], "assistant") if row["completion"] is not None else None,
        "extracted_answer": extracted,
        "expected_answer": row.get("answer", ""),
        _DETAILS: _failed(row["error"]) if row["error"] else details,
        "metadata": {"source": "byob" if is_benchmark else "nightjar", "benchmark": name, **(row.get("info") or {})},
        "tokens": sum(usage.get(name, 0) for name in ("input_tokens", "output_tokens")) if usage else None,
        "latency_ms": row["timing"]["generation_ms"],
        "trajectory": row.get(TRAJECTORY) or _conversation(row),
    }


def _conversation(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages, usages = [*row["prompt"], *(row["completion"] or [])], (row.get(RESPONSE) or {}).get(_USAGES, ())
    session = f"{row['example_id']}-{row['rollout_index']}"
    return atif_documents(
        messages, session_id=session, model=row["model"] or "", usages=usages, total=row["token_usage"]
    )


def step_of(row: Mapping[str, Any], result: Mapping[str, Any]) -> StepRecord:
    error = row["error"]
    system, response = _last(row["prompt"], "system"), _response(row, result)
    return step_of_result(
        result,
        system_prompt=system or None,
        model_response=response,
        model_error=error["message"] if error else None,
        retries=max(0, (row.get("attempts") or 1) - 1),
        scoring_method=str(result["scoring_details"].get("method", "")),
        model_ms=response.latency_ms if response else row["timing"]["generation_ms"],
        verify_ms=row["timing"]["scoring_ms"],
        total_ms=row["timing"]["total_ms"],
        failure_category=category_of_error(error) if error else _category(row, result),
        trajectory=result["trajectory"],
    )


def step_of_result(result: Mapping[str, Any], **known: Any) -> StepRecord:
    """Returns a line of ``results.jsonl`` as a step; ``known`` are the fields that the line lacks."""
    return StepRecord(
        step_id=f"{result['problem_idx']}-{result['repeat']}",
        timestamp=0.0,
        seed_metadata=result["metadata"],
        **{name: result[name] for name in _SHARED},
        **known,
    )


def _response(row: Mapping[str, Any], result: Mapping[str, Any]) -> ModelResponse | None:
    if result["model_response"] is None or row["error"]:
        return None
    response, usage = row.get(RESPONSE) or {}, row["token_usage"] or {}
    given, written = usage.get("input_tokens"), usage.get("output_tokens")
    return ModelResponse(
        content=result["model_response"],
        model=row["model"] or "",
        finish_reason=response.get("finish_reason") or "",
        prompt_tokens=given,
        completion_tokens=written,
        total_tokens=None if given is None or written is None else given + written,
        latency_ms=response.get("latency_ms") or row["timing"]["generation_ms"],
        reasoning_tokens=response.get("reasoning_tokens"),
        request_prompt=result["prompt"],
        request_system=_last(row["prompt"], "system"),
    )


def _category(row: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    return category_of_answer(
        result["reward"],
        result["model_response"] or "",
        result["scoring_details"],
        result["extracted_answer"],
        stop_condition=row["stop_condition"],
        is_parsed=any(name in row for name in _EXTRACTED),
    )


def _extracted(row: Mapping[str, Any]) -> str | None:
    found = next((row[name] for name in _EXTRACTED if row.get(name) is not None), None)
    return found if found is None or isinstance(found, str) else str(found)


def _failed(error: Mapping[str, Any]) -> dict[str, Any]:
    if error["phase"] == "scoring":
        return {"unscored": True, "unscored_reason": error["message"]}
    return {"error_category": category_of_error(error), "error": error["message"]}


def _last(messages: Sequence[Mapping[str, Any]], role: str) -> str:
    texts = [content_text(message.get("content")) for message in messages if message["role"] == role]
    return texts[-1] if texts else ""

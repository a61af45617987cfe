"""Exports a run as a log of Inspect (``inspect view``) in JSON format version 2, as of ``inspect_ai`` 0.3.285.

An example is a sample, and a rollout is an epoch of the sample. Reward and metrics are scores; a failed rollout has an
error instead of scores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nightjar import __version__
from nightjar.exporters.reading import failure_text

_STATUS = {"completed": "success", "incomplete": "success", "cancelled": "cancelled", "running": "started"}
_STOPS = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_ROLES = {"system": "system", "developer": "system", "assistant": "assistant", "tool": "tool"}
_REWARD = "reward"


def inspect_log(run: Mapping[str, Any], rollouts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the log of a run from its rows of ``runs`` and ``rollouts`` (and their ``notes``), with JSON parsed."""
    samples = [_sample(row) for row in rollouts]
    failed = sum("error" in sample for sample in samples)
    return {
        "version": 2,
        "status": _STATUS.get(run["status"], "error"),
        "eval": _spec(run, rollouts),
        "plan": {},  # without a plan, Inspect cannot read what a log says before its samples
        "results": {
            "total_samples": run["rollouts"] or len(samples),
            "completed_samples": len(samples) - failed,
            "scores": list(_scores(run, samples)),
        },
        "stats": {
            "started_at": _moment(run["started_at"]),
            "completed_at": _moment(run["finished_at"]),
            "model_usage": {run["model"]: _usage(run)},
        },
        "samples": samples,
    }


def log_name(run: Mapping[str, Any]) -> str:
    """Returns the name that Inspect requires to list a log.

    >>> began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    >>> log_name({"env_id": "team/my_env", "run_id": "0a1b", "started_at": began, "published_at": None})
    '2026-01-02T03-04-05+00-00_team-my-env_0a1b.json'
    """
    task = re.sub(r"[^\w.]|_", "-", run["env_id"])
    return f"{_moment(_created(run).replace(microsecond=0)).replace(':', '-')}_{task}_{run['run_id']}.json"


def is_log_of(path: Path, run_id: str) -> bool:
    """Returns whether a file is the exported log of this run."""
    try:
        match json.loads(path.read_bytes()):
            case {"eval": {"run_id": str(found), "packages": {"nightjar": _}}}:
                return found == run_id
    except (OSError, ValueError, RecursionError):
        pass
    return False


def _created(run: Mapping[str, Any]) -> datetime:
    created: datetime = run["started_at"] or run["published_at"] or datetime.fromtimestamp(0, UTC)
    return created


def _spec(run: Mapping[str, Any], rollouts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ids = list(dict.fromkeys(row["example_id"] for row in rollouts))
    return {
        "eval_id": run["run_id"],
        "run_id": run["run_id"],
        "task_id": run["run_id"],
        "created": _moment(_created(run)),
        "task": run["env_id"],
        "task_version": run["env_version"] or 0,
        "task_args": run["env_args"] or {},
        "dataset": {"name": run["env_id"], "samples": max(run["num_examples"] or 0, len(ids)), "sample_ids": ids},
        "model": run["model"],
        "model_base_url": run["base_url"],
        "model_args": run["sampling_args"] or {},
        "config": {"epochs": run["rollouts_per_example"] or 1},
        "packages": {"nightjar": __version__},
        "tags": run["tags"] or [],
    }


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt, completion = _messages(row["prompt"], "user"), _messages(row["completion"], "assistant")
    last = next((message for message in reversed(completion) if message["role"] == "assistant"), None)
    stop = "max_tokens" if row["is_truncated"] else _STOPS.get(row["finish_reason"] or "", "unknown")
    given = {
        "id": row["example_id"],
        "epoch": row["rollout_index"] + 1,
        "uuid": f"{row['run_id']}-{row['example_id']}-{row['rollout_index']}",
        "input": prompt,
        "target": row["answer"] or "",
        "messages": prompt + completion,
        "output": {
            "model": row["model"] or "",
            "choices": [{"message": last, "stop_reason": stop}] if last else [],
            "completion": _text(last["content"]) if last else "",
            "usage": _usage(row),
        },
        "scores": {name: _score(row, name, value) for name, value in _values(row) if value is not None},
        "metadata": {name: row[name] for name in ("info", "notes") if row.get(name)},
        "store": row["state"] or {},
        "model_usage": {row["model"]: _usage(row)} if row["model"] else {},
        "total_time": None if row["total_ms"] is None else row["total_ms"] / 1000,
    }
    if message := failure_text(row):
        traceback = row["error_traceback"] or ""
        given["error"] = {"message": message, "traceback": traceback, "traceback_ansi": traceback}
    return given


def _values(row: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yields the scores of a rollout by name; the reward overrides a metric of the same name."""
    yield _REWARD, row["reward"]
    yield from ((name, value) for name, value in (row["metrics"] or {}).items() if name != _REWARD)


def _score(row: Mapping[str, Any], name: str, value: float | None) -> dict[str, Any]:
    judged = (row["state"] or {}).get("judge_response") if name == _REWARD else None
    explanation = "\n\n".join(map(str, judged.values())) if isinstance(judged, Mapping) else judged
    return {"value": value, "explanation": None if explanation is None else str(explanation)}


def _scores(run: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    averages = {**(run["avg_metrics"] or {}), _REWARD: run["avg_reward"]}
    for name in sorted(averages, key=lambda name: (name != _REWARD, name)):
        metrics = {"mean": averages[name], "stderr": run["stderr"] if name == _REWARD else None}
        scored = sum(name in sample["scores"] for sample in samples)
        yield {
            "name": name,
            "scorer": name,
            "scored_samples": scored,
            "unscored_samples": len(samples) - scored,
            "metrics": {key: {"name": key, "value": value} for key, value in metrics.items() if value is not None},
        }


def _messages(messages: str | Iterable[Mapping[str, Any]] | None, other: str) -> list[dict[str, Any]]:
    """Returns messages in Inspect's form; a text, or a message of an unknown role, gets the role ``other``."""
    if messages is None or isinstance(messages, str):
        return [{"role": other, "content": messages}] if messages else []
    told = (message if isinstance(message, Mapping) else {"content": message} for message in messages)
    return [_message(message, other) for message in told]


def _message(message: Mapping[str, Any], other: str) -> dict[str, Any]:
    role = "user" if message.get("role") == "user" else _ROLES.get(str(message.get("role")), other)
    content = _content(message.get("content"))
    if role == "tool":
        return {"role": role, "content": content, "tool_call_id": message.get("tool_call_id")}
    if role != "assistant":
        return {"role": role, "content": content}
    if reasoning := message.get("reasoning_content"):
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [{"type": "reasoning", "reasoning": reasoning}, *parts]
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    return {"role": role, "content": content, "tool_calls": calls or None}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    given = {"id": str(call.get("id") or ""), "function": str(call.get("name")), "type": "function"}
    try:
        arguments = json.loads(call.get("arguments") or "{}")
    except (ValueError, RecursionError) as error:  # RecursionError: a model may open a thousand brackets
        return {**given, "arguments": {"text": call["arguments"]}, "parse_error": str(error)}
    return {**given, "arguments": arguments if isinstance(arguments, dict) else {"value": arguments}}


def _content(content: object) -> str | list[dict[str, Any]]:
    if isinstance(content, list):
        return [_part(part) for part in content]
    return content if isinstance(content, str) else "" if content is None else json.dumps(content)


def _part(part: object) -> dict[str, Any]:
    match part:
        case {"text": str(text)}:
            return {"type": "text", "text": text}
        case {"image_url": {"url": str(url)}}:
            return {"type": "image", "image": url}
        case {"input_audio": {"data": str(data), "format": ("wav" | "mp3") as kind}}:
            return {"type": "audio", "audio": data, "format": kind}
        case _:
            return {"type": "text", "text": json.dumps(part)}


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def _usage(row: Mapping[str, Any]) -> dict[str, int]:
    given, written = row["input_tokens"] or 0, row["output_tokens"] or 0
    return {"input_tokens": given, "output_tokens": written, "total_tokens": given + written}


def _moment(moment: datetime | None) -> str:
    return moment.astimezone(UTC).isoformat() if moment else ""

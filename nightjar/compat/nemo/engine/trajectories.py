"""Writes conversations in ATIF 1.6, the format of the trajectories in NeMo Evaluator's rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import nightjar
from nightjar.core.messages import content_text

_VERSION = "ATIF-v1.6"
_SOURCES = {"system": "system", "developer": "system", "assistant": "agent", "tool": "system"}
_COUNTS = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
"""Names of token counts in ATIF → names in rows."""


def atif_documents(
    messages: Sequence[Mapping[str, Any]],
    *,
    session_id: str,
    model: str,
    usages: Sequence[Mapping[str, Any] | None] = (),
    total: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Returns a conversation as a list with one document.

    ``usages`` has the prompt_tokens and completion_tokens of each response; it is ignored unless there is one for each
    of the model's messages. ``total`` has the input_tokens and output_tokens of all responses.
    """
    steps = [{**_step(message, model), "step_id": number} for number, message in enumerate(messages, 1)]
    answers = [step for step in steps if step["source"] == "agent"]
    if len(usages) == len(answers):
        for step, usage in zip(answers, usages, strict=True):
            step.update({"metrics": {name: usage[name] for name in _COUNTS if name in usage}} if usage else {})
    totals = {f"total_{name}": (total or {})[own] for name, own in _COUNTS.items() if own in (total or {})}
    document = {
        "schema_version": _VERSION,
        "session_id": session_id,
        "agent": {"name": "nightjar", "version": nightjar.__version__, "model_name": model},
        "steps": steps,
        "final_metrics": {"total_steps": len(steps), **totals},
    }
    return [document]


def _step(message: Mapping[str, Any], model: str) -> dict[str, Any]:
    text = content_text(message.get("content"))
    step: dict[str, Any] = {"source": _SOURCES.get(message["role"], "user"), "message": text}
    if message["role"] == "tool":
        return {**step, "observation": {"results": [{"source_call_id": message.get("tool_call_id"), "content": text}]}}
    if message["role"] == "assistant":
        step |= {"model_name": model, **dict(_of_model(message))}
    return step


def _of_model(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if reasoning := message.get("reasoning_content"):
        yield "reasoning_content", reasoning
    if calls := message.get("tool_calls"):
        yield (
            "tool_calls",
            [
                {
                    "tool_call_id": call["id"],
                    "function_name": call["name"],
                    "arguments": _arguments(call["arguments"]),
                }
                for call in calls
            ],
        )


def _arguments(text: str) -> dict[str, Any]:
    """Returns the arguments of a call as an object; arguments that are not an object are kept as text."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": text}

"""Converts between texts and Gym servers' messages, which have the form of OpenAI's Responses.

``rcp`` is ``responses_create_params``: the request to a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BY = "evaluator"


def extract_assistant_text(response: Any) -> str:
    """Returns the model's text in a string, a Responses answer or a chat completion; empty if there is no text."""
    match response:
        case str():
            return response
        case {"output": list() as output}:
            messages = [item for item in output if isinstance(item, Mapping) and item.get("role") == "assistant"]
            return "\n".join(text_of(item.get("content")) for item in messages)
        case {"output_text": str() as text}:
            return text
        case {"choices": [{"message": {"content": content}}, *_]}:
            return text_of(content)
    raise ValueError("the response is neither a text, a Responses answer nor a chat completion")


def wrap_text_as_gym_response(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": f"msg-{_BY}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": f"resp-{_BY}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": _BY,
        "output": [message],
        "output_text": text,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def wrap_text_as_responses_create_params(prompt: str, model: str = _BY) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": prompt}], "model": model}


def extract_prompt_from_rcp(rcp: Mapping[str, Any]) -> str:
    texts = [message["content"] for message in messages_from_rcp(rcp) if message["role"] == "user"]
    return texts[-1] if texts else ""


def messages_from_rcp(rcp: Mapping[str, Any]) -> list[dict[str, str]]:
    given = rcp.get("input") or []
    turns: Sequence[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    instructions = rcp.get("instructions")
    messages = [{"role": "system", "content": str(instructions)}] if instructions else []
    for turn in turns:
        if isinstance(turn, Mapping) and "role" in turn:
            role = "system" if turn["role"] == "developer" else str(turn["role"])
            messages.append({"role": role, "content": text_of(turn.get("content"))})
    return messages


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)

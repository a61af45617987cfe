"""What Gym servers send and are sent: texts in the shapes of OpenAI's Responses, and back.

Names are those of ``nemo_evaluator.environments.gym_protocol``. ``rcp`` is ``responses_create_params``: what a model
was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BY = "evaluator"


def extract_assistant_text(response: Any) -> str:
    """Returns what the model said: of a text, a Responses answer, or a chat completion; empty where it said nothing.

    Raises:
        ValueError: it is none of them.

    Example:
        >>> extract_assistant_text({"choices": [{"message": {"role": "assistant", "content": "4"}}]})
        '4'
    """
    match response:
        case str():
            return response
        case {"output": list() as output}:
            said = [item for item in output if isinstance(item, Mapping) and item.get("role") == "assistant"]
            return "\n".join(text_of(item.get("content")) for item in said)
        case {"output_text": str() as text}:
            return text
        case {"choices": [{"message": {"content": content}}, *_]}:
            return text_of(content)
    raise ValueError("response is no text, no Responses answer and no chat completion")


def wrap_text_as_gym_response(text: str) -> dict[str, Any]:
    """Returns a text as the Responses answer that Gym servers take.

    Example:
        >>> extract_assistant_text(wrap_text_as_gym_response("4"))
        '4'
    """
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
    """Returns a prompt as what a model was asked."""
    return {"input": [{"role": "user", "content": prompt}], "model": model}


def extract_prompt_from_rcp(rcp: Mapping[str, Any]) -> str:
    """Returns the last thing that the user said.

    Example:
        >>> extract_prompt_from_rcp({"input": [{"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]}]})
        '2+2?'
    """
    asked = [message["content"] for message in messages_from_rcp(rcp) if message["role"] == "user"]
    return asked[-1] if asked else ""


def messages_from_rcp(rcp: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns the conversation that a model was asked to go on with, as chat messages of text."""
    asked = rcp.get("input") or []
    turns: Sequence[Any] = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    instructions = rcp.get("instructions")
    messages = [{"role": "system", "content": str(instructions)}] if instructions else []
    for turn in turns:
        if isinstance(turn, Mapping) and "role" in turn:
            role = "system" if turn["role"] == "developer" else str(turn["role"])
            messages.append({"role": role, "content": text_of(turn.get("content"))})
    return messages


def text_of(content: Any) -> str:
    """Returns the text of a message's content, which may be a text or a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return "" if content is None else str(content)

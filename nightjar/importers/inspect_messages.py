"""Converts chat messages of Inspect to Nightjar's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ATTACHMENT = "attachment://"


def with_attachments(value: Any, attachments: Mapping[str, str]) -> Any:
    """Returns a value with contents in place of references: Inspect stores long texts once, under their hash."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix(ATTACHMENT), value) if value.startswith(ATTACHMENT) else value
    if isinstance(value, dict):
        return {name: with_attachments(each, attachments) for name, each in value.items()}
    return [with_attachments(each, attachments) for each in value] if isinstance(value, list) else value


def prompt_and_completion(sample: Mapping[str, Any]) -> tuple[list[Any], list[Any] | None]:
    """Returns the messages before the model's first message, as the model received them, and all later messages.

    A sample that failed early may have no messages: the prompt is then its input. Without a message of the model, the
    completion is its output, or None without an output.
    """
    sent = _dicts(sample.get("messages"))
    start = _first_answer(sent)
    prompt = sent[:start] or _input(sample.get("input"))
    if completion := sent[start:] or _output(sample.get("output")):
        return [_message(each) for each in prompt], [_message(each) for each in completion]
    return [_message(each) for each in prompt], None


def _first_answer(sent: Sequence[Mapping[str, Any]]) -> int:
    """Returns the position of the model's first message. Examples in the prompt may be assistant messages, too."""
    answers = [place for place, each in enumerate(sent) if each.get("role") == "assistant"]
    generated = (place for place in answers if sent[place].get("source") == "generate")
    written = (place for place in answers if sent[place].get("source") != "input")
    return next(generated, next(written, len(sent)))


def _input(value: Any) -> list[Any]:
    return [{"role": "user", "content": value}] if isinstance(value, str) else _dicts(value)


def _output(output: Any) -> list[Any]:
    choices = _dicts(output.get("choices")) if isinstance(output, dict) else []
    return _dicts([choice.get("message") for choice in choices[:1]])


def _dicts(value: Any) -> list[Any]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = message.get("role"), _content(message.get("content"))
    if role == "tool":
        error = message.get("error")
        reason = error.get("message") if isinstance(error, dict) else None
        named = {"name": message["function"]} if message.get("function") else {}
        return {
            "role": role,
            "tool_call_id": message.get("tool_call_id") or "",
            "content": content or reason or "",
            **named,
        }
    if role != "assistant":
        return {"role": role, "content": content}
    calls = [_call(call) for call in _dicts(message.get("tool_calls"))]
    reasoning = _reasoning(_dicts(message.get("content")))
    more = {"reasoning_content": reasoning, "tool_calls": calls}
    return {"role": role, "content": content, **{name: value for name, value in more.items() if value}}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": call.get("id") or "", "name": call.get("function") or "", "arguments": call.get("arguments") or {}}


def _content(content: Any) -> Any:
    """Returns the content without reasoning; a single text as a text."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    match [_part(part) for part in _dicts(content) if part.get("type") != "reasoning"]:
        case []:
            return ""
        case [{"type": "text", "text": str(text)}]:
            return text
        case parts:
            return parts


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "image": str(image)}:
            return {"type": "image_url", "image_url": {"url": image}}
        case {"type": "audio", "audio": str(audio), "format": str(kind)}:
            return {"type": "input_audio", "input_audio": {"data": audio, "format": kind}}
        case _:
            return part


def _reasoning(parts: Iterable[Mapping[str, Any]]) -> str:
    """Returns the reasoning, or its summary if the provider has encrypted it."""
    found = (part for part in parts if part.get("type") == "reasoning")
    texts = (part.get("summary") if part.get("redacted") else part.get("reasoning") for part in found)
    return "\n".join(text for text in texts if text)

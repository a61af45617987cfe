"""The rules of a conversation in chat messages: what a message is, and that every tool call has its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nightjar.testing.answers import Message
from nightjar.testing.model_request import ApiError

_NO_MESSAGE = "A message needs a role and, as its content, text or a list of parts."
_IMPROPER_CALL = (
    "A tool call needs an id and a function with a name and, as its arguments, a JSON text; "
    "a tool's result needs a tool_call_id."
)


def parse_messages(messages: Any) -> list[Message]:
    """Returns a request's chat messages as they are; raises ``ApiError`` where they are none."""
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "'messages' must be a list that is not empty.", param="messages")
    for position, message in enumerate(messages):
        if not _is_message(message):
            raise ApiError(400, _NO_MESSAGE, param=f"messages[{position}]")
        if not _has_proper_calls(message):
            raise ApiError(400, _IMPROPER_CALL, param=f"messages[{position}]")
    return messages


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    content = message.get("content")
    if isinstance(content, list):
        return all(_is_part(part) for part in content)
    return isinstance(content, str | None)


def _is_part(part: Any) -> bool:
    match part:
        case {"type": "text"}:
            return isinstance(part.get("text"), str)
        case {"type": str()}:
            return True
    return False


def _has_proper_calls(message: dict[str, Any]) -> bool:
    if message["role"] == "tool":
        return isinstance(message.get("tool_call_id"), str)
    calls = message.get("tool_calls")
    return calls is None or (isinstance(calls, list) and all(_is_call(call) for call in calls))


def _is_call(call: Any) -> bool:
    match call:
        case {"id": str(), "function": {"name": str(), "arguments": str()}}:
            return True
    return False


def check_tool_results(messages: Sequence[Message], *, no_call: str, no_result: str, param: str = "messages") -> None:
    """Checks that every tool call has its result right after it, and every result its call right before it.

    Args:
        messages: the conversation.
        no_call: what the protocol says to a result without a call; ``{ids}`` is the id that the result names.
        no_result: what it says to calls without a result; ``{ids}`` are theirs, ``{first}`` is the first of them.
        param: the part of the request that is wrong; ``{position}`` is the message's.

    Raises:
        ApiError: there is one without the other, status 400.
    """
    owed: dict[str, None] = {}
    caller = 0
    for position, message in enumerate(messages):
        if message["role"] == "tool":
            result_id = message["tool_call_id"]
            if result_id not in owed:
                raise ApiError(400, no_call.format(ids=result_id), param=param.format(position=position))
            del owed[result_id]
        elif owed:
            break
        elif calls := message.get("tool_calls"):
            owed, caller = {call["id"]: None for call in calls}, position
    if owed:
        said = no_result.format(ids=", ".join(owed), first=next(iter(owed)))
        raise ApiError(400, said, param=param.format(position=caller))

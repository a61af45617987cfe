"""Functions of verifiers that Nightjar has under another name or in another form; only the alias uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, cast

import orjson

from nightjar.core.calling import call as maybe_await
from nightjar.core.calling import call_named as maybe_call_with_named_args
from nightjar.core.calling.decorators import decorated_methods
from nightjar.core.messages import DictModel as CustomBaseModel
from nightjar.core.messages import (
    Message,
    Messages,
    Response,
    content_text,
    dump_message,
    dump_messages,
    normalize_messages,
)
from nightjar.core.rollout.records import result_row
from nightjar.core.rollout.state import (
    RolloutInput,
    State,
    TrajectoryStepTokens,
    new_state,
    response_messages,
    response_tokens,
)
from nightjar.core.rollout.usage import UsageTracker as StateUsageTracker
from nightjar.core.rollout.usage import context_usage, usage_counts
from nightjar.environments.data import Examples
from nightjar.environments.datasets import results_dataset as make_dataset

T = TypeVar("T")

__all__ = [
    "ChatMessages", "CustomBaseModel", "ModelResponse", "StateUsageTracker", "compute_context_token_metrics",
    "discover_decorated", "extract_usage_tokens", "format_dataset", "make_dataset", "maybe_await",
    "maybe_call_with_named_args", "maybe_normalize_messages", "maybe_semaphore", "message_to_printable",
    "messages_to_printable", "parse_response_message", "parse_response_tokens", "sanitize_tool_calls",
    "serialize_message_for_output", "serialize_messages_for_output", "state_to_output", "states_to_outputs", "with_sem",
]  # fmt: skip

ChatMessages = list[Message]
ModelResponse = Response
maybe_normalize_messages = normalize_messages
serialize_message_for_output = dump_message
serialize_messages_for_output = dump_messages


async def parse_response_message(response: Response) -> Messages:
    return response_messages(response)


async def parse_response_tokens(response: Response, max_seq_len: int | None = None) -> TrajectoryStepTokens | None:
    return None if response is None else response_tokens(response, max_seq_len)


def extract_usage_tokens(response: Any) -> tuple[int, int]:
    """Returns input and output tokens of a response; zeros if it has no usage."""
    usage = getattr(response, "usage", None)
    return (0, 0) if usage is None else usage_counts(usage)


def compute_context_token_metrics(trajectory: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the tokens of the complete conversation; zeros if no step has usage."""
    return {"final_input_tokens": 0, "final_output_tokens": 0, **context_usage(trajectory)}


def discover_decorated(owner: Any, mark: str) -> list[Any]:
    return decorated_methods(owner, f"{mark}_priority")


def format_dataset(
    dataset: Any, system_prompt: str | None = None, few_shot: Any = None, question_key: str = "question",
    answer_key: str = "answer", map_kwargs: Mapping[str, Any] | None = None,  # noqa: ARG001 - formatted on reading
) -> Any:  # fmt: skip
    rows = [
        {**row, "question": row.get(question_key), "answer": row.get(answer_key)} if "prompt" not in row else row
        for row in dataset
    ]
    return Examples(rows, system_prompt, few_shot).to_dataset()


def message_to_printable(message: Any) -> Any:
    """Returns a message with ``[image]`` and ``[audio]`` for images and sounds."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    words = [_printable_part(part) for part in content]
    return {**dump_message(message), "content": " ".join(word for word in words if word)}


def _printable_part(part: Any) -> str:
    kind = part.get("type")
    if kind == "text":
        return content_text([part])
    return {"image_url": "[image]", "input_audio": "[audio]", "audio": "[audio]"}.get(kind, "")


def messages_to_printable(messages: Any) -> Any:
    return messages if isinstance(messages, str) else [message_to_printable(message) for message in messages or []]


def sanitize_tool_calls(messages: Any) -> Any:
    """Returns messages with tool calls as JSON strings."""
    if not isinstance(messages, list):
        return messages
    return [_with_text_calls(message) if message.get("tool_calls") else message for message in messages]


def _with_text_calls(message: Any) -> dict[str, Any]:
    calls = [call if isinstance(call, str) else orjson.dumps(_dumped(call)).decode() for call in message["tool_calls"]]
    plain = dict(message) if isinstance(message, Mapping) else dump_message(message)
    return {**plain, "content": plain.get("content") or "", "tool_calls": calls}


def _dumped(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


def state_to_output(state: State, state_columns: Sequence[str] | None = None) -> dict[str, Any]:
    columns = state.get("input") or {name: state[name] for name in State.INPUT_FIELDS if name in state}
    columns = {"rollout_index": 0, **columns}
    whole = State({**new_state(cast("RolloutInput", columns)), **state, "input": columns})
    return result_row(whole, attempts=1, example_hash="", state_columns=state_columns or ())


def states_to_outputs(states: Sequence[State], state_columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    return [state_to_output(state, state_columns) for state in states]


async def with_sem(sem: AbstractAsyncContextManager[Any], awaitable: Any) -> Any:
    async with sem:
        return await awaitable


async def maybe_semaphore(limit: int | None = None) -> AbstractAsyncContextManager[Any]:
    """Returns a semaphore. If ``limit`` is None or below 1, the semaphore has no limit."""
    return asyncio.Semaphore(limit) if limit is not None and limit > 0 else _unlimited()


@asynccontextmanager
async def _unlimited() -> AsyncIterator[None]:
    yield

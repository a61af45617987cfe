"""Reads providers' responses. They are SDK objects, but parts are dicts if the server omits or adds fields."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

from nightjar.core.messages import ResponseTokens, Usage
from nightjar.core.text import shortened
from nightjar.errors import EmptyModelResponseError, InvalidModelResponseError, ModelError

_INPUT_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
"""The counts of prompt tokens in newer protocols. Anthropic counts cached tokens separately."""
_MOST_TOKENS = 10**12
_REASONING_FIELDS = ("reasoning", "reasoning_content", "reasoning_details")
"""Fields with the model's reasoning. The first field that is set is used."""


def field_of(value: Any, name: str, default: Any = None) -> Any:
    if isinstance(value, dict):
        return value.get(name, default)
    extra = getattr(value, "__pydantic_extra__", None)
    if isinstance(extra, dict):  # pydantic raises where a field is missing
        return value.__dict__[name] if name in value.__dict__ else extra.get(name, default)
    return getattr(value, name, default)


def text_of(value: Any, name: str) -> str:
    """Returns a text field, and a number as text. Returns an empty text for anything else."""
    found = field_of(value, name)
    return found if isinstance(found, str) else str(found) if type(found) is int else ""


def texts_of(part: Any) -> str:
    """Returns the text of a part of content, or of all parts in a list."""
    if isinstance(part, list):
        return "".join(map(texts_of, part))
    return part if isinstance(part, str) else text_of(part, "text")


def count_of(value: Any, name: str) -> int:
    """Returns a number field as an integer. Returns 0 if the field is missing, not a number, or not a valid count."""
    found = field_of(value, name)
    return int(found) if isinstance(found, int | float) and 0 <= found < _MOST_TOKENS else 0


def reasoning_of(message: Any) -> str | None:
    for name in _REASONING_FIELDS:
        value = field_of(message, name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            texts = [text_of(part, "text") or text_of(part, "summary") for part in value]
            return "".join(texts) or None
    return None


def usage_of(answer: Any) -> Usage | None:
    usage = field_of(answer, "usage")
    if usage is None:
        return None
    prompt = count_of(usage, "prompt_tokens") or sum(count_of(usage, name) for name in _INPUT_TOKENS)
    completion = count_of(usage, "completion_tokens") or count_of(usage, "output_tokens")
    details = field_of(usage, "completion_tokens_details") or field_of(usage, "output_tokens_details")
    thought = details and (count_of(details, "reasoning_tokens") or count_of(details, "thinking_tokens"))
    return Usage(
        prompt_tokens=prompt,
        reasoning_tokens=thought or 0,
        completion_tokens=completion,
        total_tokens=count_of(usage, "total_tokens") or prompt + completion,
    )


def without_text() -> ModelError:
    """Returns the error for a response without content."""
    return EmptyModelResponseError("the endpoint sent no text, reasoning or tool call")


def arguments_of(value: Any) -> str:
    """Returns the arguments of a tool call as JSON text. Servers also send an object, null and nothing."""
    if isinstance(value, str):
        return value if value.strip() else "{}"
    return "{}" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def wrong_field(place: str, value: Any, expected: str) -> InvalidModelResponseError:
    return InvalidModelResponseError(f"{place} is {shortened(repr(value), 80)}: expected {expected}")


def tokens_of(answer: Any) -> ResponseTokens | None:
    """Returns the token ids of a completion if the server sends them with log probabilities, as vLLM does."""
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        return _tokens(answer)
    return None


def _tokens(answer: Any) -> ResponseTokens | None:
    choice = field_of(answer, "choices")[0]
    if (logprobs := field_of(choice, "logprobs")) is None:
        return None
    is_chat = (tokens := field_of(logprobs, "content")) is not None
    numbers = [field_of(token, "logprob") for token in tokens] if is_chat else field_of(logprobs, "token_logprobs")
    prompt_ids = field_of(answer if is_chat else choice, "prompt_token_ids")
    completion_ids = field_of(choice, "token_ids")
    if prompt_ids is None or completion_ids is None or numbers is None:
        return None
    return ResponseTokens(
        prompt_ids=prompt_ids,
        prompt_mask=[0] * len(prompt_ids),
        completion_ids=completion_ids,
        completion_mask=[1] * len(completion_ids),
        completion_logprobs=numbers,
        routed_experts=_routed_experts(field_of(choice, "routed_experts")),
    )


def _routed_experts(routed: Any) -> list[list[list[int]]] | None:
    """Decodes the experts of each token from base85 text of 32-bit integers, as [token][layer][rank]."""
    if not (isinstance(routed, dict) and {"data", "shape"} <= routed.keys()):
        return None
    numbers = memoryview(base64.b85decode(routed["data"])).cast("i")
    _, layers, ranks = routed["shape"]
    rows = [numbers[start : start + ranks].tolist() for start in range(0, len(numbers), ranks)]
    return [rows[start : start + layers] for start in range(0, len(rows), layers)]

"""Finds errors in the bodies of responses: the provider's words, the code, the status and the time to wait.

Providers send ``{"error": {"message": …}}``, and also a text, a list, ``detail`` (FastAPI), ``message`` alone, an HTML
page, or an error inside a response with status 200.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

_MOST_CHARACTERS = 400
_MOST_DEPTH = 6

_ANSWERS = ("choices", "content", "output")
"""The fields that hold what a model said, of which one is in every successful response."""

_WORDS = ("message", "msg", "detail", "error_message", "error_msg", "errorMessage", "Message", "title", "reason",
          "description", "status_msg", "error", "errors", "error_description")  # fmt: skip
"""Fields that may hold the words, in the order in which they are used."""

_CODES = ("code", "status", "type", "reason", "error_code", "errorCode", "error_type", "status_code")

_STATUSES = {
    # OpenAI, Azure and Anthropic: types and codes
    "api_error": 500, "authentication_error": 401, "billing_error": 402, "content_filter": 400,
    "content_policy_violation": 400, "context_length_exceeded": 400, "insufficient_quota": 429, "invalid_api_key": 401,
    "invalid_prompt": 400, "invalid_request_error": 400, "model_not_found": 404, "not_found_error": 404,
    "overloaded_error": 529, "permission_error": 403, "rate_limit_error": 429, "rate_limit_exceeded": 429,
    "request_too_large": 413, "server_error": 500, "timeout_error": 504, "tokens": 429, "requests": 429,
    # Google: https://cloud.google.com/apis/design/errors
    "aborted": 409, "already_exists": 409, "cancelled": 499, "data_loss": 500, "deadline_exceeded": 504,
    "failed_precondition": 400, "internal": 500, "invalid_argument": 400, "not_found": 404, "out_of_range": 400,
    "permission_denied": 403, "resource_exhausted": 429, "unauthenticated": 401, "unavailable": 503,
    "unimplemented": 501, "unknown": 500,
    # vLLM and SGLang: names of exceptions
    "authenticationerror": 401, "badrequesterror": 400, "internalservererror": 500, "notfounderror": 404,
    "ratelimiterror": 429, "serviceunavailableerror": 503, "unprocessableentityerror": 422,
    # TGI: https://huggingface.co/docs/text-generation-inference
    "generation": 424, "incomplete_generation": 500, "overloaded": 429, "validation": 422,
    # Bedrock
    "accessdeniedexception": 403, "internalserverexception": 500, "modelerrorexception": 424,
    "modeltimeoutexception": 408, "serviceunavailableexception": 503, "throttlingexception": 429,
    "validationexception": 400,
    # Alibaba and Zhipu
    "arrearage": 402, "invalidapikey": 401, "throttling": 429, "1113": 429, "1302": 429, "1305": 429,
}  # fmt: skip
"""The HTTP status that the names of errors mean."""

SPENT_CODES = frozenset({
    "insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error", "insufficient_balance",
    "insufficient_credits", "credit_balance_too_low", "arrearage", "1113", "quota_exceeded_permanently",
})  # fmt: skip
"""Codes for an account without credit: OpenAI, Anthropic, DeepSeek, Moonshot, Alibaba, Zhipu."""
LIMIT_CODES = frozenset({
    "rate_limit_exceeded", "rate_limit_error", "rate_limit_reached", "ratelimitreached", "resource_exhausted",
    "too_many_requests", "throttlingexception", "tokens", "requests", "overloaded_error", "1302", "1305",
})  # fmt: skip
"""Codes for a limit that time lifts: OpenAI, Azure, Anthropic, Google, Bedrock, Zhipu."""

_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)
_WAIT = re.compile(
    r"(?:try again|retry|retry after|available|reset[s]?)\s*(?:in|after|:)?\s*"
    r"((?:\d+(?:\.\d+)?\s*(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)(?![a-z])\s*)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|s|m|h)", re.IGNORECASE)
_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parsed(content: bytes | str) -> Any:
    """Returns the JSON of a body, or its text if it is not JSON."""
    text = content.decode(errors="replace") if isinstance(content, bytes) else content
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return text.strip()


def error_in(fields: Any) -> Any:
    """Returns the error in a response with status 200, or None. The error may be in the body, a choice or a list."""
    if isinstance(fields, list):
        return next((found for found in map(error_in, fields) if found), None)
    if not isinstance(fields, dict):
        return None
    for name in ("error", "errors"):
        if _tells(found := fields.get(name)):
            return found
    for choice in fields.get("choices") or () if isinstance(fields.get("choices"), list) else ():
        if isinstance(choice, dict):
            message = choice.get("message")
            for place in (choice, message if isinstance(message, dict) else {}):
                if _tells(place.get("error")):
                    return place["error"]
    status = fields.get("base_resp")  # MiniMax
    if isinstance(status, dict) and status.get("status_code") not in (0, None):
        return status
    is_error = fields.get("object") == "error" or not any(name in fields for name in _ANSWERS)
    return fields if is_error and any(_tells(fields.get(name)) for name in _WORDS) else None


def words_of(body: Any) -> str:
    """Returns the provider's words in the body of an error as one short line; an empty text if it has none."""
    found = next(_texts(body), "")
    if "<" in found and (title := _TITLE.search(found)):
        found = title[2]
    line = " ".join(html.unescape(_MARKUP.sub(" ", found)).split()) if "<" in found else " ".join(found.split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]} …"


def codes_of(body: Any) -> list[str]:
    """Returns the codes of an error in lower case, such as ``insufficient_quota`` and ``429``."""
    error = _inner(body)
    if not isinstance(error, dict):
        return []
    codes = [error.get(name) for name in _CODES]
    return [str(code).strip().lower() for code in codes if isinstance(code, str | int) and code != ""]


def status_of(error: Any) -> int:
    """Returns the HTTP status that an error inside a response with status 200 means; 502 if the error does not say."""
    codes = codes_of(error)
    for code in codes:
        if code.isdecimal() and 400 <= int(code) <= 599:  # noqa: PLR2004 - HTTP's own borders
            return int(code)
    return next((_STATUSES[code] for code in codes if code in _STATUSES), 502)


def seconds_to_wait(body: Any) -> float | None:
    """Returns the wait that the body of a refusal asks for: Google's ``RetryInfo``, a field, or words."""
    error = _inner(body)
    if isinstance(error, dict):
        details = error.get("details")
        for place in [error, *(details if isinstance(details, list) else ())]:
            if isinstance(place, dict):
                for name in ("retryDelay", "retry_delay", "retry_after", "retryAfter", "retry_after_seconds"):
                    if (seconds := _duration(place.get(name))) is not None:
                        return seconds
    if said := _WAIT.search(words_of(body)):
        return _duration(said[1])
    return None


def _duration(value: Any) -> float | None:
    if isinstance(value, dict):  # a protobuf duration
        value = value.get("seconds")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return max(0.0, float(value))
    if not isinstance(value, str):
        return None
    with suppress(ValueError):
        return max(0.0, float(value))
    parts = _PART.findall(value)
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in parts) if parts else None


def _tells(value: Any) -> bool:
    """Returns whether a field says that something failed. Some servers always send ``"error": {"code": 0}``."""
    if isinstance(value, dict):
        return any(_tells(part) for name, part in value.items() if name not in {"param", "object"})
    if isinstance(value, str):
        return value.strip().lower() not in {"", "0", "200", "ok", "none", "null", "success", "false"}
    if isinstance(value, list):
        return any(map(_tells, value))
    return value is True or (isinstance(value, int | float) and value not in {0, 200})


def _inner(body: Any) -> Any:
    """Returns the object with the code of an error, from the objects and lists around it."""
    for _ in range(_MOST_DEPTH):
        if isinstance(body, list) and body:
            body = body[0]
        elif isinstance(body, dict) and isinstance(body.get("error"), dict | list) and body["error"]:
            body = body["error"]
        else:
            break
    return body


def _texts(body: Any, depth: int = 0) -> Iterator[str]:
    """Yields the texts in a body that may be the provider's words, the best first."""
    if depth > _MOST_DEPTH:
        return
    for part in _parts(body):
        yield from _texts(part, depth + 1)
    if isinstance(body, str) and body.strip():
        yield body.strip()


def _parts(body: Any) -> list[Any]:
    if isinstance(body, list):
        return body
    if isinstance(body, str):
        is_json = body.lstrip()[:1] in {"{", "["}
        return [inner for inner in ([parsed(body)] if is_json else []) if not isinstance(inner, str)]
    if not isinstance(body, dict):
        return []
    parts: list[Any] = []
    if isinstance(body.get("loc"), list) and isinstance(body.get("msg"), str):  # FastAPI
        parts.append(f"{'.'.join(map(str, body['loc']))}: {body['msg']}")
    if isinstance(metadata := body.get("metadata"), dict):
        parts.append(metadata.get("raw"))  # OpenRouter: the words of the provider behind it
    if isinstance(error := body.get("error"), dict | list):
        parts.append(error)
    return [*parts, *(body[name] for name in _WORDS if name in body)]

"""Classifies errors: finds the Nightjar error, and decides whether to retry, slow down, or stop.

The SDKs' errors have the same class names and fields, so nothing here imports an SDK. Rate headers: RFC 9110
(``Retry-After``), OpenAI's ``x-ratelimit-remaining-requests`` and ``x-ratelimit-reset-requests`` (durations such as
``1m30s`` and ``20ms``; also ``-tokens``), Anthropic's ``anthropic-ratelimit-requests-remaining`` and ``-reset`` (RFC
3339), OpenRouter's ``x-ratelimit-reset`` (Unix time in milliseconds), Cerebras' ``x-ratelimit-remaining-tokens-minute``
and every other pair of headers whose names differ by ``remaining`` and ``reset``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from nightjar.clients.error_bodies import LIMIT_CODES, SPENT_CODES, codes_of, seconds_to_wait, words_of
from nightjar.core.secrecy import error_text
from nightjar.errors import (
    ConfigError,
    ContentFilteredError,
    Error,
    InfraError,
    InvalidModelResponseError,
    ModelError,
    OverlongPromptError,
    error_chain,
)

_HEALING_STATUSES = frozenset({408, 409, 420, 424, 425, 429, 449, 498, 499})
"""Below 500: timeout, conflict, limit (also 420), failed generation (424, TGI and Bedrock), too early (425), retry with
(449), no capacity (498, Groq), and a gateway whose own client left (499)."""
_OVERLOAD_STATUSES = frozenset({420, 429, 498, 503, 529})
_UNAVAILABLE_STATUSES = frozenset({502, 503, 504})
_REFUSAL_STATUSES = frozenset({401, 402, 403})
_NOT_FOUND = 404
_CONNECTION_ERRORS = frozenset({"APIConnectionError", "ConnectionTimeoutError", "ConnectTimeout"})
_REFUSED_SANDBOX = {"SandboxRefusedError", "SandboxNotAllowedError"}  # no other rollout gets one either
_SDK_TIMEOUT = "APITimeoutError"
_REJECTED_CREDENTIALS = frozenset({"AuthenticationError", "PermissionDeniedError"})
_UNREADABLE_ANSWER = "APIResponseValidationError"
TOO_LARGE = "too large"
"""The ``body`` of the error for a response that is too large, which another try would not change."""
_INVALID_STATUSES = frozenset({400, 422})
_OVERLONG_STATUSES = frozenset({400, 413, 422})
_FILTER_STATUSES = frozenset({400, 403, 422})

OVERLONG_PHRASES = (
    "exceed the configured limit",
    "exceeds the configured limit",
    "exceeded model",
    "prompt_too_long",
    "prompt is too long",
    "input is too long",
    "context length",
    "context_length_exceeded",
    "contextwindowexceeded",
    "context window",
    "maximum context",
    "maximum model length",
    "exceed context limit",
    "exceeds context limit",
    "available context size",
    "exceeds the maximum number of tokens",
    "tokens + `max_new_tokens` must be",
    "too many total text bytes",
)
"""Phrases for a prompt that is too long, in lower case. The protocols have no code for this error.

From OpenAI and Azure (``context_length_exceeded``), Anthropic (``prompt is too long``, ``exceed context limit``),
LiteLLM (``ContextWindowExceededError``), vLLM and OpenRouter (``maximum context length``), SGLang (``longer than the
model's context length``), Bedrock (``Input is too long``), Gemini (``exceeds the maximum number of tokens``), TGI
(``max_new_tokens``) and llama.cpp (``available context size``).
"""
SPENT_PHRASES = (
    "insufficient_quota",
    "exceeded your current quota",
    "billing_hard_limit_reached",
    "credit balance is too low",
    "insufficient credits",
    "insufficient balance",
)
"""Phrases for an account without credit, in lower case. Waiting does not help, whatever the status."""

FILTER_PHRASES = (
    "content_filter",
    "content_policy_violation",
    "content management policy",
    "responsibleaipolicyviolation",
    "flagged as potentially violating",
    "rejected as a result of our safety system",
    "prohibited_content",
    "data_inspection_failed",
    "content blocked by guardrail",
)
"""Phrases for a prompt that a content filter refuses, in lower case.

From Azure (``content_filter``, ``ResponsibleAIPolicyViolation``), OpenAI (``content_policy_violation``, "flagged as
potentially violating our usage policy"), Gemini (``PROHIBITED_CONTENT``), Alibaba (``data_inspection_failed``) and
Databricks ("blocked by guardrail").
"""
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS = (86_400.0, 3600.0, 60.0, 1.0, 0.001)
_EPOCH_SECONDS = 1e9
_EPOCH_MILLISECONDS = 1e12


@dataclass(frozen=True, slots=True)
class Failure:
    """How to treat a failed request or attempt. Equal causes have equal messages.

    Attributes:
        is_retryable: another attempt at the rollout may succeed.
        is_repeatable: a retry of the same request may succeed.
        is_overload: the endpoint asks for fewer requests.
        is_connection: the endpoint did not respond at all.
        is_unavailable: no model answered: no connection, or a gateway's status 502, 503 or 504.
        is_of_endpoint: another replica of the endpoint may answer the request.
        is_permanent: every request will probably fail like this one.
        is_refusal: the endpoint rejects the key, or this machine lacks something that every rollout needs.
    """

    message: str
    is_retryable: bool = False
    is_repeatable: bool = False
    is_overload: bool = False
    is_connection: bool = False
    is_unavailable: bool = False
    is_of_endpoint: bool = False
    is_permanent: bool = False
    is_refusal: bool = False
    retry_after_seconds: float | None = None


def classify(error: BaseException) -> Failure:
    message = error_text(error)
    if isinstance(error, OverlongPromptError | ContentFilteredError):
        return Failure(message)
    chain = list(error_chain(error))
    if any(type(cause).__name__ in _REFUSED_SANDBOX for cause in chain):
        return Failure(message, is_permanent=True, is_refusal=True)
    for cause in chain:
        status = getattr(cause, "status_code", None)
        if isinstance(status, int):
            return _of_status(status, message, cause)
        if type(cause).__name__ in _CONNECTION_ERRORS or isinstance(cause, ConnectionError):
            return Failure(
                message,
                is_retryable=True,
                is_repeatable=True,
                is_connection=True,
                is_unavailable=True,
                is_of_endpoint=True,
            )
    if any(type(cause).__name__ == _SDK_TIMEOUT or isinstance(cause, json.JSONDecodeError) for cause in chain):
        return Failure(message, is_retryable=True, is_repeatable=True, is_of_endpoint=True)
    is_late = isinstance(error, ModelError) and any(isinstance(cause, TimeoutError) for cause in chain)
    is_retryable = is_late or isinstance(error, InfraError | InvalidModelResponseError)
    return Failure(message, is_retryable=is_retryable, is_permanent=isinstance(error, ConfigError))


def _of_status(status: int, message: str, cause: BaseException) -> Failure:
    if status < 300:  # noqa: PLR2004
        is_damaged = type(cause).__name__ == _UNREADABLE_ANSWER and getattr(cause, "body", None) != TOO_LARGE
        return Failure(message, is_retryable=True, is_repeatable=is_damaged, is_of_endpoint=is_damaged)
    wait = retry_after(getattr(getattr(cause, "response", None), "headers", {}))
    if wait is None:
        wait = seconds_to_wait(getattr(cause, "body", None))
    if _is_spent(cause, can_wait=wait is not None):
        return Failure(message, is_of_endpoint=True, is_permanent=True, is_refusal=True)
    heals = status in _HEALING_STATUSES or status >= 500  # noqa: PLR2004 - HTTP's own borders
    return Failure(
        message,
        is_retryable=heals,
        is_repeatable=heals,
        is_overload=status in _OVERLOAD_STATUSES,
        is_unavailable=status in _UNAVAILABLE_STATUSES,
        is_of_endpoint=heals or status in _REFUSAL_STATUSES or status == _NOT_FOUND,
        is_permanent=not heals,
        is_refusal=status in _REFUSAL_STATUSES,
        retry_after_seconds=wait,
    )


def _is_spent(cause: BaseException, *, can_wait: bool) -> bool:
    """Returns whether an account is without credit. Codes decide; phrases only if there is no code for a limit."""
    codes = frozenset(codes_of(getattr(cause, "body", None)))
    if codes & SPENT_CODES:
        return True
    return not (can_wait or codes & LIMIT_CODES) and _says(SPENT_PHRASES, cause)


def has_rejected_credentials(error: BaseException) -> bool:
    """Returns whether the endpoint rejects the key, so that no further request can succeed."""
    return type(error).__name__ in _REJECTED_CREDENTIALS


def named_error(error: Exception, model: str) -> Error | None:
    """Returns the Nightjar error for an SDK's error, or None if there is no specific error, as for most.

    The error may be an unreadable response, an overlong prompt, or a prompt that a content filter refuses.
    """
    if isinstance(error, json.JSONDecodeError):
        return InvalidModelResponseError(f"Model {model!r} sent a response that is not JSON: {error}")
    if type(error).__name__ == _UNREADABLE_ANSWER:
        return InvalidModelResponseError(f"Model {model!r}: {_message(error)}")
    if getattr(error, "status_code", None) in _OVERLONG_STATUSES and _says(OVERLONG_PHRASES, error):
        return OverlongPromptError(f"Model {model!r}: {_message(error)}")
    if getattr(error, "status_code", None) in _FILTER_STATUSES and _says(FILTER_PHRASES, error):
        return ContentFilteredError(f"Model {model!r}: {_message(error)}")
    return None


def refuses_field(error: BaseException, name: str) -> bool:
    """Returns whether an endpoint refuses a request because it does not know a field, or not in this request."""
    is_invalid = getattr(error, "status_code", None) in _INVALID_STATUSES
    return is_invalid and _says((name,), error) and not _says(OVERLONG_PHRASES, error)


def message_of(error: BaseException) -> str:
    """Returns the message of an error, with the provider's words if an SDK has dropped them."""
    said = str(error)
    words = words_of(getattr(error, "body", None)) if isinstance(getattr(error, "status_code", None), int) else ""
    return said if not words or words in said or words[:40] in said else f"{said} - {words}"


def _says(phrases: tuple[str, ...], error: Any) -> bool:
    text = f"{_message(error)} {getattr(getattr(error, 'response', None), 'text', '')}".lower()
    return any(phrase in text for phrase in phrases)


def _message(error: Any) -> str:
    return str(getattr(error, "message", error))


def retry_after(headers: Mapping[str, Any]) -> float | None:
    """Returns the seconds that a refusal asks the client to wait, or None."""
    with suppress(KeyError, TypeError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    with suppress(KeyError, TypeError, ValueError):
        return _seconds(str(headers["retry-after"]))
    return seconds_until_more(headers)


def seconds_until_more(headers: Mapping[str, Any]) -> float | None:
    """Returns the seconds until an endpoint accepts requests again, or None if its quota is not used up."""
    spent = [reset for remaining, reset in quotas(tuple(headers)) if not left_of(headers[remaining])]
    waits = [_seconds(str(headers[reset])) for reset in spent]
    return max((wait for wait in waits if wait is not None), default=None)


@lru_cache(maxsize=256)
def quotas(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Returns the names of the headers that say how much of a quota is left, and when it is full again."""
    known = {name.lower(): name for name in names}
    pairs = [(name, known.get(low.replace("remaining", "reset"))) for low, name in known.items() if "remaining" in low]
    return [(remaining, reset) for remaining, reset in pairs if reset]


def left_of(remaining: Any) -> float:
    with suppress(TypeError, ValueError):
        return float(remaining)
    return 1.0


def _seconds(text: str) -> float | None:
    """Parses a wait: seconds, a duration, a Unix time or a date. Returns None for any other text."""
    text = text.strip()
    with suppress(ValueError):
        number = float(text)
        now = time.time()
        if number > _EPOCH_MILLISECONDS:
            return max(0.0, number / 1000 - now)
        return max(0.0, number - now if number > _EPOCH_SECONDS else number)
    if text and (found := _DURATION.fullmatch(text)):
        return sum(float(part) * unit for part, unit in zip(found.groups(), _UNITS, strict=True) if part)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError):
            moment = read(text)
            return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time.time())
    return None

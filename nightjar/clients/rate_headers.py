"""How long endpoints ask to wait: what their headers say, in each provider's form.

Sources: RFC 9110 (``Retry-After``: seconds or a date), OpenAI's ``x-ratelimit-remaining-requests`` and
``x-ratelimit-reset-requests`` (durations such as ``1m30s`` and ``20ms``; likewise ``-tokens``), Anthropic's
``anthropic-ratelimit-requests-remaining`` and ``-reset`` (RFC 3339), OpenRouter's ``x-ratelimit-reset`` (Unix time, in
milliseconds).
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

_FORMS = (
    "x-ratelimit-{}-requests",
    "x-ratelimit-{}-tokens",
    "x-ratelimit-{}",
    "anthropic-ratelimit-requests-{}",
    "anthropic-ratelimit-tokens-{}",
    "anthropic-ratelimit-input-tokens-{}",
)
_NAMES = tuple((form.format("remaining"), form.format("reset")) for form in _FORMS)
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS = (86_400.0, 3600.0, 60.0, 1.0, 0.001)
_EPOCH_SECONDS = 1e9
_EPOCH_MILLISECONDS = 1e12


def retry_after(headers: Mapping[str, Any]) -> float | None:
    """Returns how many seconds a refusal asks to wait; None where it does not say.

    Example:
        >>> retry_after({"retry-after": "2"}), retry_after({"retry-after-ms": "1500"}), retry_after({})
        (2.0, 1.5, None)
    """
    with suppress(KeyError, TypeError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    with suppress(KeyError, TypeError, ValueError):
        return _seconds(str(headers["retry-after"]))
    return seconds_until_more(headers)


def seconds_until_more(headers: Mapping[str, Any]) -> float | None:
    """Returns in how many seconds an endpoint accepts more, where it says that it accepts nothing until then.

    Example:
        >>> seconds_until_more({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m0.5s"})
        60.5
        >>> seconds_until_more({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1s"})
    """
    spent = [reset for remaining, reset in _NAMES if headers.get(remaining) == "0"]
    waits = [_seconds(str(headers.get(reset, ""))) for reset in spent]
    return max((wait for wait in waits if wait is not None), default=None)


def _seconds(text: str) -> float | None:
    """Returns a wait in seconds: a number, a duration, a moment as Unix time or as a date; None for anything else."""
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

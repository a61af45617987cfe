"""Text for people: shortened, and without control characters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Literal

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters except tab and line feed, and characters that change the direction of writing."""


def harmless(text: str) -> str:
    """Replaces each character that controls a terminal by ``?``. Line feeds and tabs stay."""
    return _CONTROL.sub("?", text)


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def one_line(text: str, longest: int) -> str:
    return shortened(" ".join(text.split()), longest)


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def counted_are(count: int, noun: str) -> str:
    """Returns a number with its noun and the verb ``to be``.

    >>> counted_are(1, "pair"), counted_are(2, "pair")
    ('1 pair is', '2 pairs are')
    """
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


def money(usd: float) -> str:
    """Returns an amount with four decimal places.

    >>> money(1234.5), money(0.00001), money(0)
    ('1,234.5000 USD', 'less than 0.0001 USD', '0.0000 USD')
    """
    least = 0.0001
    return f"less than {least} USD" if 0 < usd < least else f"{usd:,.4f} USD"


def with_error(mean: float, stderr: float | None, *, sign: Literal["-", "+"] = "-") -> str:
    """Returns a mean with its standard error, or without it if it is unknown."""
    return f"{mean:{sign}.4f}" + ("" if stderr is None else f" (standard error {stderr:.4f})")


def nearest(name: str, choices: Iterable[str], listed: Iterable[str] = ()) -> str:
    """Returns a hint for an unknown name: the most similar choice, or else all choices (or ``listed``, if given)."""
    known = sorted(choices)
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Choose one of: {', '.join(listed or known) or 'none'}"

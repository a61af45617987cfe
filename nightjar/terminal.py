"""What a terminal obeys, and a text without it."""

from __future__ import annotations

import re

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and those that turn the direction of writing."""


def harmless(text: str) -> str:
    r"""Returns a text with ``?`` for what a terminal obeys; line feeds and tabs stay.

    Example:
        >>> harmless("a\x1b[31mb")
        'a?[31mb'
    """
    return _OBEYED.sub("?", text)

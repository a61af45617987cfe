"""JSON in what a model wrote."""

from __future__ import annotations

import json
import re
from typing import Any

_BLOCK = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
_DECODER = json.JSONDecoder()
_UNREADABLE = (ValueError, RecursionError)
"""The latter of a reply that goes round in circles, with more brackets in each other than Python reads."""


def extract_json(text: str) -> Any | None:
    """Returns the JSON value of a text: all of it, that of a fenced block, or the first object or array; else None.

    Example:
        >>> extract_json('Sure: {"a": [1]} is it.'), extract_json("no JSON")
        ({'a': [1]}, None)
    """
    for candidate in (text, *_BLOCK.findall(text)):
        try:
            return json.loads(candidate)
        except _UNREADABLE:
            continue
    for start in re.finditer(r"[{\[]", text):
        try:
            return _DECODER.raw_decode(text, start.start())[0]
        except ValueError:
            continue
        except RecursionError:
            return None
    return None

"""JSON in what a model wrote."""

from __future__ import annotations

import json
import re
from typing import Any

_BLOCK = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
_DECODER = json.JSONDecoder()


def extract_json(text: str) -> Any | None:
    """Returns the JSON value of a text: all of it, that of a fenced block, or the first object or array; else None.

    A reply that goes round in circles, with more brackets in each other than Python reads, has none either.

    Example:
        >>> extract_json('Sure: {"a": [1]} is it.'), extract_json("no JSON")
        ({'a': [1]}, None)
    """
    try:
        return _first_json(text)
    except RecursionError:
        return None


def _first_json(text: str) -> Any | None:
    for candidate in (text, *_BLOCK.findall(text)):
        try:
            return json.loads(candidate)
        except ValueError:
            continue
    for start in re.finditer(r"[{\[]", text):
        try:
            return _DECODER.raw_decode(text, start.start())[0]
        except ValueError:
            continue
    return None

"""Any value as JSON."""

from __future__ import annotations

import json
from typing import Any

import orjson


def json_bytes(value: Any, option: int = 0) -> bytes:
    """Encodes a value as JSON. Unknown objects and keys become their ``str``.

    Large integers and lone surrogates need Python's encoder, which supports only ``OPT_SORT_KEYS``. Raises
    ``TypeError`` for invalid keys, ``ValueError`` for cycles, and ``RecursionError`` for deep nesting.
    """
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | option)
    except TypeError:
        return json.dumps(value, default=str, sort_keys=bool(option & orjson.OPT_SORT_KEYS)).encode()

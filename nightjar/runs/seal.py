"""The digest that ``metadata.json`` holds of itself: whether its numbers are those that were written."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from nightjar.runs.jsonl import DIGEST_BYTES

_FIELD = "digest"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a JSON file is to hold, with a digest of it.

    Example:
        >>> unsealed(sealed({"scored": 3}))
        {'scored': 3}
    """
    return {**content, _FIELD: _digest(content)}


def unsealed(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what was sealed; None where it was changed. What has no digest may be anything.

    Example:
        >>> unsealed({**sealed({"scored": 3}), "scored": 4}) is None
        True
    """
    rest = {name: value for name, value in content.items() if name != _FIELD}
    return rest if content.get(_FIELD) in {None, _digest(rest)} else None


def _digest(content: Mapping[str, Any]) -> str:
    return blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=DIGEST_BYTES).hexdigest()

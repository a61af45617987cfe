"""Routes: which environment of a group an example belongs to, as its ``info["env_id"]`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

KEY = "env_id"


def route_of(info: Any) -> list[str]:
    """Returns the names on the way to an example's environment, the outermost first; empty where there are none.

    Raises:
        ValueError: ``env_id`` is neither a text nor a list.
    """
    value = _as_dict(info).get(KEY)
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence):
        return [str(name) for name in value]
    raise ValueError(f"info['env_id'] must be a text or a list of texts, found {value!r}")


def joined_info(info: Any, route: Sequence[str]) -> dict[str, Any]:
    """Returns an example's info with a route."""
    return {**_as_dict(info), KEY: route[0] if len(route) == 1 else list(route)}


def child_info(info: Any, route: Sequence[str]) -> dict[str, Any]:
    """Returns an example's info as the environment at the first name of its route knows it."""
    inner = list(route[1:])
    own = {key: value for key, value in _as_dict(info).items() if key != KEY}
    return joined_info(own, inner) if inner else own


def _as_dict(info: Any) -> dict[str, Any]:
    if isinstance(info, str):
        info = orjson.loads(info)
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise ValueError(  # noqa: TRY004 - of its kind here
            f"The info of an example in a group must be a dict, found {info!r}"
        )
    return dict(info)

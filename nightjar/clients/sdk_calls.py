"""Calling an official SDK's ``create`` with arguments that it may not know.

A server may take more than its protocol's SDK has parameters for (``top_k``, ``temperature`` for older models). An SDK
sends those too, when they are in ``extra_body``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any


def call_arguments(sampling_args: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Joins sampling arguments and those of one request, without what is None, and without the state.

    Both may have ``extra_headers`` and ``extra_body``; these are merged, the request's come first.
    """
    joined = {**sampling_args, **further}
    joined.pop("state", None)
    for name in ("extra_headers", "extra_body"):
        if sampling_args.get(name) and further.get(name):
            joined[name] = {**sampling_args[name], **further[name]}
    return {name: value for name, value in joined.items() if value is not None}


async def call_sdk(create: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Calls ``create``; arguments that it has no parameter for go into ``extra_body``."""
    known = _parameters(getattr(create, "__func__", create))
    if known is None:
        return await create(**arguments)
    named = {name: value for name, value in arguments.items() if name in known}
    if len(named) < len(arguments):
        unknown = {name: value for name, value in arguments.items() if name not in known}
        named["extra_body"] = {**unknown, **(arguments.get("extra_body") or {})}
    return await create(**named)


@lru_cache(maxsize=64)
def _parameters(create: Callable[..., Any]) -> frozenset[str] | None:
    """Returns the names of a function's parameters; None where it takes any."""
    parameters = inspect.signature(create).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)

"""Interceptors of a service's proxy, as middleware of the run's endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from nightjar.core.text import nearest

Middleware: TypeAlias = list[dict[str, Any]]
Arguments: TypeAlias = dict[str, Any]
REFUSED = "refused"
"""The type of errors whose message stands alone."""


class Interceptor(BaseModel):
    """One interceptor: its name, and its arguments in ``config``."""

    model_config = ConfigDict(extra="forbid")

    name: str
    config: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Interceptor:
        self.middleware()
        return self

    def middleware(self) -> Middleware:
        """Returns the middleware with the same effect; none if Nightjar does the same without middleware."""
        if self.name in _WITHOUT_EQUIVALENT:
            raise _refused(f"{self.name!r} cannot be honoured: {_WITHOUT_EQUIVALENT[self.name]}")
        if self.name not in _TRANSLATIONS:
            known = (*_TRANSLATIONS, *_WITHOUT_EQUIVALENT)
            raise _refused(f"there is no interceptor {self.name!r}. {nearest(self.name, known)}")
        arguments = dict(self.config)
        made = _TRANSLATIONS[self.name](arguments)
        if arguments:
            raise _refused(
                f"{self.name!r}: there is no equivalent of {', '.join(arguments)} "
                "(docs/coming-from/nemo.md#interceptors)"
            )
        return made

    @property
    def uses_cache(self) -> bool:
        return self.name == "caching" and not self.config.get("bypass", False)


def _refused(text: str) -> PydanticCustomError:
    return PydanticCustomError(REFUSED, "{text}", {"text": text})


def _drop(arguments: Arguments) -> Middleware:
    return [{"use": "drop", "parameters": arguments.pop("params", [])}]


def _payload(arguments: Arguments) -> Middleware:
    """Takes the arguments in the order in which they apply: removed, renamed, added."""
    kinds = (("params_to_remove", "drop", "parameters"), ("params_to_rename", "rename", "parameters"))
    taken = [(use, name, arguments.pop(key, None)) for key, use, name in (*kinds, ("params_to_add", "payload", "set"))]
    return [{"use": use, name: value} for use, name, value in taken if value]


def _system(arguments: Arguments) -> Middleware:
    mode = arguments.pop("strategy", "prepend")
    if mode not in ("prepend", "replace"):
        raise _refused(f"'system_message': the strategy must be prepend or replace (found {mode!r})")
    return [{"use": "system", "text": arguments.pop("system_message", ""), "mode": mode}]


def _consolidated(arguments: Arguments) -> Middleware:
    if arguments.get("separator") == "\n\n":
        del arguments["separator"]
    return [{"use": "consolidate_system"}]


def _turns(arguments: Arguments) -> Middleware:
    arguments.pop("every", None)  # how often it logs
    turns = arguments.pop("max_turns", None)
    return [] if turns is None else [{"use": "turn_limit", "turns": turns}]


def _log(arguments: Arguments) -> Middleware:
    path = arguments.pop("dump_path", None)
    return [{"use": "log"} | ({} if path is None else {"path": path})]


def _reasoning(_: Arguments) -> Middleware:
    return [{"use": "reasoning"}]


def _unneeded(*harmless: str) -> Callable[[Arguments], Middleware]:
    def translate(arguments: Arguments) -> Middleware:
        for name in harmless:
            arguments.pop(name, None)
        return []

    return translate


_TRANSLATIONS: Mapping[str, Callable[[Arguments], Middleware]] = {
    "drop_params": _drop,
    "payload_modifier": _payload,
    "system_message": _system,
    "consolidate_system": _consolidated,
    "turn_counter": _turns,
    "reasoning": _reasoning,
    "logging": _log,
    "http_pairs_dump": _log,
    "caching": _unneeded("cache_dir", "bypass"),
    "reasoning_replay": _unneeded("cache_max_entries", "log_misses"),
    "response_stats": _unneeded("every"),
    "progress_tracking": _unneeded("every"),
    **dict.fromkeys(("endpoint", "finish_reason", "log_tokens", "raise_client_errors"), _unneeded()),
}
"""Functions that take the arguments that they translate, and leave the others."""
_WITHOUT_EQUIVALENT = {
    "modify_tools": "the middleware tools removes tools and keywords of their schemas, not properties",
    "streaming": "responses are read as a whole",
}
"""Interceptors without an equivalent, each with the reason."""

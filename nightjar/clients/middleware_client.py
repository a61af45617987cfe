"""Creates middleware from configurations (``{"use": NAME, ...arguments}``) and runs it around a client."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from nightjar.clients.client import AnyClient, ClientAround
from nightjar.clients.middleware import BUILT_IN, BuiltIn, Log, Request
from nightjar.core.calling.functions import run_file
from nightjar.core.messages import Messages, Response, Tool
from nightjar.core.rollout.state import SamplingArgs
from nightjar.errors import ConfigError, Error, MiddlewareError, RunError

Spec: TypeAlias = Mapping[str, Any]

_ELSEWHERE = {
    **dict.fromkeys(["drop_params", "payload_modifier", "modify_tools"], "write drop, rename, payload or tools"),
    "system_message": "write system",
    "turn_counter": "write turn_limit",
    **dict.fromkeys(["logging", "http_pairs_dump"], "write log"),
    "caching": "a run has --cache",
    "reasoning_replay": "not needed: clients send reasoning back",
    **dict.fromkeys(["log_tokens", "response_stats", "finish_reason"], "not needed: every run records this, for SQL"),
    "progress_tracking": "not needed: every run shows its progress",
    **dict.fromkeys(["endpoint", "raise_client_errors"], "not needed: the client does this"),
    "streaming": "not needed: responses are read as a whole",
}
"""Interceptors of NeMo Evaluator that have another name or no equivalent in Nightjar, each with advice."""
HOOKS = ("request", "response", "failed")
_USE = "use"
_OWN = "a class as path.py:Class or module:Class"


def check_middleware(specs: Sequence[Spec]) -> None:
    """Checks names and arguments of middleware without running the user's code. Raises ``ConfigError``."""
    for spec in specs:
        use, arguments = _parsed(spec)
        if use in BUILT_IN:
            _built_in(use, arguments)


def load_middleware(specs: Sequence[Spec], folder: Path | None = None) -> list[Any]:
    """Creates the middleware of a configuration, or raises ``ConfigError``. Relative log paths are below ``folder``."""
    made = [_load(spec) for spec in specs]
    return [each.opened(folder or Path()) if isinstance(each, Log) else each for each in made]


def _load(spec: Spec) -> Any:
    use, arguments = _parsed(spec)
    if use in BUILT_IN:
        return _built_in(use, arguments)
    kind = _own_class(use)
    try:
        inspect.signature(kind).bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"middleware {use!r}: {error}. It takes {inspect.signature(kind)}") from None
    try:
        return kind(**arguments)
    except Exception as error:
        raise ConfigError(f"middleware {use!r} cannot be created: {type(error).__name__}: {error}") from error


def _parsed(spec: Spec) -> tuple[str, dict[str, Any]]:
    use = spec.get(_USE) if isinstance(spec, Mapping) else None
    if not isinstance(use, str) or not (use in BUILT_IN or all(use.rpartition(":"))):
        if isinstance(use, str) and use in _ELSEWHERE:
            raise ConfigError(f"middleware {use!r}: {_ELSEWHERE[use]} (docs/coming-from/nemo.md#interceptors)")
        raise ConfigError(f"middleware: {_USE} must be one of {', '.join(BUILT_IN)}, or {_OWN} (found {use!r})")
    return use, {name: value for name, value in spec.items() if name != _USE}


def _built_in(use: str, arguments: dict[str, Any]) -> BuiltIn:
    try:
        return BUILT_IN[use](**arguments)
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(str(part) for part in found["loc"])
        takes = ", ".join(BUILT_IN[use].model_fields) or "no arguments"
        problem = found["msg"].removeprefix("Value error, ")
        raise ConfigError(f"middleware {use!r}: {place}: {problem}. It takes {takes}") from None


def _own_class(use: str) -> type:
    place, _, name = use.rpartition(":")
    if place.endswith(".py") and not Path(place).is_file():
        raise ConfigError(f"middleware {use!r}: there is no file {place!r} on the machine of the run")
    try:
        module = run_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise ConfigError(f"middleware {use!r} cannot be loaded: {type(error).__name__}: {error}") from error
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not any(callable(getattr(kind, hook, None)) for hook in HOOKS):
        raise ConfigError(f"middleware {use!r}: {place} has no class {name!r} with a method request or response")
    return kind


class MiddlewareClient(ClientAround):
    """Changes requests in the order of the list, and responses in reverse order.

    Retries do not pass through the middleware again. The response cache comes after the middleware, and stores changed
    requests.
    """

    def __init__(self, asked: AnyClient, middleware: Sequence[Any]) -> None:
        super().__init__(asked, asked.config)
        self.max_retries, self.is_last_resort = asked.max_retries, asked.is_last_resort
        hooks = [{name: getattr(each, name) for name in HOOKS if hasattr(each, name)} for each in middleware]
        self._requests = [each["request"] for each in hooks if "request" in each]
        self._responses = [each["response"] for each in reversed(hooks) if "response" in each]
        self._failed = [each["failed"] for each in reversed(hooks) if "failed" in each]

    async def get_response(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **kwargs: Any
    ) -> Response:
        """Sends the changed request, and changes the response. Raises ``MiddlewareError`` if a middleware fails."""
        request = Request(prompt, model, sampling_args, tools, kwargs.get("state"))
        for hook in self._requests:
            changed = await _through(hook, Request, request)
            if request.messages and not changed.messages:
                raise MiddlewareError(f"Middleware {_name_of(hook)} removed all messages of the conversation")
            request = changed
        try:
            response = await self._asked(request, kwargs)
        except Exception as error:
            for hook in self._failed:
                await _through(hook, None, error, request)
            raise
        for hook in self._responses:
            response = await _through(hook, Response, response, request)
        return response

    async def _asked(self, request: Request, kwargs: dict[str, Any]) -> Response:
        asked = self.inner
        asked.max_retries, asked.is_last_resort = self.max_retries, self.is_last_resort  # set later, for judges
        return await asked.get_response(
            request.messages, request.model, dict(request.parameters), request.tools, **kwargs
        )


def with_middleware(client: AnyClient, specs: Sequence[Spec], folder: Path | None = None) -> AnyClient:
    return MiddlewareClient(client, load_middleware(specs, folder))


async def _through(hook: Any, kind: type | None, *given: Any) -> Any:
    name = _name_of(hook)
    try:
        made = hook(*given)
        if isawaitable(made):
            made = await made
    except (Error, RunError):
        raise
    except Exception as error:
        raise MiddlewareError(f"Middleware {name} raised {type(error).__name__}: {error}") from error
    if kind is not None and not isinstance(made, kind):
        raise MiddlewareError(f"Middleware {name} must return a {kind.__name__}, but returned {type(made).__name__}")
    return made


def _name_of(hook: Any) -> str:
    return type(hook.__self__).__name__ if hasattr(hook, "__self__") else repr(hook)

"""What all clients on an official SDK share: one request, with arguments that the SDK may not know.

A server may take more than its protocol's SDK has parameters for (``top_k``, ``temperature`` for older models). An SDK
sends those too, when they are in ``extra_body``.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, cast

from nightjar.clients.client import Client, ClientT, MessagesT, ResponseT, ToolT
from nightjar.clients.failures import named_error
from nightjar.rollout.state import SamplingArgs
from nightjar.secrecy import resolve


class SdkClient(Client[ClientT, MessagesT, ResponseT, ToolT]):
    """A client on an official SDK; subclasses say what a protocol's messages, arguments and answers look like."""

    prompt_field: ClassVar[str] = "messages"
    """The argument that is the prompt."""

    async def close(self) -> None:
        """Closes the connections."""
        await cast("Any", self.client).close()

    async def get_native_response(
        self,
        prompt: MessagesT,
        model: str,
        sampling_args: SamplingArgs,
        tools: list[ToolT] | None = None,
        **kwargs: Any,
    ) -> ResponseT:
        """Calls the provider once, with what ``native_arguments`` makes of the arguments.

        Raises:
            ConfigError: the protocol has no form for an argument.
            OverlongPromptError: the endpoint says that the prompt is too long.
            InvalidModelResponseError: the answer is not what the protocol promises.
            openai.OpenAIError, anthropic.AnthropicError: anything else, as the SDK raises it.
        """
        arguments = {"model": model, self.prompt_field: prompt, **call_arguments(sampling_args, kwargs)}
        if tools:
            arguments["tools"] = tools
        try:
            return await self.send(self.native_arguments(arguments))
        except Exception as error:
            if known := named_error(error, model):
                raise known from error
            raise

    @abstractmethod
    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a request in the protocol's words; may change those it is given."""

    @abstractmethod
    async def send(self, arguments: dict[str, Any]) -> ResponseT:
        """Sends one request."""


def call_arguments(sampling_args: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Joins sampling arguments and those of one request, without what is None, and without the state.

    Both may have ``extra_headers`` and ``extra_body``; these are merged, the request's come first. Headers that name a
    variable, ``$NAME``, get its value here.

    Raises:
        MissingKeyError: such a variable is not set.
    """
    joined = {**sampling_args, **further}
    joined.pop("state", None)
    for name in ("extra_headers", "extra_body"):
        if sampling_args.get(name) and further.get(name):
            joined[name] = {**sampling_args[name], **further[name]}
    if joined.get("extra_headers"):
        joined["extra_headers"] = resolve(joined["extra_headers"])
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

"""What the clients of all protocols share: the arguments of a request, and the errors of an endpoint.

In a call of an SDK, arguments without a parameter (``top_k``) are sent in ``extra_body``.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from nightjar.clients.answers import count_of, field_of
from nightjar.clients.client import Client, ClientT, MessagesT, ResponseT, ToolT
from nightjar.clients.endings import Ending, ending_of
from nightjar.clients.failures import named_error
from nightjar.clients.status_errors import error_of
from nightjar.core.rollout.state import SamplingArgs
from nightjar.core.secrecy import resolve
from nightjar.core.text import counted
from nightjar.errors import ContentFilteredError

LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""The names of the limit of generated tokens."""
_MOST_OVER, _MOST_OVER_TOKENS = 1.1, 8
"""How much more tokens than the limit a server may report, because servers count the last tokens differently."""


class ProtocolClient(Client[ClientT, MessagesT, ResponseT, ToolT]):
    """A client of a provider's protocol. A response is an SDK object, or an ``Answer`` if no SDK sent the request."""

    prompt_field: ClassVar[str] = "messages"
    endings: ClassVar[Mapping[str, Ending]]
    """The known reasons why a response ended."""

    def __init__(self, client_or_config: Any) -> None:
        super().__init__(client_or_config)
        self._unknown_endings = Counter[str]()

    async def close(self) -> None:
        for reason, count in self._unknown_endings.items():
            self.logger.warning("%s ended with the unknown reason %s.", counted(count, "response"), reason)
        self._unknown_endings.clear()
        await self._sender.close()

    def check_ending(self, reason: Any) -> Ending:
        """Returns how a response ended. Raises an error if a filter or a failure ended it."""
        ending = ending_of(reason, self.endings)
        if ending is Ending.FILTERED:
            raise ContentFilteredError(f"the content filter of the endpoint withheld the response ({reason})")
        if ending is Ending.FAILED:
            raise error_of({"message": f"the endpoint ended the response with the reason {reason!r}"})
        if ending is None:
            self.warn_once(f"The endpoint ended responses with the unknown reason {reason!r}. They count as answers.")
            self._unknown_endings[repr(reason)] += 1
        return ending or Ending.ANSWERED

    async def get_native_response(
        self,
        prompt: MessagesT,
        model: str,
        sampling_args: SamplingArgs,
        tools: list[ToolT] | None = None,
        **kwargs: Any,
    ) -> ResponseT:
        """Calls the provider once. Raises ``OverlongPromptError``, ``InvalidModelResponseError`` or ``ConfigError``."""
        arguments = {"model": model, self.prompt_field: prompt, **call_arguments(sampling_args, kwargs)}
        if tools:
            arguments["tools"] = tools
        try:
            arguments = self.native_arguments(arguments)
            response = await self.send(arguments)
        except Exception as error:
            if known := named_error(error, model):
                raise known from error
            raise
        self.check_limit(arguments, response)
        return response

    def check_limit(self, arguments: Mapping[str, Any], response: Any) -> str | None:
        """Returns the limit that a response ignored, as the name of its argument, and warns about the first."""
        name = next((name for name in LIMITS if name in arguments), None)
        if name is None or not isinstance(limit := arguments[name], int):
            return None
        usage = field_of(response, "usage")
        generated = count_of(usage, "completion_tokens") or count_of(usage, "output_tokens")
        if generated <= _MOST_OVER * limit + _MOST_OVER_TOKENS:
            return None
        self.warn_once(
            f"The endpoint ignores {name}={limit}: a response has {generated:,} tokens. If the server has another name "
            "for the limit, add it to sampling_args (-S)."
        )
        return name

    @abstractmethod
    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Converts the arguments of a request to the protocol's arguments. May change the given dict."""

    @abstractmethod
    async def send(self, arguments: dict[str, Any]) -> ResponseT:
        """Sends one request."""


def call_arguments(sampling_args: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Merges sampling arguments with one request's arguments, which win. Headers and ``extra_body`` merge by name."""
    joined = {**sampling_args, **further}
    joined.pop("state", None)
    for name in ("extra_headers", "extra_body"):
        if sampling_args.get(name) and further.get(name):
            joined[name] = {**sampling_args[name], **further[name]}
    if joined.get("extra_headers"):
        joined["extra_headers"] = resolve(joined["extra_headers"])
    return {name: value for name, value in joined.items() if value is not None}


async def call_sdk(create: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Calls ``create``. Arguments without a parameter go into ``extra_body``."""
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
    parameters = inspect.signature(create).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)

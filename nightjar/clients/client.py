"""``Client``: one protocol for every kind of model endpoint.

A client turns Nightjar's messages into the provider's format, calls its SDK, and turns the answer back.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeAlias, TypeVar

from nightjar.clients.config import ClientConfig
from nightjar.clients.credentials import key_hidden
from nightjar.clients.event_loops import disconnect_with_loop
from nightjar.clients.failures import classify, has_rejected_credentials
from nightjar.clients.pace import Pace, pace_of
from nightjar.clients.repeating import repeat, watch
from nightjar.errors import Error, InvalidModelResponseError, ModelError
from nightjar.messages import Messages, Response, Tool
from nightjar.rollout.state import SamplingArgs

ClientT = TypeVar("ClientT")
MessagesT = TypeVar("MessagesT")
ResponseT = TypeVar("ResponseT")
ToolT = TypeVar("ToolT")


class Client(ABC, Generic[ClientT, MessagesT, ResponseT, ToolT]):
    """A model endpoint.

    Type parameters are the provider's: its SDK client, its prompt, its response, its tool.

    Args:
        client_or_config: a configuration, from which the SDK client is made without retries of its own (Nightjar
            does them), or an SDK client, which keeps the retries that it was made with.

    Attributes:
        config: the configuration; None where an SDK client was given.
        max_retries: how often a request is made again after errors that can heal; an SDK client has its own retries.
        is_last_resort: requests are made again, too, after what another attempt at a rollout could mend.
        logger: named after the class.

    Example:
        >>> import asyncio
        >>> from nightjar.clients import ClientConfig, resolve_client
        >>> from nightjar.messages import UserMessage
        >>> from nightjar.testing import FixedAnswer, ModelServer
        >>> async def ask(url):
        ...     async with resolve_client(ClientConfig(api_base_url=url)) as client:
        ...         return await client.get_response([UserMessage(content="2+2?")], "any", {})
        >>> with ModelServer(FixedAnswer("4")) as server:
        ...     asyncio.run(ask(server.base_url)).message.content
        '4'
    """

    config: ClientConfig | None = None

    def __init__(self, client_or_config: ClientT | ClientConfig) -> None:
        self.logger = logging.getLogger(f"{type(self).__module__}.{type(self).__name__}")
        self._warnings: set[str] = set()
        self._pace: tuple[asyncio.AbstractEventLoop, Pace] | None = None
        self.max_retries = 0
        self.is_last_resort = False
        if isinstance(client_or_config, ClientConfig):
            self.config = client_or_config
            self.max_retries = client_or_config.max_retries
            self._client = self.setup_client(client_or_config)
        else:
            self._client = client_or_config
        if hasattr(self._client, "heard"):
            self._client.heard = lambda headers: self.pace().heard(headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client(self) -> ClientT:
        """The SDK client."""
        return self._client

    def pace(self) -> Pace:
        """Returns how fast the endpoint is asked in the running event loop."""
        loop = asyncio.get_running_loop()
        if self._pace is None or self._pace[0] is not loop:
            url = str(getattr(self._client, "base_url", id(self))).rstrip("/")
            self._pace = loop, pace_of((url, hash(getattr(self._client, "api_key", None))))
            if self.config is not None and self.config.max_concurrent:
                self._pace[1].allow(self.config.max_concurrent)
        return self._pace[1]

    def paces(self) -> Sequence[Pace]:
        """Returns the paces of all that it has asked; one, but for replicas."""
        return () if self._pace is None else (self._pace[1],)

    def warn_once(self, warning: str) -> None:
        """Logs a warning, the first time only."""
        if warning not in self._warnings:
            self._warnings.add(warning)
            self.logger.warning(warning)

    @abstractmethod
    def setup_client(self, config: ClientConfig) -> ClientT:
        """Makes the SDK client. Raises ``MissingKeyError`` where its key is not set."""

    @abstractmethod
    async def to_native_prompt(self, messages: Messages) -> tuple[MessagesT, dict[str, Any]]:
        """Returns the provider's prompt, and further arguments for ``get_native_response``."""

    @abstractmethod
    async def to_native_tool(self, tool: Tool) -> ToolT:
        """Returns the provider's form of a tool."""

    @abstractmethod
    async def get_native_response(
        self,
        prompt: MessagesT,
        model: str,
        sampling_args: SamplingArgs,
        tools: list[ToolT] | None = None,
        **kwargs: Any,
    ) -> ResponseT:
        """Calls the provider once."""

    @abstractmethod
    async def raise_from_native_response(self, response: ResponseT) -> None:
        """Raises a ``ModelError`` for an answer that cannot be used."""

    @abstractmethod
    async def from_native_response(self, response: ResponseT) -> Response:
        """Returns the answer in Nightjar's form."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the connections."""

    async def to_native_tools(self, tools: list[Tool] | None) -> list[ToolT] | None:
        """Returns the provider's form of all tools; None where there are none. Schemas are not copied."""
        return [await self.to_native_tool(tool) for tool in tools] if tools else None

    def headers_from_state(self, state: Mapping[str, Any] | None) -> dict[str, str]:
        """Returns the headers that ``extra_headers_from_state`` wants; without those whose field is missing or None."""
        wanted = self.config.extra_headers_from_state if self.config else {}
        if not wanted or state is None:
            return {}
        return {name: str(value) for name, key in wanted.items() if (value := state.get(key)) is not None}

    async def get_response(
        self,
        prompt: Messages,
        model: str,
        sampling_args: SamplingArgs,
        tools: list[Tool] | None = None,
        **kwargs: Any,
    ) -> Response:
        """Asks the model once.

        Args:
            prompt: the conversation so far.
            model: the name of the model, as the endpoint knows it.
            sampling_args: ``temperature``, ``max_tokens`` and so on; None values are left out.
            tools: what the model may call.
            **kwargs: passed on to ``get_native_response``. ``state`` is the rollout's: headers are taken from it, and
                some clients look at its trajectory; it is not sent. ``extra_headers`` go with this request only.

        A request that fails in a way that can heal is made again, up to ``max_retries`` of the configuration, and not
        faster than the endpoint accepts (``nightjar.clients.pace``).

        Raises:
            Error: what a client raises of its own accord, such as ``OverlongPromptError``.
            ModelError: anything else that went wrong; the provider's error is its cause. Rejected credentials
                are raised as the SDK's own error, as no further request can succeed.
        """
        return await repeat(
            lambda: self.request_once(prompt, model, sampling_args, tools, **kwargs),
            self.max_retries,
            is_last_resort=self.is_last_resort,
        )

    async def request_once(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **kwargs: Any
    ) -> Response:
        """Asks the model once, without further tries; arguments and errors as for ``get_response``."""
        with key_hidden(self._client):
            try:
                if self.config is None:
                    await disconnect_with_loop(self._client)
                if headers := self.headers_from_state(kwargs.get("state")):
                    kwargs["extra_headers"] = {**headers, **(kwargs.get("extra_headers") or {})}
                asked, extra = await self.to_native_prompt(prompt)
                offered = await self.to_native_tools(tools)
                return await self._in_turn(
                    partial(self._exchange, asked, model, sampling_args, offered, extra | kwargs)
                )
            except Error:
                raise
            except Exception as error:
                if has_rejected_credentials(error):
                    raise
                raise ModelError(f"Model {model!r}: {error}") from error

    async def _in_turn(self, exchange: Callable[[], Awaitable[Response]]) -> Response:
        """Sends a request when the endpoint is ready for it."""
        pace, watching = self.pace(), watch.get()
        async with pace.request():
            if watching is not None:
                watching.check()  # much may have been spent while this one waited
            try:
                response = await exchange()
            except Exception as error:
                pace.failed(classify(error))
                raise
        pace.answered()
        return response

    async def _exchange(
        self,
        asked: MessagesT,
        model: str,
        sampling_args: SamplingArgs,
        offered: list[ToolT] | None,
        extra: dict[str, Any],
    ) -> Response:
        native = await self.get_native_response(asked, model, sampling_args, offered, **extra)
        return await self._read(native)

    async def _read(self, native: ResponseT) -> Response:
        try:
            await self.raise_from_native_response(native)
            return await self.from_native_response(native)
        except Error:
            raise
        except Exception as error:  # servers send what no protocol has
            raise InvalidModelResponseError(f"the endpoint sent an answer of another shape: {error}") from error


AnyClient: TypeAlias = Client[Any, Any, Any, Any]

"""``Client``: one protocol for every kind of model endpoint.

A client turns Nightjar's messages into the provider's format, calls its SDK, and turns the answer back.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeAlias, TypeVar

from nightjar.clients.config import ClientConfig
from nightjar.clients.credentials import key_hidden
from nightjar.clients.event_loops import disconnect_with_loop
from nightjar.clients.failures import has_rejected_credentials
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
        if isinstance(client_or_config, ClientConfig):
            self.config = client_or_config
            self._client = self.setup_client(client_or_config)
        else:
            self._client = client_or_config

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client(self) -> ClientT:
        """The SDK client."""
        return self._client

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

        Raises:
            Error: what a client raises of its own accord, such as ``OverlongPromptError``.
            ModelError: anything else that went wrong; the provider's error is its cause. Rejected credentials
                are raised as the SDK's own error, as no further request can succeed.
        """
        with key_hidden(self._client):
            try:
                if self.config is None:
                    await disconnect_with_loop(self._client)
                if headers := self.headers_from_state(kwargs.get("state")):
                    kwargs["extra_headers"] = {**headers, **(kwargs.get("extra_headers") or {})}
                asked, extra = await self.to_native_prompt(prompt)
                offered = await self.to_native_tools(tools)
                native = await self.get_native_response(asked, model, sampling_args, offered, **extra, **kwargs)
                return await self._read(native)
            except Error:
                raise
            except Exception as error:
                if has_rejected_credentials(error):
                    raise
                raise ModelError(f"Model {model!r}: {error}") from error

    async def _read(self, native: ResponseT) -> Response:
        try:
            await self.raise_from_native_response(native)
            return await self.from_native_response(native)
        except Error:
            raise
        except Exception as error:  # servers send what no protocol has
            raise InvalidModelResponseError(f"the endpoint sent an answer of another shape: {error}") from error


AnyClient: TypeAlias = Client[Any, Any, Any, Any]

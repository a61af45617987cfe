"""``Client``: one interface for every kind of model endpoint."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from nightjar.clients.config import ClientConfig
from nightjar.clients.credentials import key_hidden
from nightjar.clients.failures import classify, has_rejected_credentials, message_of
from nightjar.clients.pace import Pace, pace_of
from nightjar.clients.retries import repeat, watch
from nightjar.clients.status_errors import APIError
from nightjar.core.calling.loops import PerLoop
from nightjar.core.messages import Messages, Response, Tool
from nightjar.core.rollout.state import SamplingArgs
from nightjar.errors import ConfigError, Error, InvalidModelResponseError, ModelError

ClientT = TypeVar("ClientT")
MessagesT = TypeVar("MessagesT")
ResponseT = TypeVar("ResponseT")
ToolT = TypeVar("ToolT")

_of_sdk_clients: WeakKeyDictionary[Any, PerLoop[None]] = WeakKeyDictionary()


class Client(ABC, Generic[ClientT, MessagesT, ResponseT, ToolT]):
    """A model endpoint. The type parameters are the provider's SDK client, prompt, response and tool.

    If an SDK client is given, only the SDK retries, and ``max_retries`` is 0. With a configuration, only Nightjar
    retries. With ``is_last_resort``, errors that another attempt at the rollout could fix are also retried.

    Example:
        >>> import asyncio
        >>> from nightjar.clients import ClientConfig, resolve_client
        >>> from nightjar.core.messages import UserMessage
        >>> from nightjar.model_server import FixedAnswer, ModelServer
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
            self._sender: Any = self.connect(client_or_config)
        else:
            self._sender = client_or_config
        if hasattr(self._sender, "heard"):
            self._sender.heard = lambda headers: self.pace().heard(headers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client(self) -> ClientT:
        """The SDK client."""
        sdk_client: ClientT = self._sender
        return sdk_client

    def pace(self) -> Pace:
        """Returns the pace of the endpoint in the running event loop."""
        loop = asyncio.get_running_loop()
        if self._pace is None or self._pace[0] is not loop:
            url = str(getattr(self._sender, "base_url", id(self))).rstrip("/")
            self._pace = loop, pace_of((url, hash(getattr(self._sender, "api_key", None))))
            if self.config is not None and self.config.max_concurrent:
                self._pace[1].allow(self.config.max_concurrent)
        return self._pace[1]

    def paces(self) -> Sequence[Pace]:
        """Returns the paces of the endpoints that were used. There is one pace, except for replicas."""
        return () if self._pace is None else (self._pace[1],)

    def warn_once(self, warning: str) -> None:
        """Logs a warning once."""
        if warning not in self._warnings:
            self._warnings.add(warning)
            self.logger.warning(warning)

    def connect(self, config: ClientConfig) -> Any:
        """Returns the object that sends the requests: the SDK client, or connections that need no SDK."""
        return self.setup_client(config)

    @abstractmethod
    def setup_client(self, config: ClientConfig) -> ClientT:
        """Creates the SDK client. Raises ``MissingKeyError`` if the key is not set."""

    @abstractmethod
    async def to_native_prompt(self, messages: Messages) -> tuple[MessagesT, dict[str, Any]]:
        """Converts messages to the provider's prompt and to further arguments for ``get_native_response``."""

    @abstractmethod
    async def to_native_tool(self, tool: Tool) -> ToolT:
        """Converts a tool to the provider's form."""

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
        """Raises a ``ModelError`` if the response is unusable."""

    @abstractmethod
    async def from_native_response(self, response: ResponseT) -> Response:
        """Converts the provider's response."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the connections."""

    async def to_native_tools(self, tools: list[Tool] | None) -> list[ToolT] | None:
        """Converts all tools to the provider's form. Without tools, returns None. Schemas are not copied."""
        return [await self.to_native_tool(tool) for tool in tools] if tools else None

    def headers_from_state(self, state: Mapping[str, Any] | None) -> dict[str, str]:
        """Returns the headers in ``extra_headers_from_state`` whose state field is set."""
        wanted = self.config.extra_headers_from_state if self.config else {}
        if not wanted or state is None:
            return {}
        return {name: str(value) for name, key in wanted.items() if (value := state.get(key)) is not None}

    async def get_response(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **kwargs: Any
    ) -> Response:
        """Requests a response, with retries, no faster than the endpoint accepts (``nightjar.clients.pace``).

        None values in ``sampling_args`` are left out. ``kwargs`` go to ``get_native_response``. The rollout's ``state``
        is not sent, but some headers are read from the state. ``extra_headers`` apply to this request only.

        Raises a specific error, such as ``OverlongPromptError``, or else ``ModelError``, caused by the provider's
        error. Rejected credentials are raised as the SDK's error, because no further request can succeed.
        """
        return await repeat(
            lambda: self.request_once(prompt, model, sampling_args, tools, **kwargs),
            self.max_retries,
            is_last_resort=self.is_last_resort,
            paces=self.paces,
        )

    async def request_once(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **kwargs: Any
    ) -> Response:
        """Requests a response without retries. ``get_response`` describes arguments and errors."""
        with key_hidden(self._sender):
            try:
                if self.config is None:
                    await disconnect_with_loop(self._sender)
                if headers := self.headers_from_state(kwargs.get("state")):
                    kwargs["extra_headers"] = {**headers, **(kwargs.get("extra_headers") or {})}
                asked, extra = await self.to_native_prompt(prompt)
                offered = await self.to_native_tools(tools)
                return await self._exchange(asked, model, sampling_args, offered, extra | kwargs)
            except Error:
                raise
            except Exception as error:
                if has_rejected_credentials(error):
                    raise
                raise ModelError(f"Model {model!r}: {message_of(error)}") from error

    async def _exchange(
        self,
        asked: MessagesT,
        model: str,
        sampling_args: SamplingArgs,
        offered: list[ToolT] | None,
        extra: dict[str, Any],
    ) -> Response:
        pace, watching = self.pace(), watch.get()
        async with pace.request() as sample:
            if watching is not None:
                watching.check()  # the budget may have been spent while this request waited
            started_at = time.monotonic()
            try:
                native = await self.get_native_response(asked, model, sampling_args, offered, **extra)
                response = await self._read(native)
            except Exception as error:
                pace.failed(sample, classify(error))
                raise
        pace.answered(sample, time.monotonic() - started_at)
        return response

    async def _read(self, native: ResponseT) -> Response:
        try:
            await self.raise_from_native_response(native)
            return await self.from_native_response(native)
        except (Error, APIError):
            raise
        except Exception as error:  # some servers do not follow the protocol
            raise InvalidModelResponseError(f"the endpoint sent a response of an unexpected shape: {error}") from error


AnyClient: TypeAlias = Client[Any, Any, Any, Any]


async def disconnect_with_loop(sdk_client: Any) -> None:
    """Closes the connections of a user's SDK client before the running loop ends. The client stays usable."""
    http = getattr(sdk_client, "_client", None)  # the httpx client
    transports = [getattr(http, "_transport", None), *getattr(http, "_mounts", {}).values()]
    closings = [transport.aclose for transport in transports if hasattr(transport, "aclose")]
    if not closings:
        return
    if http not in _of_sdk_clients:
        _of_sdk_clients[http] = PerLoop(lambda: None, lambda _: asyncio.gather(*(close() for close in closings)))
    await _of_sdk_clients[http].get()


class ClientAround(Client[Any, Any, Any, Any]):
    """Delegates to another client, and also closes that client. Subclasses change ``get_response``."""

    def __init__(self, asked: Any, config: ClientConfig | None) -> None:
        super().__init__(asked)
        self.config = config

    @property
    def inner(self) -> AnyClient:
        """The client that converts messages and responses."""
        inner: AnyClient = self.client
        return inner

    def paces(self) -> Sequence[Pace]:
        return self.inner.paces()

    def setup_client(self, config: ClientConfig) -> Any:
        raise ConfigError(f"A {type(self).__name__} is made from clients, found {config!r}. Use resolve_client.")

    async def to_native_prompt(self, messages: Messages) -> tuple[Any, dict[str, Any]]:
        return await self.inner.to_native_prompt(messages)

    async def to_native_tool(self, tool: Tool) -> Any:
        return await self.inner.to_native_tool(tool)

    async def get_native_response(self, *args: Any, **kwargs: Any) -> Any:
        return await self.inner.get_native_response(*args, **kwargs)

    async def raise_from_native_response(self, response: Any) -> None:
        await self.inner.raise_from_native_response(response)

    async def from_native_response(self, response: Any) -> Response:
        return await self.inner.from_native_response(response)

    async def close(self) -> None:
        await self.inner.close()


class UnaskedClient(Client[None, Any, Any, Any]):
    """Refuses every request with a ``ModelError``, for rollouts that are only scored."""

    def __init__(self) -> None:
        super().__init__(None)

    async def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ModelError("No request is sent: the rollouts are only scored")

    get_response: Any = _refuse
    get_native_response: Any = _refuse
    to_native_prompt: Any = _refuse
    to_native_tool: Any = _refuse
    from_native_response: Any = _refuse
    raise_from_native_response: Any = _refuse
    setup_client: Any = None

    async def close(self) -> None:
        """Does nothing."""

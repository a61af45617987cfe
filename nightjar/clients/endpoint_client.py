"""Sends the requests of all protocols as JSON through aiohttp, or through a user's SDK client."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, ClassVar, cast

from pydantic import BaseModel

from nightjar.clients.client import ClientT, MessagesT, ResponseT, ToolT
from nightjar.clients.config import ClientConfig, EndpointClientConfig, resolve_client_config
from nightjar.clients.error_bodies import error_in
from nightjar.clients.protocol_client import ProtocolClient, call_sdk
from nightjar.clients.status_errors import APIError, error_of
from nightjar.clients.transport import Answer, Endpoint

_OPTIONS = frozenset({"extra_headers", "extra_body", "timeout"})


class EndpointClient(ProtocolClient[ClientT, MessagesT, ResponseT, ToolT]):
    """Sends requests without the provider's SDK, unless an SDK client is given or a subclass sets one up."""

    sdk: ClassVar[str]
    """The module of the provider's SDK, ``openai`` or ``anthropic``."""
    route: ClassVar[str]
    """The path below the base URL, such as ``/chat/completions``, and the path of ``create`` in the SDK."""
    _sdk_client: ClientT | None = None

    @property
    def client(self) -> ClientT:
        """The SDK client, which is made on first use, because the SDK takes a second to import."""
        if not isinstance(self._sender, Endpoint):
            return cast("ClientT", self._sender)
        if self._sdk_client is None:
            self._sdk_client = self.make_sdk_client(self._sender.config, self._sender.api_key)
            cast("Any", self._sdk_client).heard = self._sender.heard
        return self._sdk_client

    def connect(self, config: ClientConfig) -> Any:
        is_usual = type(self).setup_client is EndpointClient.setup_client
        return self.make_endpoint(resolve_client_config(config)) if is_usual else self.setup_client(config)

    def setup_client(self, config: ClientConfig) -> ClientT:
        return self.make_sdk_client(resolve_client_config(config))

    def make_endpoint(self, config: EndpointClientConfig) -> Endpoint:
        """Returns the connection to the endpoint that the configuration names."""
        return Endpoint(config)

    @abstractmethod
    def make_sdk_client(self, config: EndpointClientConfig, key: str | None = None) -> ClientT:
        """Returns an SDK client of the endpoint. If ``key`` is None, the key is read from its variable."""

    async def close(self) -> None:
        await super().close()
        if self._sdk_client is not None:
            await cast("Any", self._sdk_client).close()

    async def send(self, arguments: dict[str, Any]) -> ResponseT:
        if isinstance(self._sender, Endpoint):
            return cast("ResponseT", await self.post(self.route, arguments))
        resource = attrgetter(self.route.strip("/").replace("/", "."))(self._sender)
        response = await call_sdk(resource.create, arguments)
        if found := error_in(response.model_dump(mode="json") if isinstance(response, BaseModel) else response):
            raise error_of(found)
        return cast("ResponseT", response)

    async def post(self, route: str, arguments: Mapping[str, Any]) -> Answer:
        """Posts the arguments to a route, which the SDK need not have.

        If this process has imported the SDK, the SDK's errors are raised, because environments may catch them.
        """
        body = {name: value for name, value in arguments.items() if name not in _OPTIONS}
        body.update(arguments.get("extra_body") or {})
        headers, timeout = arguments.get("extra_headers"), arguments.get("timeout")
        if isinstance(self._sender, Endpoint):
            try:
                return await self._sender.post(route, body, headers, timeout)
            except APIError as error:
                if self.sdk not in sys.modules:
                    raise
                from nightjar.clients.sdk_client import sdk_error

                raise sdk_error(sys.modules[self.sdk], error, self._sender.url(route)) from error.__cause__
        options = {"headers": headers, "timeout": timeout}
        given = {name: value for name, value in options.items() if value}
        sdk_client: Any = self._sender
        return Answer(await sdk_client.post(route, cast_to=object, body=body, options=given))

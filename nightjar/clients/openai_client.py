"""What the clients of OpenAI's protocols share: the SDK client, and one request."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar, cast

import openai
from openai import AsyncOpenAI

from nightjar.clients.aiohttp_sender import SendsByAiohttp
from nightjar.clients.client import MessagesT, ResponseT, ToolT
from nightjar.clients.config import ClientConfig, resolve_client_config
from nightjar.clients.sdk_client import SdkClient, call_sdk
from nightjar.messages import Tool

_OPTIONS = {"extra_headers": "headers", "extra_body": "extra_json", "timeout": "timeout"}


class AiohttpOpenAI(SendsByAiohttp, AsyncOpenAI):
    """``AsyncOpenAI`` that sends JSON requests through aiohttp."""

    _sdk, _kind = openai, AsyncOpenAI


def setup_openai_client(config: ClientConfig) -> AsyncOpenAI:
    """Returns an SDK client of an endpoint; of replica number ``client_idx`` where it has several.

    Raises:
        MissingKeyError: the endpoint's key is not set.

    Example:
        >>> setup_openai_client(ClientConfig(api_base_url="http://localhost:8000/v1")).max_retries
        0
    """
    return AiohttpOpenAI(resolve_client_config(config))


class OpenAIClient(SdkClient[AsyncOpenAI, MessagesT, ResponseT, ToolT]):
    """A client on the official OpenAI SDK."""

    route: ClassVar[str]
    """The path below the base URL, ``/chat/completions``; the SDK's ``create`` has the same path."""
    answer_type: ClassVar[Any]
    """The SDK's type of the answer."""

    def setup_client(self, config: ClientConfig) -> AsyncOpenAI:
        """Makes the SDK client, with its own retries off."""
        return setup_openai_client(config)

    async def send(self, arguments: dict[str, Any]) -> ResponseT:
        """Asks once, with arguments as the SDK's ``create`` takes them, and others that the server knows."""
        if isinstance(self.client, AiohttpOpenAI):
            return cast("ResponseT", await self.post(self.route, self.answer_type, arguments))
        resource = attrgetter(self.route.strip("/").replace("/", "."))(self.client)
        return cast("ResponseT", await call_sdk(resource.create, arguments))

    async def post(self, route: str, answer_type: Any, arguments: dict[str, Any]) -> Any:
        """Posts the arguments as they are: without the SDK's look at each of them, and to routes that it lacks."""
        options = {option: arguments[name] for name, option in _OPTIONS.items() if arguments.get(name)}
        body = {name: value for name, value in arguments.items() if name not in _OPTIONS}
        post: Any = self.client.post
        return await post(route, cast_to=answer_type, body=body, options=options)


def native_function(tool: Tool) -> dict[str, Any]:
    """Returns a tool as OpenAI's protocols describe a function."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return function if tool.strict is None else {**function, "strict": tool.strict}

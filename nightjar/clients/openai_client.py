"""What the clients of OpenAI's protocols share: the SDK client, and one request."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import openai
from openai import AsyncOpenAI

from nightjar.clients.aiohttp_sender import SendsByAiohttp
from nightjar.clients.client import Client
from nightjar.clients.config import ClientConfig, resolve_client_config
from nightjar.clients.provider_errors import provider_errors
from nightjar.clients.sdk_calls import call_sdk

if TYPE_CHECKING:
    from openai._types import RequestOptions

MessagesT = TypeVar("MessagesT")
ResponseT = TypeVar("ResponseT")
ToolT = TypeVar("ToolT")

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


class OpenAIClient(Client[AsyncOpenAI, MessagesT, ResponseT, ToolT]):
    """A client on the official OpenAI SDK; subclasses say what a protocol's messages look like."""

    def setup_client(self, config: ClientConfig) -> AsyncOpenAI:
        """Makes the SDK client, with its own retries off."""
        return setup_openai_client(config)

    async def close(self) -> None:
        """Closes the connections."""
        await self.client.close()

    async def create(self, route: str, answer_type: Any, arguments: dict[str, Any]) -> Any:
        """Asks once.

        Args:
            route: the path below the base URL, ``/chat/completions``; the SDK's ``create`` has the same path.
            answer_type: the SDK's type of the answer.
            arguments: as the SDK's ``create`` takes them, and others that the server knows.

        Raises:
            OverlongPromptError: the endpoint says that the prompt is too long.
            InvalidModelResponseError: the answer is not what the protocol promises.
            openai.OpenAIError: anything else, as the SDK raises it.
        """
        with provider_errors(arguments["model"]):
            if isinstance(self.client, AiohttpOpenAI):
                return await self.post(route, answer_type, arguments)
            resource = attrgetter(route.strip("/").replace("/", "."))(self.client)
            return await call_sdk(resource.create, arguments)

    async def post(self, route: str, answer_type: Any, arguments: dict[str, Any]) -> Any:
        """Posts the arguments as they are: without the SDK's look at each of them, and to routes that it lacks."""
        options = {option: arguments[name] for name, option in _OPTIONS.items() if arguments.get(name)}
        body = {name: value for name, value in arguments.items() if name not in _OPTIONS}
        return await self.client.post(route, cast_to=answer_type, body=body, options=cast("RequestOptions", options))

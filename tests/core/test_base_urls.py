"""Base URLs: queries, keys in them, and routes that do not exist."""

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.config import BaseUrl
from nightjar.clients.protocols import PROTOCOLS
from nightjar.core.messages import UserMessage
from nightjar.errors import ModelError


@pytest.fixture
def missing(canned):
    """A server that has no route."""
    canned.reply({"error": {"message": "no such route"}}, 404)
    canned.url = canned.url.removesuffix("/v1")
    return canned


async def error_of(url, client_type="openai_chat_completions"):
    config = ClientConfig(api_base_url=url, client_type=client_type, max_retries=0)
    async with resolve_client(config) as client:
        with pytest.raises(ModelError) as failed:
            await client.get_response([UserMessage(content="2+2?")], "m", {"max_tokens": 9})
    return str(failed.value)


async def test_a_query_is_sent_with_every_request(missing):
    for client_type in PROTOCOLS.keys() - {"openai_chat_completions_token"}:
        await error_of(f"{missing.url}/v1/?api-version=2024-10-21&region=eu", client_type)
        assert missing.addresses[-1] == f"/v1{PROTOCOLS[client_type].route}?api-version=2024-10-21&region=eu"


async def test_a_missing_route_is_named_with_the_likely_base_url(missing):
    for path, client_type, advice in (
        ("/v1", "openai_chat_completions", []),
        ("/v1/chat/completions", "openai_chat_completions", [f"probably {missing.url}/v1"]),
        ("", "openai_chat_completions", [f"perhaps {missing.url}/v1"]),
        ("/v1/messages", "anthropic_messages", [f"probably {missing.url}/v1"]),
        ("", "anthropic_messages", []),
    ):
        error = await error_of(missing.url + path, client_type)
        assert missing.url + missing.addresses[-1] in error
        assert re.findall("The base URL is (.*)", error) == advice, path


def test_a_base_url_that_may_hold_a_key_is_refused_by_the_model_and_by_its_schema():
    schema = TypeAdapter(BaseUrl).json_schema()["not"]["pattern"]
    for url in ("v1?api-version=2024-10-21", "v1?a=1&b=x.y:z", "a@b/v1"):
        assert re.search(schema, f"https://host/{url}") is None
        assert ClientConfig(api_base_url=f"https://host/{url}").api_base_url == f"https://host/{url}"
    for url in (
        *(f"https://host/v1?{name}=1" for name in ("api_key", "API_KEY", "sig", "access-token", "code")),
        "https://host/v1?a=1&subscription-key=2",
        "https://host/v1?secret-without-a-name",
        f"https://host/v1?long={'a' * 33}",
        "https://host/v1#fragment",
        "https://user:password@host/v1",
    ):
        assert re.search(schema, url), url
        with pytest.raises(ValidationError):
            ClientConfig(api_base_url=url)

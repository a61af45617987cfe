"""Endpoints: URLs, keys by name, and what a client is made of."""

import openai
import pytest
from pydantic import ValidationError

from nightjar.clients import ClientConfig, OpenAIChatCompletionsClient, resolve_api_key, resolve_client
from nightjar.errors import ConfigError, MissingKeyError

REMOTE = "https://api.example.com/v1"


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("TEST_KEY", raising=False)


def config(url=REMOTE, **fields):
    return ClientConfig(api_base_url=url, api_key_var="TEST_KEY", **fields)


class TestKeys:
    def test_read_from_the_variable_without_surrounding_blanks(self, monkeypatch):
        monkeypatch.setenv("TEST_KEY", " sk-1\n")
        assert resolve_api_key(config()) == "sk-1"

    @pytest.mark.parametrize("value", [None, "", "  \n"])
    def test_without_one_there_is_no_remote_endpoint(self, monkeypatch, value):
        if value is not None:
            monkeypatch.setenv("TEST_KEY", value)
        with pytest.raises(MissingKeyError, match="Environment variable 'TEST_KEY' not set"):
            resolve_api_key(config())

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
    def test_this_machine_needs_none(self, host):
        assert resolve_api_key(config(f"http://{host}:8000/v1")) == "EMPTY"

    @pytest.mark.parametrize("host", ["localhost.example.com", "127.0.0.1.example.com", "10.0.0.1"])
    def test_what_only_looks_like_this_machine_needs_one(self, host):
        with pytest.raises(MissingKeyError):
            resolve_api_key(config(f"http://{host}/v1"))

    def test_a_key_that_no_header_can_carry_is_named_not_shown(self, monkeypatch):
        monkeypatch.setenv("TEST_KEY", "schlüssel")
        with pytest.raises(ConfigError, match="'TEST_KEY' holds characters") as caught:
            resolve_api_key(config())
        assert "schl" not in str(caught.value)

    def test_a_configuration_never_holds_the_key(self, monkeypatch):
        monkeypatch.setenv("TEST_KEY", "sk-secret")
        assert "sk-secret" not in config().model_dump_json()


class TestConfig:
    def test_a_trailing_slash_of_the_url_is_dropped(self):
        assert config("http://localhost:1/v1/").api_base_url == "http://localhost:1/v1"

    @pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://x/v1", "http://", "", "/v1"])
    def test_a_url_needs_scheme_and_host(self, url):
        with pytest.raises(ValidationError, match="must start with http:// or https:// and name a host"):
            config(url)

    def test_unknown_fields_are_refused(self):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            config(api_key="sk-1")

    def test_replicas_have_no_replicas(self):
        nested = {"api_base_url": REMOTE, "endpoint_configs": [{"api_base_url": REMOTE}]}
        with pytest.raises(ValidationError, match="entries cannot include endpoint_configs"):
            config(endpoint_configs=[nested])


class TestResolve:
    async def test_a_configuration_becomes_a_client(self):
        client = resolve_client(config("http://localhost:1/v1"))
        assert (type(client), client.config.api_base_url) == (OpenAIChatCompletionsClient, "http://localhost:1/v1")
        await client.close()

    async def test_an_sdk_client_is_wrapped(self):
        async with openai.AsyncOpenAI(api_key="k", base_url=REMOTE) as sdk:
            client = resolve_client(sdk)
            assert (client.client, client.config) == (sdk, None)

    def test_a_client_is_itself(self, scripted_client):
        client = scripted_client("x")
        assert resolve_client(client) is client

    def test_a_missing_key_is_found_before_any_request(self):
        with pytest.raises(MissingKeyError):
            resolve_client(config())

    def test_anything_else_is_refused(self):
        with pytest.raises(ConfigError, match="Not a client, a ClientConfig or an SDK client: 'gpt'"):
            resolve_client("gpt")

    async def test_nightjar_retries_so_the_sdk_does_not(self):
        client = resolve_client(config("http://localhost:1/v1", max_retries=10))
        assert client.client.max_retries == 0
        await client.close()

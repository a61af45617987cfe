"""Endpoints: URLs, keys by name, and what a client is made of."""

import pytest
from pydantic import ValidationError

from nightjar.clients import (
    ClientConfig,
    EndpointClientConfig,
    load_prime_config,
    resolve_api_key,
    resolve_client,
    resolve_client_config,
    resolve_client_configs,
)
from nightjar.clients.credentials import request_headers
from nightjar.errors import ConfigError, MissingKeyError

REMOTE = "https://api.example.com/v1"


@pytest.fixture(autouse=True)
def no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("TEST_KEY", "PRIME_API_KEY", "PRIME_TEAM_ID"):
        monkeypatch.delenv(name, raising=False)


def config(url=REMOTE, **fields):
    return ClientConfig(api_base_url=url, api_key_var="TEST_KEY", **fields)


def test_every_host_but_this_machine_needs_a_key_from_its_variable(monkeypatch):
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert resolve_api_key(config(f"http://{host}:8000/v1")) == "EMPTY"
    for host in ("localhost.example.com", "127.0.0.1.example.com", "10.0.0.1"):
        with pytest.raises(MissingKeyError):
            resolve_api_key(config(f"http://{host}/v1"))
    for value in (None, "", "  \n"):
        if value is not None:
            monkeypatch.setenv("TEST_KEY", value)
        with pytest.raises(MissingKeyError, match="'TEST_KEY'"):
            resolve_api_key(config())
    monkeypatch.setenv("TEST_KEY", " sk-1\n")
    assert resolve_api_key(config()) == "sk-1"
    assert "sk-1" not in config().model_dump_json()
    monkeypatch.setenv("TEST_KEY", "schlüssel")
    with pytest.raises(ConfigError, match="'TEST_KEY'") as caught:
        resolve_api_key(config())
    assert "schl" not in str(caught.value), "a key that no header can carry is named, not shown"


@pytest.fixture
def saved(tmp_path):
    """Writes ``~/.prime/config.json``, where Prime's own command line keeps a key and a team."""

    def save(text):
        (tmp_path / ".prime").mkdir(exist_ok=True)
        (tmp_path / ".prime" / "config.json").write_text(text)

    return save


def test_prime_s_key_and_team_are_variables_or_in_its_file_which_is_ignored_if_it_is_broken(saved, caplog, monkeypatch):
    for text in ("{", "[]", '"key"', '{"api_key": 5, "team_id": null}'):
        caplog.clear()
        saved(text)
        is_broken = "api_key" not in text
        assert not is_broken or load_prime_config() == {}
        assert request_headers(ClientConfig()) == {}
        with pytest.raises(MissingKeyError):
            resolve_api_key(ClientConfig())
        assert ("~/.prime/config.json" in caplog.text) is is_broken
    with pytest.raises(MissingKeyError, match="'PRIME_API_KEY'"):
        resolve_api_key(ClientConfig())
    saved('{"api_key": " pit-file "}')
    with pytest.raises(MissingKeyError, match="'TEST_KEY'"):
        resolve_api_key(config())
    assert resolve_api_key(ClientConfig()) == "pit-file"
    monkeypatch.setenv("PRIME_API_KEY", "pit-env")
    assert resolve_api_key(ClientConfig()) == "pit-env"
    assert request_headers(ClientConfig()) == {}
    saved('{"team_id": "team-file"}')
    assert request_headers(ClientConfig()) == {"X-Prime-Team-ID": "team-file"}
    monkeypatch.setenv("PRIME_TEAM_ID", "team-env")
    assert request_headers(ClientConfig(extra_headers={"X-A": "1"})) == {"X-Prime-Team-ID": "team-env", "X-A": "1"}
    assert request_headers(ClientConfig(extra_headers={"X-Prime-Team-ID": "t"})) == {"X-Prime-Team-ID": "t"}
    assert request_headers(config(extra_headers={"X-A": "1"})) == {"X-A": "1"}, "other keys have no team"


def test_invalid_urls_headers_and_fields_are_refused():
    assert config("http://localhost:1/v1/").api_base_url == "http://localhost:1/v1"
    with pytest.raises(ValidationError, match="api_key"):
        config(api_key="sk-1")
    for url in ("localhost:8000/v1", "ftp://x/v1", "http://", "", "/v1"):
        with pytest.raises(ValidationError, match="api_base_url"):
            config(url)
    for headers, message in (
        ([("X-A", "1")], "dict"), ({" ": "1"}, "' '"), ({1: "1"}, "found 1"), ({"X-A": 1}, "found 1 for 'X-A'"),
        ({"X-A": "1\r\nX-B: 2"}, "'X-A'"),
    ):  # fmt: skip
        for kind in (ClientConfig, EndpointClientConfig):
            with pytest.raises(ValidationError, match=message):
                kind(extra_headers=headers)
    fields = {"renderer": "qwen3", "renderer_model_name": "q", "renderer_pool_size": 2, "tool_parser": "hermes"}
    fields |= {"reasoning_parser": "r", "preserve_all_thinking": True, "preserve_thinking_between_tool_calls": True}
    assert fields.items() <= config(**fields).model_dump().items()
    with pytest.raises(ValidationError, match="'openai_chat_completions'"):
        config(client_type="renderer")


def test_replicas_are_chosen_by_number_and_have_what_was_set_for_them_or_around_them():
    endpoints = [
        {"api_base_url": "http://localhost:1/v1"},
        EndpointClientConfig(api_base_url="http://localhost:2/v1", timeout=3600.0, extra_headers={}),
        ClientConfig(api_base_url="http://localhost:3/v1", client_type="openai_completions"),
    ]
    around = {"timeout": 60, "max_connections": 10, "client_type": "openai_responses"}
    resolved = resolve_client_configs(config(endpoint_configs=endpoints, extra_headers={"X-A": "1"}, **around))
    assert [one.api_base_url for one in resolved] == [f"http://localhost:{port}/v1" for port in (1, 2, 3)]
    assert [one.timeout for one in resolved] == [60, 3600, 60], "what is set counts, also where it is the default"
    assert [one.extra_headers for one in resolved] == [{"X-A": "1"}, {}, {"X-A": "1"}]
    shared = {(one.api_key_var, one.client_type, one.max_connections) for one in resolved}
    assert shared == {("TEST_KEY", "openai_responses", 10)}
    assert [one.endpoint_configs for one in resolved] == [[], [], []]
    nested = {"api_base_url": REMOTE, "endpoint_configs": [{"api_base_url": REMOTE}]}
    with pytest.raises(ValidationError, match="cannot include endpoint_configs"):
        config(endpoint_configs=[nested])
    made = config(endpoint_configs=[{"api_base_url": REMOTE, "endpoint_configs": []}])
    assert made.endpoint_configs == [EndpointClientConfig(api_base_url=REMOTE)]
    endpoints = [{"api_base_url": f"http://localhost:{port}/v1"} for port in (1, 2)]
    for index, port in ((0, 1), (1, 2), (2, 1), (5, 2)):
        chosen = resolve_client_config(config(client_idx=index, endpoint_configs=endpoints))
        assert chosen.api_base_url == f"http://localhost:{port}/v1"
    alone = config(extra_headers={"X-A": "1"})
    assert (resolve_client_config(alone), resolve_client_configs(alone)) == (alone, [alone])


def test_what_is_no_client_and_no_configuration_is_refused(scripted_client):
    import openai

    client = scripted_client("x")
    assert resolve_client(client) is client
    with pytest.raises(MissingKeyError):
        resolve_client(config())
    with pytest.raises(ConfigError, match="'gpt'"):
        resolve_client("gpt")
    with openai.OpenAI(api_key="k") as sdk, pytest.raises(ConfigError, match="AsyncOpenAI and AsyncAnthropic"):
        resolve_client(sdk)

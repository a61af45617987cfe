"""Which variable holds the key of an endpoint: a key is sent to the host that it belongs to, and to no other host."""

import pytest

from nightjar.clients import ClientConfig
from nightjar.clients.credentials import ensure_keys, request_headers, resolve_api_key
from nightjar.environments.rubrics.judge_rubric import judge_config
from nightjar.errors import ConfigError, MissingKeyError
from nightjar.evaluation.config import parse_run_config
from nightjar.evaluation.config.nemo.endpoints import usual_key
from nightjar.evaluation.config.precedence import Layer, resolve_evaluation

PRIME, OPENAI, STRANGER, HERE = (
    "https://api.pinference.ai/api/v1", "https://api.openai.com/v1", "https://stranger.example/v1", "http://127.0.0.1:9/v1",
)  # fmt: skip
REGISTRY = """\
[[endpoint]]
endpoint_id = "team"
model = "m"
url = "https://team.example/v1"
key = "TEAM_KEY"
headers = { X-Team = "$TEAM" }
"""


@pytest.fixture(autouse=True)
def set_keys(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for provider in ("PRIME", "OPENAI", "ANTHROPIC", "NVIDIA", "NEMO"):
        monkeypatch.setenv(f"{provider}_API_KEY", f"{provider} key")
    monkeypatch.setenv("PRIME_TEAM_ID", "team")
    for name in ("VLLM_API_KEY", "NEMO_MODEL_URL"):
        monkeypatch.delenv(name, raising=False)


def test_all_missing_keys_are_named(monkeypatch):
    monkeypatch.setenv("SET_KEY", "secret")
    monkeypatch.setenv("EMPTY_KEY", "")
    monkeypatch.delenv("UNSET_KEY", raising=False)
    ensure_keys(["SET_KEY"])
    with pytest.raises(ValueError, match="'EMPTY_KEY', 'UNSET_KEY' not set") as raised:
        ensure_keys(["EMPTY_KEY", "SET_KEY", "UNSET_KEY"])
    assert isinstance(raised.value, MissingKeyError)
    assert raised.value.keys == ["EMPTY_KEY", "UNSET_KEY"]


def key_of_run(**fields):
    return resolve_api_key(parse_run_config({"env_id": "arithmetic", **fields}).client_config())


def test_a_run_sends_the_key_of_its_host_or_the_named_one():
    for fields, key in [
        ({}, "PRIME key"),
        ({"base_url": PRIME}, "PRIME key"),
        ({"provider": "openai"}, "OPENAI key"),
        ({"base_url": OPENAI}, "OPENAI key"),
        ({"provider": "anthropic", "base_url": OPENAI}, "OPENAI key"),
        ({"base_url": HERE}, "EMPTY"),
        ({"provider": "openai", "base_url": HERE}, "EMPTY"),
        ({"base_url": STRANGER, "api_key_var": "OPENAI_API_KEY"}, "OPENAI key"),
    ]:
        assert (fields, key_of_run(**fields)) == (fields, key)


def test_a_run_with_another_host_must_name_its_key():
    for provider in ({}, {"provider": "openai"}):
        for base_url in (STRANGER, "http://api.openai.com/v1", "https://api.openai.com.example/v1"):
            with pytest.raises(ConfigError, match=r"^base_url: No key belongs to the host '[a-z.]+'.* -k NAME"):
                key_of_run(base_url=base_url, **provider)


def test_a_client_without_a_variable_sends_the_key_of_its_host():
    assert resolve_api_key(ClientConfig(api_base_url=OPENAI)) == "OPENAI key"
    assert resolve_api_key(ClientConfig(api_base_url=HERE)) == "EMPTY"
    with pytest.raises(ConfigError, match=r"'stranger\.example'"):
        resolve_api_key(ClientConfig(api_base_url=STRANGER))


def test_the_team_is_sent_to_prime_only():
    assert request_headers(ClientConfig()) == {"X-Prime-Team-ID": "team"}
    for url in (HERE, OPENAI, STRANGER):
        assert request_headers(ClientConfig(api_base_url=url, api_key_var="PRIME_API_KEY")) == {}


def test_a_judge_gets_the_key_of_its_host():
    assert judge_config().api_key_var == "OPENAI_API_KEY"
    assert judge_config(STRANGER, "OWN_KEY").api_key_var == "OWN_KEY"
    with pytest.raises(ConfigError, match=r"'stranger\.example'"):
        judge_config(STRANGER)


@pytest.mark.slow
def test_a_block_with_a_provider_and_another_host_does_not_use_the_providers_key():
    from nightjar.blocks import ModelEndpoint  # imports Prefect

    urls = {"": "OPENAI_API_KEY", OPENAI: "OPENAI_API_KEY", STRANGER: None}
    found = [ModelEndpoint(provider="openai", base_url=url).client_config().api_key_var for url in urls]
    assert [name if name == "OPENAI_API_KEY" else None for name in found] == [*urls.values()]


def test_the_key_and_headers_of_an_endpoint_of_the_registry_stay_with_its_host(tmp_path):
    (tmp_path / "endpoints.toml").write_text(REGISTRY)

    def resolved(base_url):
        layer = Layer("flag", {"env_id": "arithmetic", "model": "team", "base_url": base_url})
        return resolve_evaluation([layer], tmp_path / "endpoints.toml").config

    there = resolved("https://team.example/v2")
    assert (there.api_key_var, there.headers) == ("TEAM_KEY", {"X-Team": "$TEAM"})
    here = resolved(HERE)
    assert (here.model, here.api_key_var, here.headers) == ("m", "VLLM_API_KEY", {})
    with pytest.raises(ConfigError, match=r"'stranger\.example'"):
        resolved(STRANGER)


def test_keys_of_nemos_variables_stay_with_their_hosts(monkeypatch):
    assert usual_key(STRANGER) == "NEMO_API_KEY"
    monkeypatch.setenv("NEMO_MODEL_URL", STRANGER)
    assert usual_key(STRANGER) == "NEMO_API_KEY"
    monkeypatch.setenv("NEMO_MODEL_URL", OPENAI)
    assert usual_key(STRANGER) is usual_key("https://nvidia.com.example/v1") is None
    assert usual_key("https://integrate.api.nvidia.com/v1") == "NVIDIA_API_KEY"

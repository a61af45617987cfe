"""RunConfig: what a run is started with, and messages that name the field."""

from typing import get_args

import pytest
from pydantic import ValidationError

from nightjar.clients.credentials import request_headers
from nightjar.clients.protocol_client import call_arguments
from nightjar.clients.providers import PROVIDERS, find_provider
from nightjar.errors import ConfigError
from nightjar.evaluation.config import RunConfig, parse_run_config
from nightjar.evaluation.config.fields import ProviderName


def parse(**values):
    return parse_run_config({"env_id": "gsm8k", **values})


def test_defaults_are_those_of_prime_eval_run_and_a_configuration_is_read_back_equal_and_frozen():
    expected = {
        "model": "openai/gpt-4.1-mini", "num_examples": 5, "rollouts_per_example": 3, "max_concurrent": 32,
        "base_url": "https://api.pinference.ai/api/v1", "api_key_var": "PRIME_API_KEY", "max_retries": 0,
        "max_shards": None, "tolerated_failures": 0.0, "sampling_args": {},
    }  # fmt: skip
    assert parse(temperature=None).model_dump(include=expected.keys()) == expected
    config = parse(env_args={"a": [1]}, sampling_args={"temperature": 0.5}, shuffle_seed=3, num_examples=-1)
    with pytest.raises(ValidationError, match="frozen"):
        config.model = "other"
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    values = {"base_url": "http://localhost:8000/v1", "api_key_var": "K"}
    client = parse(**values, request_timeout=7).client_config()
    assert (client.api_base_url, client.api_key_var, client.timeout) == ("http://localhost:8000/v1", "K", 7.0)


def test_an_error_names_the_field_and_its_value():
    for field, value in (
        ("env_id", ""), ("model", ""), ("num_examples", 0), ("num_examples", -2), ("rollouts_per_example", 0),
        ("max_concurrent", 0), ("max_retries", -1), ("request_timeout", 0), ("tolerated_failures", 1.5),
        ("api_client_type", "soap"), ("sampling_args", "hot"), ("provider", "opnai"), ("max_tokens", 0),
        ("temperature", -1), ("temprature", 1), ("base_url", "localhost:8000"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=rf"^{field}: .*\(found {value!r}\)$"):
            parse(**{field: value})


def test_secrets_are_refused_and_not_shown():
    for field, value in (
        ("base_url", "http://ann:s3cret@host/v1"), ("base_url", "http://s3cret@host/v1"),
        ("base_url", "ann:s3cret@host/v1"), ("env_source", "git+https://s3cret@host/repository@main"),
        ("env_source", "git+ssh://ann:s3cret@host/repository"),
        ("env_source", "https://host/far_env-1.0-py3-none-any.whl?token=s3cret"),
        ("base_url", "https://host/v1?key=s3cret"), ("headers", {"X-Team": "s3cret"}),
        ("headers", {"Authorization": "Bearer s3cret"}), ("sampling_args", {"extra_headers": {"X-Team": "s3cret"}}),
        ("sampling_args", {"extra_body": {"api_key": "s3cret"}}), ("env_args", {"judge": [{"HF_TOKEN": "s3cret"}]}),
        ("env_args", {"k": "sk-live-s3cret"}), ("env_args", {"command": "serve --key=nvapi-s3cret-0123"}),
        ("extra_env_kwargs", {"passwords": ["s3cret"]}),
        ("middleware", [{"use": "payload", "set": {"api_key": "s3cret"}}]),
        ("middleware", [{"use": "mine.py:Mine", "key": "hf_s3cretS3cretS3cret"}]),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"^{field}: .*(stored|written down)") as caught:
            parse(**{field: value})
        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_error_names_the_middleware_and_odd_sources_of_an_environment_are_refused():
    with pytest.raises(ConfigError, match=r"middleware: payload\.set\.api_key looks like a secret"):
        parse(middleware=[{"use": "payload", "set": {"api_key": "s3cret"}}])
    for source in ("sha256:../../elsewhere", "ftp://host/x.whl", "git+ext://sh -c true"):
        with pytest.raises(ConfigError, match=r"^env_source: must "):
            parse(env_source=source)


def test_similar_names_are_no_secrets_and_headers_by_name_reach_the_client(monkeypatch):
    harmless = {
        "judge_api_key_var": "JUDGE_KEY", "api_key": "$KEY", "token": None, "max_token": "8", "key": "answer",
        "pad_token": "<pad>", "secret_word": "apple", "backend": "hf_transformers", "password": "",
        "prompt": "Basic task-solving",
    }  # fmt: skip
    assert parse(env_args=harmless).env_args == harmless
    monkeypatch.setenv("TEAM", "s3cret")
    config = parse(headers={"X-Team": "$TEAM"}, sampling_args={"extra_headers": {"X-Other": "${TEAM}"}})
    assert request_headers(config.client_config()) == {"X-Team": "s3cret"}
    assert call_arguments(config.sampling_args, {})["extra_headers"] == {"X-Other": "s3cret"}
    assert "s3cret" not in config.model_dump_json()


def test_a_provider_sets_the_missing_fields_of_the_endpoint_of_a_run():
    assert get_args(ProviderName) == tuple(PROVIDERS)
    with pytest.raises(ConfigError, match=r"'opnai'.*anthropic, deepseek, glm, local"):
        find_provider("opnai")
    for name, url, variable, protocol in (
        ("prime", "https://api.pinference.ai/api/v1", "PRIME_API_KEY", "openai_chat_completions"),
        ("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "openai_chat_completions"),
        ("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openai_chat_completions"),
        ("local", "http://localhost:8000/v1", "VLLM_API_KEY", "openai_chat_completions"),
        ("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic_messages"),
    ):
        run = parse(provider=name)
        assert (run.client_config().api_base_url, run.api_key_var, run.api_client_type) == (url, variable, protocol)
    config = parse(provider="anthropic", base_url="http://host:1/v1", api_key_var="OWN_KEY")
    assert (config.base_url, config.api_key_var) == ("http://host:1/v1", "OWN_KEY")
    assert config.api_client_type == "anthropic_messages"


def test_results_depend_on_the_endpoint_and_not_on_its_name_and_plain_sampling_parameters_are_added_to_the_others():
    config = parse(provider="local")
    assert config.identity() == parse(base_url="http://localhost:8000/v1").identity()
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    config = parse(max_tokens=9, temperature=0.0, sampling_args={"temperature": 0.5, "top_p": 0.9})
    assert config.sampling_args == {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9}
    assert parse(max_tokens=9).identity() == parse(sampling_args={"max_tokens": 9}).identity()


@pytest.mark.parametrize(
    "sampling", [{"n": 2}, {"n": [1]}, {"stream": True}, {"extra_body": {"n": 3}}, {"extra_body": {"stream": 1}}]
)
def test_sampling_parameters_that_change_the_form_of_a_response_are_refused(sampling):
    with pytest.raises(ValidationError, match=r"(n|stream) is not possible"):
        RunConfig(env_id="gsm8k", model="m", sampling_args=sampling)
    assert RunConfig(env_id="gsm8k", model="m", sampling_args={"n": 1, "stream": False, "top_p": 0.5})

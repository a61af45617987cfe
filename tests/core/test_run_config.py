"""RunConfig: what a run is started with, and messages that name the field."""

from typing import get_args

import pytest
from pydantic import ValidationError

from nightjar.clients.credentials import request_headers
from nightjar.clients.sdk_client import call_arguments
from nightjar.errors import ConfigError
from nightjar.evaluation.config import PROVIDERS, RunConfig, find_provider, parse_run_config
from nightjar.evaluation.config.endpoints import ProviderName


def parse(**values):
    return parse_run_config({"env_id": "gsm8k", **values})


class TestDefaults:
    def test_are_those_of_prime_eval_run(self):
        config = parse()
        assert (config.model, config.num_examples, config.rollouts_per_example) == ("openai/gpt-4.1-mini", 5, 3)
        assert (config.base_url, config.api_key_var) == ("https://api.pinference.ai/api/v1", "PRIME_API_KEY")
        assert (config.max_concurrent, config.max_retries) == (32, 0)

    def test_at_most_sixteen_shards(self):
        assert parse().max_shards == 16

    def test_no_failure_is_tolerated(self):
        assert parse().tolerated_failures == 0.0


class TestMessages:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"env_id": ""}, r"env_id: String should have at least 1 character \(found ''\)"),
            ({"model": ""}, r"model: String should have at least 1 character \(found ''\)"),
            ({"num_examples": 0}, r"num_examples: must be 1 or more, or -1 for all examples \(found 0\)"),
            ({"num_examples": -2}, r"num_examples: must be 1 or more, or -1 for all examples \(found -2\)"),
            ({"rollouts_per_example": 0}, r"rollouts_per_example: .*greater than or equal to 1 \(found 0\)"),
            ({"max_concurrent": 0}, r"max_concurrent: .*greater than or equal to 1 \(found 0\)"),
            ({"max_retries": -1}, r"max_retries: .*greater than or equal to 0 \(found -1\)"),
            ({"request_timeout": 0}, r"request_timeout: .*greater than 0 \(found 0\)"),
            ({"tolerated_failures": 1.5}, r"tolerated_failures: .*less than or equal to 1 \(found 1\.5\)"),
            ({"api_client_type": "soap"}, r"api_client_type: .*'openai_chat_completions'.*\(found 'soap'\)"),
            ({"sampling_args": "hot"}, r"sampling_args: .*valid dictionary \(found 'hot'\)"),
            ({"provider": "opnai"}, r"provider: .*'prime', 'openai'.* or 'vllm' \(found 'opnai'\)"),
            ({"max_tokens": 0}, r"max_tokens: .*greater than or equal to 1 \(found 0\)"),
            ({"temperature": -1}, r"temperature: .*greater than or equal to 0 \(found -1\)"),
            ({"temprature": 1}, r"temprature: Extra inputs are not permitted \(found 1\)"),
        ],
        ids=str,
    )
    def test_name_the_field_and_what_was_found(self, values, message):
        with pytest.raises(ConfigError, match=f"^{message}$"):
            parse(**values)

    def test_a_missing_environment(self):
        with pytest.raises(ConfigError, match="env_id: Field required"):
            parse_run_config({})


class TestConfig:
    def test_all_examples(self):
        assert parse(num_examples=-1).num_examples == -1

    def test_cannot_be_changed(self):
        with pytest.raises(ValidationError, match="frozen"):
            parse().model = "other"

    def test_is_read_back_equal_from_json(self):
        config = parse(env_args={"a": [1]}, sampling_args={"temperature": 0.5}, shuffle_seed=3)
        assert RunConfig.model_validate_json(config.model_dump_json()) == config

    def test_gives_the_client_s_configuration(self):
        values = {"base_url": "http://localhost:8000/v1", "api_key_var": "K"}
        client = parse(**values, request_timeout=7).client_config()
        assert (client.api_base_url, client.api_key_var) == ("http://localhost:8000/v1", "K")
        assert client.timeout == 7.0

    def test_a_base_url_that_is_none(self):
        with pytest.raises(ConfigError, match=r"must start with http:// or https:// .* \(found 'localhost:8000'\)$"):
            parse(base_url="localhost:8000").client_config()


class TestSecrets:
    @pytest.mark.parametrize(
        "values",
        [
            {"base_url": "http://ann:s3cret@host/v1"},
            {"base_url": "http://s3cret@host/v1"},
            {"base_url": "ann:s3cret@host/v1"},
            {"env_source": "git+https://s3cret@host/repository@main"},
            {"env_source": "git+ssh://ann:s3cret@host/repository"},
            {"env_source": "https://host/far_env-1.0-py3-none-any.whl?token=s3cret"},
            {"base_url": "https://host/v1?key=s3cret"},
            {"headers": {"X-Team": "s3cret"}},
            {"headers": {"Authorization": "Bearer s3cret"}},
            {"sampling_args": {"extra_headers": {"X-Team": "s3cret"}}},
            {"sampling_args": {"extra_body": {"api_key": "s3cret"}}},
            {"env_args": {"judge": [{"HF_TOKEN": "s3cret"}]}},
            {"env_args": {"k": "sk-live-s3cret"}},
            {"env_args": {"command": "serve --key=nvapi-s3cret-0123"}},
            {"extra_env_kwargs": {"passwords": ["s3cret"]}},
            {"middleware": [{"use": "payload", "set": {"api_key": "s3cret"}}]},
            {"middleware": [{"use": "mine.py:Mine", "key": "hf_s3cretS3cretS3cret"}]},
        ],
        ids=str,
    )
    def test_are_refused_and_not_shown(self, values):
        with pytest.raises(ConfigError, match=f"^{next(iter(values))}: .*(stored|written down)") as caught:
            parse(**values)
        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_the_middleware_is_named(self):
        with pytest.raises(ConfigError, match=r"middleware: payload\.set\.api_key looks like a secret"):
            parse(middleware=[{"use": "payload", "set": {"api_key": "s3cret"}}])

    def test_what_only_sounds_like_one_is_none(self):
        harmless = {
            "judge_api_key_var": "JUDGE_KEY", "api_key": "$KEY", "token": None, "max_token": "8", "key": "answer",
            "pad_token": "<pad>", "secret_word": "apple", "backend": "hf_transformers", "password": "",
            "prompt": "Basic task-solving",
        }  # fmt: skip
        assert parse(env_args=harmless).env_args == harmless

    @pytest.mark.parametrize("source", ["sha256:../../elsewhere", "ftp://host/x.whl", "git+ext://sh -c true"])
    def test_odd_sources_of_an_environment_are_refused(self, source):
        with pytest.raises(ConfigError, match=r"^env_source: must "):
            parse(env_source=source)

    def test_headers_by_name_reach_the_client(self, monkeypatch):
        monkeypatch.setenv("TEAM", "s3cret")
        config = parse(headers={"X-Team": "$TEAM"}, sampling_args={"extra_headers": {"X-Other": "${TEAM}"}})
        assert request_headers(config.client_config()) == {"X-Team": "s3cret"}
        assert call_arguments(config.sampling_args, {})["extra_headers"] == {"X-Other": "s3cret"}
        assert "s3cret" not in config.model_dump_json()


class TestProviders:
    @pytest.mark.parametrize(
        ("name", "url", "variable"),
        [
            ("prime", "https://api.pinference.ai/api/v1", "PRIME_API_KEY"),
            ("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
            ("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
            ("local", "http://localhost:8000/v1", "VLLM_API_KEY"),
        ],
    )
    def test_by_name(self, name, url, variable):
        provider = find_provider(name)
        assert (provider.base_url, provider.api_key_var) == (url, variable)

    def test_anthropic_speaks_its_own_protocol(self):
        assert find_provider("anthropic").api_client_type == "anthropic_messages"

    def test_an_unknown_one_lists_the_choices(self):
        with pytest.raises(
            ConfigError, match=r"^Unknown provider 'opnai'\. Choose one of: anthropic, deepseek, glm, local"
        ):
            find_provider("opnai")

    def test_are_those_that_a_run_may_name(self):
        assert get_args(ProviderName) == tuple(PROVIDERS)

    @pytest.mark.parametrize("name", PROVIDERS)
    def test_says_the_endpoint_of_a_run(self, name):
        config, provider = RunConfig(env_id="gsm8k", provider=name), find_provider(name)
        assert config.client_config().api_base_url == provider.base_url
        assert (config.api_key_var, config.api_client_type) == (provider.api_key_var, provider.api_client_type)

    def test_says_only_what_is_not_said(self):
        config = parse(provider="anthropic", base_url="http://host:1/v1", api_key_var=None)
        assert (config.base_url, config.api_key_var) == ("http://host:1/v1", "ANTHROPIC_API_KEY")
        assert config.api_client_type == "anthropic_messages"

    def test_results_depend_on_the_endpoint_and_not_on_its_name(self):
        config = parse(provider="local")
        assert config.identity() == parse(base_url="http://localhost:8000/v1").identity()
        assert RunConfig.model_validate_json(config.model_dump_json()) == config


class TestSampling:
    def test_plain_parameters_come_to_the_others(self):
        config = parse(max_tokens=9, temperature=0.0, sampling_args={"temperature": 0.5, "top_p": 0.9})
        assert config.sampling_args == {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9}
        assert parse(max_tokens=9).identity() == parse(sampling_args={"max_tokens": 9}).identity()

    def test_there_are_none_by_themselves(self):
        assert parse(temperature=None).sampling_args == {}

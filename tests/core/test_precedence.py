"""The value of a field and its source: flag, suite, provider, registry, environment, default."""

import logging
from pathlib import Path

import pytest

from nightjar.errors import ConfigError
from nightjar.evaluation.config.precedence import EVAL, FLAG, SUITE, Layer, resolve_evaluation

REGISTRY = """\
[[endpoint]]
endpoint_id = "small"
model = "gpt-small"
url = "https://small.example/v1"
key = "SMALL_KEY"
type = "openai_completions"
headers = { X-Team = "$TEAM", X-Site = "$SITE" }
prices = { input = 0.4, output = 1.6 }
max_concurrent = 8

[[endpoint]]
endpoint_id = "twin"
model = "gpt-twin"
url = "https://one.example/v1"
key = "ONE_KEY"

[[endpoint]]
endpoint_id = "twin"
extends = "twin-two"

[[endpoint]]
endpoint_id = "twin-two"
model = "gpt-twin"
url = "https://two.example/v1"
key = "TWO_KEY"
"""


@pytest.fixture
def resolve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.toml").write_text(REGISTRY)
    package = tmp_path / "environments" / "quiz"
    package.mkdir(parents=True)
    (package / "quiz.py").write_text("def load_environment(): ...\n")
    (package / "pyproject.toml").write_text(
        '[project]\nname = "quiz"\nversion = "1"\n[tool.verifiers.eval]\nnum_examples = 7\nrollouts_per_example = 2\n'
    )

    def resolve(flag=None, own=None, suite=None, path=None):
        layers = [Layer(FLAG, {"env_id": "quiz", **(flag or {})}), Layer(EVAL, own or {}), Layer(SUITE, suite or {})]
        return resolve_evaluation(layers, path)

    return resolve


PLACES = [
    ({"flag": {"seed": 1}, "own": {"seed": 2}, "suite": {"seed": 3}}, "seed", 1, "flag"),
    ({"own": {"num_examples": 2}, "suite": {"num_examples": 3}}, "num_examples", 2, "[[eval]]"),
    ({"suite": {"num_examples": 3}}, "num_examples", 3, "suite"),
    ({}, "num_examples", 7, "environment"),
    ({}, "rollouts_per_example", 2, "environment"),
    ({}, "max_concurrent", 32, "default"),
    ({}, "base_url", "https://api.pinference.ai/api/v1", "provider prime"),
    ({"flag": {"provider": "openai"}}, "api_key_var", "OPENAI_API_KEY", "provider openai"),
    ({"flag": {"model": "small"}}, "model", "gpt-small", "registry"),
    ({"flag": {"model": "small"}}, "base_url", "https://small.example/v1", "registry"),
    ({"flag": {"model": "small"}}, "input_price", 0.4, "registry"),
    ({"flag": {"model": "small"}}, "max_concurrent", 8, "registry"),
    ({"flag": {"model": "small", "max_concurrent": 64}}, "max_concurrent", 64, "flag"),
    ({"flag": {"model": "small", "api_key_var": "K"}}, "api_key_var", "K", "flag"),
    ({"flag": {"model": "small", "api_key_var": "K"}}, "base_url", "https://small.example/v1", "registry"),
    ({"flag": {"model": "small", "provider": "openai"}}, "base_url", "https://api.openai.com/v1", "provider openai"),
    ({"flag": {"model": "small", "provider": "openai"}}, "model", "gpt-small", "registry"),
    ({"flag": {"model": "small", "provider": "openai"}}, "api_client_type", "openai_completions", "registry"),
    ({"flag": {"model": "small", "provider": "openai"}}, "headers", {}, "default"),
    (
        {"flag": {"model": "small", "provider": "anthropic"}},
        "api_client_type", "anthropic_messages", "provider anthropic",
    ),
    ({"flag": {"model": "small", "base_url": "http://localhost:1/v1", "api_key_var": "K"}}, "model", "small", "flag"),
    ({"flag": {"model": "twin", "base_url": "http://localhost:1/v1"}}, "replicas", [], "default"),
    ({"own": {"endpoint_id": "small"}, "suite": {"model": "other"}}, "model", "gpt-small", "registry"),
    ({"own": {"model": "other"}, "suite": {"endpoint_id": "small"}}, "model", "other", "[[eval]]"),
    (
        {"own": {"endpoint_id": "small"}, "suite": {"base_url": "http://localhost:1/v1"}},
        "base_url", "https://small.example/v1", "registry",
    ),
    (
        {"flag": {"model": "small", "headers": {"x-team": "$MINE"}}},
        "headers", {"X-Site": "$SITE", "x-team": "$MINE"}, "flag, registry",
    ),
    (
        {"own": {"temperature": 0.5}, "suite": {"sampling_args": {"temperature": 1.0, "top_p": 0.9}}},
        "sampling_args", {"temperature": 0.5, "top_p": 0.9}, "[[eval]], suite",
    ),
    (
        {"own": {"sampling_args": {"temperature": 0.2}}, "suite": {"temperature": 0.9}},
        "temperature", 0.2, "suite",
    ),
    ({"own": {"env_args": {"a": 1}}, "suite": {"env_args": {"b": 2}}}, "env_args", {"a": 1}, "[[eval]]"),
]  # fmt: skip


def test_the_most_important_source_counts(resolve):
    for places, field, value, source in PLACES:
        found = resolve(**places)
        assert (getattr(found.config, field), found.sources[field]) == (value, source), places


def test_replicas_share_a_given_key_and_a_resolved_configuration_stays_as_it_is(resolve):
    config = resolve({"model": "twin", "api_key_var": "K"}).config
    assert [(each.base_url, each.api_key_var) for each in config.replicas] == [
        ("https://one.example/v1", "K"), ("https://two.example/v1", "K"),
    ]  # fmt: skip
    config = resolve({"model": "small"}).config
    again = resolve(config.model_dump(mode="json", exclude_defaults=True) | {"api_key_var": config.api_key_var})
    assert again.config == config


def test_values_that_cannot_be_resolved_are_errors(resolve):
    for places, message in (
        ({"own": {"endpoint_id": "smal"}}, "'smal' .*'small'"),
        ({"own": {"endpoint_id": "small", "model": "m"}}, "endpoint_id: .*'small' and 'm'"),
        ({"flag": {"num_examples": 0}}, "num_examples: "), ({"path": Path("no.toml")}, r"no\.toml"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            resolve(**places)


def test_a_model_with_nearly_the_name_of_an_endpoint_is_warned_of(resolve, caplog):
    with caplog.at_level(logging.WARNING):
        resolve({"model": "slaml"})
        resolve({"model": "gpt-5"})
    [said] = [record.getMessage() for record in caplog.records]
    assert all(fact in said for fact in ("'slaml'", "configs/endpoints.toml", "'small'"))

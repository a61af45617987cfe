"""The endpoint registry: what an endpoint's name means, and errors that name file, line and the nearest name."""

import pytest

from nightjar.clients.config import resolve_client_configs
from nightjar.errors import ConfigError
from nightjar.evaluation.config import RunConfig
from nightjar.evaluation.config.registry import Registry

SMALL = """\
[[endpoint]]
endpoint_id = "small"
model = "gpt-small"
url = "https://one.example/v1"
key = "ONE_KEY"
"""


@pytest.fixture
def load(tmp_path):
    def load(text):
        (tmp_path / "endpoints.toml").write_text(text)
        return Registry.load(tmp_path)

    return load


def test_an_endpoint_sets_fields_of_a_run_and_may_extend_another(load):
    prices = {"input_price": 0.4, "output_price": 1.6, "max_concurrent": 8}
    for text, further in (
        (SMALL, {}), (SMALL.replace("url", "api_base_url").replace("key", "api_key_var"), {}),
        (f'{SMALL}type = "openai_responses"', {"api_client_type": "openai_responses"}),
        (f'{SMALL}extra_headers = {{ X-Team = "$TEAM" }}', {"headers": {"X-Team": "$TEAM"}}),
        (f"{SMALL}prices = {{ input = 0.4, output = 1.6 }}\nmax_concurrent = 8", prices),
    ):  # fmt: skip
        assert load(text).fields("small") == {
            "model": "gpt-small", "base_url": "https://one.example/v1", "api_key_var": "ONE_KEY",
            "api_client_type": "openai_chat_completions", **further,
        }  # fmt: skip
    other = '[[endpoint]]\nendpoint_id = "other"\nextends = "small"\nheaders = { X-B = "$B" }\n'
    third = '[[endpoint]]\nendpoint_id = "third"\nextends = "other"\nurl = "http://localhost:1/v1"\n'
    registry = load(f'{third}{SMALL}headers = {{ X-A = "$A" }}\n{other}')
    assert registry.fields("other")["headers"] == {"X-A": "$A", "X-B": "$B"}
    assert registry.fields("third") == {**registry.fields("other"), "base_url": "http://localhost:1/v1"}


def test_each_replica_has_its_own_address_key_and_headers_and_those_of_the_run(load):
    two = SMALL + SMALL.replace("one", "two").replace("ONE", "TWO") + 'headers = { X-A = "$A" }\n'
    config = RunConfig(env_id="gsm8k", **load(two).fields("small")).model_copy(update={"headers": {"X": "$X"}})
    replicas = resolve_client_configs(config.client_config())
    assert [(each.api_base_url, each.api_key_var, each.extra_headers) for each in replicas] == [
        ("https://one.example/v1", "ONE_KEY", {"X": "$X"}),
        ("https://two.example/v1", "TWO_KEY", {"X-A": "$A", "X": "$X"}),
    ]
    assert config.model_dump(mode="json")["replicas"][1]["headers"] == {"X-A": "$A"}
    # limits add up, and an endpoint that extends replicas has as many
    assert load(f"{SMALL}max_concurrent = 8\n{SMALL}max_concurrent = 4\n").fields("small")["max_concurrent"] == 12
    fields = load(f'{two}[[endpoint]]\nendpoint_id = "b"\nextends = "small"\n').fields("b")
    assert len(fields["replicas"]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{SMALL}modle = 1", "line 6: Unknown field 'modle'. Did you mean 'model'?"),
        (f"{SMALL}{SMALL}\nx = 1", "line 12: Unknown field 'x'. Choose one of: "),
        (f"{SMALL}api_base_url = 'https://a.example'", "line 6: 'api_base_url' repeats the field"),
        (SMALL.replace('"gpt-small"', "3"), "line 3: model: Input should be a valid string (found 3)"),
        (SMALL.replace('model = "gpt-small"', ""), "line 1: model: Field required"),
        (SMALL.replace('"small"', '""'), "line 2: endpoint_id: String should have at least 1 character (found '')"),
        (SMALL.replace("https", "ftp"), "line 4: url: must start with http"),
        (SMALL.replace("ONE_KEY", "sk-one-0123456789"), "line 5: key: must be the name of the environment"),
        (f'{SMALL}headers = {{ X-A = "sk-one-0123456789" }}', "line 6: headers: the value of header 'X-A' must be"),
        (f"{SMALL}[endpoint.prices]\ninput = -1\noutput = 1", "line 6: prices.input: Input should be greater than"),
        (f'{SMALL}extends = "smal"', "line 6: extends 'smal', which is not in this file. Did you mean 'small'?"),
        (f'{SMALL}extends = "small"', "line 6: extends 'small', which extends it"),
        (f"{SMALL}{SMALL.replace('gpt-small', 'gpt-large')}", "line 8: model of endpoint 'small' is 'gpt-large' here"),
        ("[[endpoint]]\nurl = 'https://a.example'", "line 1: endpoint_id is missing"),
        ("[endpoint]\nmodel = 'a'", "line 1: write 'endpoint' as tables: [[endpoint]]"),
        (f"{SMALL}[[endpoints]]\nmodel = 'a'", "line 6: Unknown table or field 'endpoints'"),
        (f"{SMALL}model 'a'", "line 6: Expected '=' after a key in a key/value pair"),
    ],
)
def test_an_error_names_the_line(load, text, message, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value).startswith(f"{tmp_path / 'endpoints.toml'}, {message}")
    assert "0123456789" not in str(caught.value)

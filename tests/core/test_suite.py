"""Suites: evaluations in a file, errors with their lines, and sweeps."""

import contextlib
import itertools

import pytest
from drawing import drawn

from nightjar.errors import ConfigError
from nightjar.evaluation.config.registry import Registry
from nightjar.evaluation.config.suite import load_suite


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))

    def load(text, **typed):
        path = tmp_path / "nightly.toml"
        path.write_text(text)
        return load_suite(path, typed)

    return load


SEED = """\
model = "openai/gpt-4.1-mini"
num_examples = 50
rollouts_per_example = 3

[[eval]]
env_id = "gsm8k"
num_examples = 100

[eval.env_args]
difficulty = "hard"

[[eval]]
env_id = "math-python"
"""


def test_flags_override_the_evaluation_which_overrides_its_suite(load):
    first, second = load(SEED)
    assert (first.config.num_examples, first.config.env_args) == (100, {"difficulty": "hard"})
    assert (second.config.num_examples, second.config.env_args) == (50, {})
    assert (first.sources["num_examples"], second.sources["num_examples"]) == ("[[eval]]", "suite")
    assert {each.config.suite for each in (first, second)} == {"nightly"}
    first, second = load(SEED, num_examples=7, max_concurrent=8, temperature=0.5)
    assert [(each.config.num_examples, each.config.max_concurrent) for each in (first, second)] == [(7, 8)] * 2
    assert (first.sources["num_examples"], first.sources["env_args"]) == ("flag", "[[eval]]")
    shown = [second.shown_sources[name] for name in ("num_examples", "rollouts_per_example", "env_id", "max_retries")]
    assert shown == ["flag", "suite file nightly.toml", "[[eval]] of nightly.toml", "built-in"]
    [one] = load(
        'sampling = {top_p = 0.9, temperature = 0.2}\n[[eval]]\nenv_id = "gsm8k"\n',
        sampling_args={"temperature": 0.8, "top_k": 5},
    )
    assert one.config.sampling_args == {"top_p": 0.9, "temperature": 0.8, "top_k": 5}
    assert one.shown_sources["sampling_args"] == "flag, suite file nightly.toml"


ELSEWHERE = """\
model = "m"
base_url = "https://one.example/v1"
api_key_var = "KEY_OF_ONE"
headers = {"X-Team" = "$TOKEN_OF_ONE"}
sampling_args = {top_p = 0.9, extra_headers = {"X-User" = "$TOKEN_OF_ONE"}}
input_price = 3.0
output_price = 9.0
[[eval]]
env_id = "gsm8k"
"""


@pytest.mark.parametrize(
    ("typed", "place", "key", "price"),
    [
        ({}, "", "KEY_OF_ONE", 3.0), ({"base_url": "https://one.example/v2"}, "", "KEY_OF_ONE", 3.0),
        ({"model": "other"}, "", "KEY_OF_ONE", None),
        ({"base_url": "https://two.example/v1", "api_key_var": "KEY_OF_TWO"}, "", "KEY_OF_TWO", None),
        ({"provider": "openai"}, "", "OPENAI_API_KEY", None),
        ({}, 'base_url = "https://one.example/v2"', "KEY_OF_ONE", 3.0),
        ({}, 'base_url = "https://two.example/v1"\napi_key_var = "KEY_OF_TWO"', "KEY_OF_TWO", None),
        ({}, 'provider = "openai"', "OPENAI_API_KEY", None),
    ],
)  # fmt: skip
def test_another_endpoint_of_a_flag_or_an_eval_never_gets_the_key_and_headers_of_the_suite(
    load, typed, place, key, price
):
    [one] = load(ELSEWHERE + place, **typed)
    is_same = key == "KEY_OF_ONE"
    assert (one.config.api_key_var, one.config.input_price) == (key, price)
    assert one.config.headers == ({"X-Team": "$TOKEN_OF_ONE"} if is_same else {})
    assert one.config.model == typed.get("model", "m")
    kept = {"extra_headers": {"X-User": "$TOKEN_OF_ONE"}} if is_same else {}
    assert one.config.sampling_args == {"top_p": 0.9, **kept}


REGISTRY = '[[endpoint]]\nendpoint_id = "two"\nmodel = "m2"\nurl = "https://two.example/v1"\nkey = "KEY_OF_TWO"\n'


def test_headers_of_a_suite_belong_to_its_endpoint_if_it_names_one(load, tmp_path):
    (tmp_path / "endpoints.toml").write_text(REGISTRY)
    for named, headers in (('base_url = "https://one.example/v1"\n', {}), ("", {"X-Team": "$TOKEN"})):
        text = f'endpoints_path = "endpoints.toml"\n{named}headers = {{"X-Team" = "$TOKEN"}}\ntags = ["night"]\n'
        [one] = load(f'{text}[[eval]]\nenv_id = "gsm8k"\nendpoint_id = "two"\n', tags=["mine"])
        assert (one.config.base_url, one.config.api_key_var) == ("https://two.example/v1", "KEY_OF_TWO")
        assert (one.config.model, one.config.headers) == ("m2", headers)
        assert one.config.tags == ["night", "mine"], "tags of the command line are added"


def test_flags_for_one_evaluation_or_over_a_sweep_are_refused(load):
    for name in ("name", "env_args", "env_source", "part", "hf_hub_dataset_name"):
        with pytest.raises(ConfigError, match=f"{name}: belongs to one evaluation of a suite"):
            load(SEED, **{name: "x"})
    repeated = "rollouts_per_example"
    for flag, value, name in (
        (repeated, 2, repeated), ("temperature", 0.5, "temperature"),
        ("sampling_args", {"temperature": 0.5}, "temperature"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=rf"{flag}: the suite has several values of {name} \(.*toml, line 3\)"):
            load(SWEEP, **{flag: value})
    assert len(load(SWEEP, num_examples=3)) == 4


SWEEP = """\
[[ablation]]
env_id = "arithmetic"
[ablation.sweep]
rollouts_per_example = [1, 4]
[ablation.sweep.sampling_args]
temperature = [0.0, 1.0]
"""


def test_evaluations_of_the_same_environment_get_names_and_a_sweep_is_one_for_each_combination(load):
    three = load('[[eval]]\nid = "gsm8k"\n[[eval]]\nid = "gsm8k"\nseed = 1\n[[eval]]\nid = "gsm8k"\nname = "cold"\n')
    assert [each.label for each in three] == ["gsm8k", "gsm8k-2", "cold"]
    assert [each.config.name for each in three] == [None, "gsm8k-2", "cold"]
    four = load(
        "[[ablation]]\nenv_id = 'gsm8k'\n[ablation.env_args]\ndeep = true\n"
        "[ablation.sweep]\ntemperature = [0, 1.0]\n[ablation.sweep.args]\nlargest = [9, 99]\n"
    )
    assert [(each.config.sampling_args, each.config.env_args) for each in four] == [
        ({"temperature": 0}, {"deep": True, "largest": 9}), ({"temperature": 0}, {"deep": True, "largest": 99}),
        ({"temperature": 1.0}, {"deep": True, "largest": 9}), ({"temperature": 1.0}, {"deep": True, "largest": 99}),
    ]  # fmt: skip
    assert four[0].label == "gsm8k temperature=0 largest=9"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_exmples = 3\n[[eval]]\nid = 'a'", "line 1: Unknown field 'num_exmples'. Did you mean 'num_examples'?"),
        (f"{SEED}tempurature = 1", "line 14: Unknown field 'tempurature'. Did you mean 'temperature'?"),
        (f"{SEED}num_examples = 0", "line 14: num_examples: must be 1 or more, or -1 for all examples (found 0)"),
        ("max_concurrent = 0\n[[eval]]\nid = 'a'", "line 1: max_concurrent: Input should be greater than or equal to"),
        (f"{SEED}[eval.sampling]\nextra_headers = 3", "line 14: sampling_args: extra_headers must be an object"),
        (f"{SEED}sampling = {{}}\nsampling_args = {{}}", "line 15: 'sampling_args' repeats the field"),
        ("[[eval]]\nname = 'x'", "line 1: env_id: Field required"),
        ("[[eval]]\nid = 'a'\nname = 'x'\n[[eval]]\nid = 'b'\nname = 'x'", "line 6: 'x' is also the name of another"),
        ("[[ablation]]\nid = 'a'", "line 1: the values of the sweep are missing: [ablation.sweep]"),
        (
            "[[ablation]]\nid = 'a'\nseed = 1\n[ablation.sweep]\nseed = [1]",
            "line 5: sweep.seed: this field is both fixed and",
        ),
        ("[[ablation]]\nid = 'a'\n[ablation.sweep]\nseed = 1", "line 4: sweep.seed: expected a list of values"),
        ("[[ablation]]\nid = 'a'\n[ablation.sweep]\nsede = [1]", "line 4: Unknown field 'sede'. Did you mean 'seed'?"),
        ("[[eval]]\nid = 'a'\nheaders = {X = 's3cret-0123'}", "line 3: headers: the value of header 'X' must be the"),
        ("eval = 3", "line 1: write 'eval' as tables: [[eval]]"),
        ("[[eval]\nid = 'a'", "line 1: Expected"),
        ("num_examples = 3", ""),
    ],
)  # fmt: skip
def test_an_error_names_the_line(load, text, message, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value).startswith(f"{tmp_path / 'nightly.toml'}{message and f', {message}'}")
    assert "s3cret" not in str(caught.value)


VALUES = ["3", "'x'", "['a']", "{a = 1}"]
FIELDS = [
    "env_id", "model", "provider", "name", "tags", "headers", "sampling_args", "env_args", "replicas", "num_examples",
    "endpoint_id", "endpoints_path", "sampling", "args", "num_workers", "eval", "sweep", "temperature", "shuffle",
]  # fmt: skip
PLACES = [
    "{0} = {1}\n[[eval]]\nenv_id = 'a'", "[[eval]]\nid = 'a'\n{0} = {1}",
    "[[ablation]]\nid = 'a'\n{0} = {1}\n[ablation.sweep.extra_env_kwargs]\nx = [1]",
    "[[ablation]]\nid = 'a'\n[ablation.sweep]\n{0} = {1}", "[[ablation]]\nid = 'a'\n[ablation.sweep]\n{0} = [{1}]",
]  # fmt: skip


@pytest.mark.slow
def test_a_value_of_any_type_is_accepted_or_a_config_error(load):
    for value, field, place in drawn(itertools.product(VALUES, FIELDS, PLACES), 16):
        with contextlib.suppress(ConfigError):
            load(place.format(field, value), tags=["typed"])


def test_a_value_of_any_type_in_a_registry_is_accepted_or_a_config_error(tmp_path):
    known = {"endpoint_id": "'e'", "model": "'m'", "url": "'http://localhost:1/v1'", "key": "'K'"}
    fields = [*known, "type", "headers", "prices", "max_concurrent", "extends", "extra_headers", "endpoint"]
    for value, field in itertools.product(VALUES, fields):
        row = "\n".join(f"{name} = {each}" for name, each in {**known, field: value}.items())
        rows = f"[[endpoint]]\n{row}\n[[endpoint]]\nendpoint_id = 'x'\nextends = 'e'\n"
        (tmp_path / "endpoints.toml").write_text(rows)
        with contextlib.suppress(ConfigError):
            Registry.load(tmp_path).fields("x")

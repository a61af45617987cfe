"""The command and the files of verifiers, and the evaluations that they become."""

import json
import sys
from itertools import chain

import pytest

from nightjar.compat.verifiers import config, eval_script
from nightjar.model_server import ArithmeticSolver, ModelServer

REGISTRY = """
[[endpoint]]
endpoint_id = "one"
model = "team/one"
url = "http://one/v1"
key = "ONE_KEY"
headers = { X-A = "a" }

[[endpoint]]
endpoint_id = "two"
model = "team/two"
api_base_url = "http://two-a/v1"
api_key_var = "TWO_KEY"
type = "anthropic_messages"

[[endpoint]]
endpoint_id = "two"
model = "team/two"
url = "http://two-b/v1"
key = "TWO_KEY"
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def registry(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/endpoints.toml").write_text(REGISTRY)
    return tmp_path / "configs"


@pytest.fixture
def evals(monkeypatch):
    def typed(*words):
        async def note(config, **_):
            found.append(config)

        found = []
        for name in ("run_evaluations", "run_evaluations_tui"):
            monkeypatch.setattr(eval_script, name, note)
        monkeypatch.setattr(sys, "argv", ["vf-eval", *map(str, words)])
        eval_script.main()
        return found[0].evals

    return typed


def test_endpoints_of_a_registry_with_their_rows(registry):
    with (registry / "endpoints.toml").open("a") as file:
        file.write('api_base_url = "http://two-b/v1"\n')  # the same in both spellings
    endpoints = config.load_endpoints(str(registry))
    own = {"extra_headers": {"X-A": "a"}}
    assert endpoints["one"] == [{"model": "team/one", "url": "http://one/v1", "key": "ONE_KEY", **own}]
    assert [row["url"] for row in endpoints["two"]] == ["http://two-a/v1", "http://two-b/v1"]
    assert endpoints["two"][0]["api_client_type"] == "anthropic_messages"


@pytest.mark.parametrize(
    "text",
    [
        "[[endpoint]", "[[endpoint]]\nmodel = 3", '[[endpoint]]\nclient_type = "x"', "endpoint = 5",
        REGISTRY + 'headers = {}\nextra_headers = {X-A = "b"}', REGISTRY + 'headers = "X-A"',
        REGISTRY + 'unknown = 1', None,
    ],
)  # fmt: skip
def test_an_invalid_registry_is_empty_with_a_warning_and_a_missing_one_is_empty(tmp_path, caplog, text):
    if text:
        (tmp_path / "endpoints.toml").write_text(text)
    assert config.load_endpoints(str(tmp_path)) == {}
    assert ("endpoints.toml" in caplog.text) is bool(text)
    with pytest.raises(ValueError, match=r"endpoints\.py.*TOML"):
        config.load_endpoints("endpoints.py")


def test_defaults_providers_and_flags_set_fields(evals):
    [config] = evals("arithmetic")
    assert (config.model, config.num_examples, config.rollouts_per_example) == ("openai/gpt-4.1-mini", 5, 3)
    assert (config.max_concurrent, config.sampling_args) == (32, {"max_tokens": None})
    assert config.client_config.api_base_url == "https://api.pinference.ai/api/v1"
    assert config.client_config.extra_headers_from_state == {"X-Session-ID": "example_id"}
    client = evals("arithmetic", "-p", "anthropic", "-k", "MY_KEY")[0].client_config
    assert (client.client_type, client.api_base_url, client.api_key_var) == (
        "anthropic_messages", "https://api.anthropic.com", "MY_KEY",
    )  # fmt: skip
    numbers = {"-n": 7, "-r": 2, "-T": 0.5, "-t": 9, "--timeout": 3}
    texts = {"-a": '{"x": 1}', "-S": '{"temperature": 0}', "-C": "a,b", "--header": "X-A: b: c"}
    [config] = evals("arithmetic", *chain(*(numbers | texts).items()), "-i", "-s")
    assert (config.env_args, config.num_examples, config.rollouts_per_example) == ({"x": 1}, 7, 2)
    assert config.sampling_args == {"temperature": 0, "max_tokens": 9}
    assert (config.independent_scoring, config.save_results, config.state_columns) == (True, True, ["a", "b"])
    assert config.client_config.extra_headers == {"X-A": "b: c"}
    assert config.extra_env_kwargs == {"timeout_seconds": 3}


def test_defaults_of_an_environment(evals, tmp_path):
    folder = tmp_path / "environments/my_env"
    folder.mkdir(parents=True)
    (folder / "my_env.py").write_text("def load_environment(): ...")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "my-env"\nversion = "1"\n[tool.verifiers.eval]\nnum_examples = 50'
    )
    assert evals("my-env")[0].num_examples == 50
    assert evals("my-env", "-n", 2)[0].num_examples == 2
    assert eval_script.get_env_eval_defaults("my-env") == {"num_examples": 50}
    assert eval_script.get_env_eval_defaults("no-such-environment") == {}


def test_an_endpoint_of_the_registry_is_used_with_the_headers_of_its_rows_and_of_the_flags(evals, registry):
    [config] = evals("arithmetic", "-m", "one", "--header", "X-B: b")
    client = config.client_config
    assert (config.model, client.api_base_url, client.api_key_var, client.extra_headers) == (
        "team/one", "http://one/v1", "ONE_KEY", {"X-A": "a", "X-B": "b"},
    )  # fmt: skip
    client = evals("arithmetic", "-m", "two")[0].client_config
    assert [each.api_base_url for each in client.endpoint_configs] == ["http://two-a/v1", "http://two-b/v1"]
    client = evals("arithmetic", "-m", "two", "-b", "http://other/v1", "-k", "OTHER_KEY")[0].client_config
    assert (client.api_base_url, client.endpoint_configs) == ("http://other/v1", [])
    assert evals("arithmetic", "-m", "one", "-b", "http://b/v1", "-k", "K")[0].model == "one"
    ids = {name: evals("arithmetic", "-m", name)[0].endpoint_id for name in ("one", "two", "three")}
    assert ids == {"one": "one", "two": "two", "three": None}
    with (registry / "endpoints.toml").open("a") as file:
        file.write('headers = { X-A = "row", X-B = "row" }\n')
    client = evals("arithmetic", "-m", "two", "--header", "X-B: flag")[0].client_config
    headers = [replica.extra_headers for replica in client.endpoint_configs]
    assert headers == [{"X-B": "flag"}, {"X-A": "row", "X-B": "flag"}]


def test_invalid_flags_and_files_are_errors(evals, tmp_path, load):
    for words, match in ((["--header", "nonsense"], "--header .*'nonsense'"), (["--resume", "nowhere"], "nowhere")):
        with pytest.raises(ValueError, match=match):
            evals("arithmetic", *words)
    text = 'endpoints_path = "rows.json"\n[[eval]]\nenv_id = "a"\nendpoint_id = "one"'
    (tmp_path / "evals.toml").write_text(text)
    with pytest.raises(ValueError, match=r"TOML.*rows\.json"):
        evals("evals.toml")
    for text, match in {
        "[[ablation]]\nenv_id = 'a'": "non-empty", "[[eval]]\nenv_id = 'a'\nnum_exmples = 3": "num_exmples",
        "model = 'a'": "..eval", "modell = 'a'\n[[eval]]\nenv_id = 'a'": "modell", "[[eval]]\nmodel = 'a'": "env_id",
        "[[ablation]]\nenv_id = 'a'\nmodel = 'm'\n[ablation.sweep]\nmodel = ['n']": "model",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=match):
            load(text)


def test_the_command_runs(monkeypatch, capsys, tmp_path):
    with ModelServer(ArithmeticSolver()) as server:
        words = ["arithmetic", "-m", "m", "-b", server.base_url, "-k", "NO_KEY", "-n", "2", "-r", "2", "-s", "-d"]
        monkeypatch.setattr(sys, "argv", ["vf-eval", *words])
        eval_script.main()
    assert "reward: avg 1.000" in capsys.readouterr().out
    [metadata] = tmp_path.glob("outputs/evals/arithmetic--m/*/metadata.json")
    assert json.loads(metadata.read_text())["avg_reward"] == 1.0


@pytest.fixture
def load(tmp_path):
    def load(text):
        (tmp_path / "evals.toml").write_text(text)
        return config.load_toml_config(tmp_path / "evals.toml")

    return load


def test_an_evaluation_overrides_the_file_and_an_ablation_gives_each_combination(load, tmp_path):
    text = """
        model = "a"
        num_examples = 9
        endpoints_path = "my/endpoints.toml"
        env_args = { x = 1, y = 2 }
        eval = [{ env_id = "one", num_examples = 3 }, { id = "two", env_args = { x = 5 } }]
    """
    first, second = load(text)
    shared = {"model": "a", "endpoints_path": str(tmp_path / "my/endpoints.toml")}
    assert first == {**shared, "num_examples": 3, "env_id": "one", "env_args": {"x": 1, "y": 2}}
    assert second == {**shared, "num_examples": 9, "env_id": "two", "env_args": {"x": 5}}
    sweep = '{ temperature = [0.0, 1.0], args = { x = ["a", "b"] } }'
    found = load(f'ablation = [{{ env_id = "one", env_args = {{ z = 0 }}, sweep = {sweep} }}]')
    assert [(each["temperature"], each["env_args"]) for each in found] == [
        (temperature, {"z": 0, "x": x}) for temperature in (0.0, 1.0) for x in ("a", "b")
    ]
    for shared, own in (("model", "endpoint_id"), ("endpoint_id", "model")):
        for section in (
            f'[[eval]]\nenv_id = "a"\n{own} = "y"',
            f'[[ablation]]\nenv_id = "a"\nsweep = {{{own} = ["y"]}}',
        ):
            assert load(f'{shared} = "x"\n{section}') == [{"env_id": "a", own: "y"}]


def test_the_command_runs_the_evaluations_of_a_file(evals, registry, tmp_path):
    (tmp_path / "evals.toml").write_text(
        '[[eval]]\nenv_id = "arithmetic"\nendpoint_id = "one"\nheaders = { X-A = "z" }\n[[eval]]\nenv_id = "gsm8k"'
    )
    first, second = evals("evals.toml", "-n", 99)
    assert (first.model, first.client_config.extra_headers, first.num_examples) == ("team/one", {"X-A": "z"}, 5)
    assert (second.env_id, second.model) == ("gsm8k", "openai/gpt-4.1-mini")
    for fields, match in (('endpoint_id = "none"', "'none'"), ('endpoint_id = "one"\nmodel = "m"', "endpoint_id")):
        (tmp_path / "evals.toml").write_text(f'[[eval]]\nenv_id = "a"\n{fields}')
        with pytest.raises(ValueError, match=match):
            evals("evals.toml")
    with pytest.raises(FileNotFoundError, match=r"no\.toml"):
        evals("no.toml")

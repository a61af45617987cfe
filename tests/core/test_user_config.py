"""The user's own defaults: accepted and refused values, and their precedence."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from nightjar.core.home import config_path
from nightjar.errors import ConfigError
from nightjar.evaluation.config.precedence import FLAG, SUITE, Layer, resolve_evaluation
from nightjar.evaluation.config.user_config import known_settings, set_setting, settings, unset_setting
from nightjar.warehouse import resolve_warehouse


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    return tmp_path


def resolved(suite=None, **flags):
    return resolve_evaluation([Layer(FLAG, {"env_id": "arithmetic", **flags}), Layer(SUITE, suite or {})])


def write(text):
    config_path().parent.mkdir(exist_ok=True)
    config_path().write_text(text)


TYPED = [
    ("eval.model", "m", "m"), ("eval.max_concurrent", "8", 8), ("eval.temperature", "0.5", 0.5),
    ("eval.cache", "true", True), ("eval.tags", '["a", "b"]', ["a", "b"]), ("eval.headers.X-Team", "$TEAM", "$TEAM"),
    ("eval.sampling_args.top_p", "0.9", 0.9), ("eval.sampling_args.service_tier", "flex", "flex"),
    ("eval.output_dir", "there", "there"), ("warehouse", "s3://team/house", "s3://team/house"),
    ("judge.base_url", "http://127.0.0.1:1/v1/", "http://127.0.0.1:1/v1"),
]  # fmt: skip


def test_a_value_is_parsed_as_its_field_and_can_be_removed_and_concurrent_changes_lose_nothing():
    for key, text, value in TYPED:
        assert set_setting(key, text) == value
        assert settings() == {key: value}
        assert config_path().stat().st_mode & 0o777 == 0o600
        assert unset_setting(key)
        assert (settings(), config_path().read_text()) == ({}, "")
        assert not unset_setting(key)
    write("# mine\n[eval]\nmodel = 'm'  # the small one\n")
    set_setting("eval.max_concurrent", "8")
    assert config_path().read_text() == "# mine\n[eval]\nmodel = 'm'  # the small one\nmax_concurrent = 8\n"
    keys = [key for key in known_settings() if key.startswith("eval.max_")]
    with ThreadPoolExecutor(len(keys)) as threads:
        assert [*threads.map(set_setting, keys, "1" * len(keys))] == [1] * len(keys)
    assert settings() == {"eval.model": "m"} | dict.fromkeys(keys, 1)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("model", "m", "There is no setting 'model'. Did you mean 'eval.model'?"),
        ("eval.modle", "m", "There is no setting 'eval.modle'. Did you mean 'eval.model'?"),
        ("evil", "m", "warehouse, eval.…, judge.…"),
        ("judge", "m", "judge.model, judge.base_url, judge.api_key_var"),
        ("eval.env_id", "m", "'eval.env_id'"),
        ("eval.max_concurrent", "many", "eval.max_concurrent: Input should be a valid integer"),
        ("eval.max_concurrent", "0", "eval.max_concurrent: Input should be greater than or equal to 1"),
        ("eval.provider", "opnai", "eval.provider: Input should be 'prime'"),
        ("eval.tags", "a,b", "eval.tags: expected JSON, such as []"),
        ("api_key", "sk-planted", "api_key: "),
        ("eval.sampling_args.api_key", "sk-planted", "eval.sampling_args.api_key: "),
        ("eval.sampling_args.user", "sk-planted-live", "eval.sampling_args: user looks like a secret"),
        ("eval.sampling_args.extra_body", '{"a": {"x-api-key": "planted"}}', "extra_body.a.x-api-key looks like"),
        ("eval.api_key", "sk-planted", "nightjar config set eval.api_key_var NAME"),
        ("eval.api_key_var", "sk-planted", "must be the name of the environment variable"),
        ("eval.headers.X-Key", "planted", "must be the name of an environment variable"),
        ("eval.base_url", "http://me:planted@host/v1", "must not hold a user, a password"),
    ],
)
def test_a_wrong_value_is_refused_and_not_written(key, text, message):
    with pytest.raises(ConfigError) as caught:
        set_setting(key, text)
    assert message in str(caught.value)
    assert "planted" not in str(caught.value)
    assert not config_path().exists() or "planted" not in config_path().read_text()


def test_every_other_source_but_the_built_in_defaults_overrides_it(folder):
    package = folder / "environments" / "quiz"
    package.mkdir(parents=True)
    (package / "quiz.py").write_text("def load_environment(): ...\n")
    (package / "pyproject.toml").write_text(
        '[project]\nname = "quiz"\nversion = "1"\n[tool.verifiers.eval]\nnum_examples = 7\n'
    )
    for key, text in {"num_examples": "9", "rollouts_per_example": "5", "max_concurrent": "8", "seed": "3"}.items():
        set_setting(f"eval.{key}", text)
    found = resolved({"seed": 2}, env_id="quiz", max_concurrent=4)
    values = {name: (getattr(found.config, name), found.sources[name]) for name in
              ("num_examples", "rollouts_per_example", "max_concurrent", "seed", "timeout")}  # fmt: skip
    assert values == {
        "num_examples": (7, "environment"), "rollouts_per_example": (5, "config"), "max_concurrent": (4, "flag"),
        "seed": (2, "suite"), "timeout": (None, "default"),
    }  # fmt: skip
    assert found.config.sampling_args == {"seed": 2}


def test_sampling_parameters_are_merged_and_a_flag_and_a_variable_override_the_warehouse(monkeypatch):
    for key, value in {"eval.temperature": "0.5", "eval.sampling_args.top_p": "0.9", "warehouse": "own"}.items():
        set_setting(key, value)
    found = resolved(sampling_args={"temperature": 0.1}).config
    assert (found.temperature, found.sampling_args) == (0.1, {"temperature": 0.1, "top_p": 0.9})
    assert resolved().config.sampling_args == {"temperature": 0.5, "top_p": 0.9}
    assert (resolve_warehouse(), resolve_warehouse("typed")) == ("own", "typed")
    monkeypatch.setenv("NIGHTJAR_WAREHOUSE", "variable")
    assert resolve_warehouse() == "variable"


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ({}, ("mine", "http://127.0.0.1:1/v1", "MY_KEY", {"X-Team": "$TEAM"})),
        ({"model": "other"}, ("other", "http://127.0.0.1:1/v1", "MY_KEY", {"X-Team": "$TEAM"})),
        ({"provider": "openai"}, ("mine", "https://api.openai.com/v1", "OPENAI_API_KEY", {})),
        ({"model": "small"}, ("gpt-small", "https://small.example/v1", "SMALL_KEY", {})),
        ({"endpoint_id": "small"}, ("gpt-small", "https://small.example/v1", "SMALL_KEY", {})),
        ({"base_url": "http://127.0.0.1:2/v1"}, ("mine", "http://127.0.0.1:2/v1", "VLLM_API_KEY", {})),
        ({"own_model": "small"}, ("gpt-small", "https://small.example/v1", "SMALL_KEY", {})),
    ],
)
def test_its_endpoint_is_ignored_if_another_one_is_named(folder, flags, place):
    (folder / "configs").mkdir()
    (folder / "configs" / "endpoints.toml").write_text(
        "[[endpoint]]\nendpoint_id = 'small'\nmodel = 'gpt-small'\nurl = 'https://small.example/v1'\nkey = 'SMALL_KEY'"
    )
    own = {"base_url": "http://127.0.0.1:1/v1", "api_key_var": "MY_KEY", "headers.X-Team": "$TEAM"}
    for key, text in (own | {"model": flags.pop("own_model", "mine")}).items():
        set_setting(f"eval.{key}", text)
    config = resolved(**flags).config
    assert (config.model, config.base_url, config.api_key_var, config.headers) == place


def test_an_error_names_the_damaged_file_which_is_not_changed():
    for text, message in {
        "eval = [": "cannot be read: Invalid value",
        "[eval]\nmodle = 'm'\n": "There is no setting 'eval.modle'. Did you mean 'eval.model'?",
        "[eval]\nmax_concurrent = 'many'\n": "eval.max_concurrent: Input should be a valid integer",
        "eval = 1\n": "eval: Input should be",
    }.items():
        write(text)
        for use in (resolved, settings, lambda: set_setting("eval.model", "m")):
            with pytest.raises(ConfigError) as caught:
                use()
            assert all(part in str(caught.value) for part in (str(config_path()), message))
        assert config_path().read_text() == text

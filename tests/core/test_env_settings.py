"""What ``nightjar eval run -x`` sets in an environment that is loaded."""

import pytest

from nightjar.core.messages import UserMessage
from nightjar.environments import EnvGroup, SingleTurnEnv, ToolEnv
from nightjar.errors import ConfigError
from nightjar.evaluation.config import parse_run_config


def tools(*questions, **kwargs):
    return ToolEnv(tools=[], dataset=[{"question": question} for question in questions], env_id="e", **kwargs)


def apply_settings(env, settings):
    from nightjar.evaluation import preparation  # imports tenacity

    preparation.apply_settings(env, settings)


def contents(env):
    return [[message["content"] for message in row["prompt"]] for row in env.get_dataset()]


async def test_settings_are_set_in_environments_and_groups(scripted_client):
    from nightjar.environments.tools.sandbox_env import SandboxEnv

    env = tools("a")
    apply_settings(env, {"max_turns": 3, "timeout_seconds": 1.5, "hook_timeout_seconds": None})
    assert (env.max_turns, env.timeout_seconds, env.hook_timeout_seconds) == (3, 1.5, None)
    with_sandboxes = SandboxEnv(dataset=[{"question": "a"}], sandbox_provider="local")
    EnvGroup([tools("a"), with_sandboxes]).set_max_sandboxes(3)
    assert (with_sandboxes.max_sandboxes, with_sandboxes.places.ceiling) == (3, 3)
    env = tools("a", system_prompt="Be long.")
    assert contents(env) == [["Be long.", "a"]]
    apply_settings(env, {"system_prompt": "Be brief.", "few_shot": [{"role": "user", "content": "b?"}]})
    assert contents(env) == [["Be brief.", "b?", "a"]]
    apply_settings(env, {"system_prompt": None, "few_shot": None})
    assert contents(env) == [["a"]]
    words = SingleTurnEnv(dataset=[{"prompt": [UserMessage(content="b")]}], system_prompt="Be long.", env_id="e")
    group = EnvGroup([EnvGroup([tools("a")]), words])
    assert contents(group) == [["a"], ["Be long.", "b"]]
    apply_settings(group, {"system_prompt": "Be brief.", "max_turns": 2})
    assert contents(group) == [["Be brief.", "a"], ["Be brief.", "b"]]
    assert (group.envs[0].envs[0].max_turns, words.max_turns) == (2, 1)
    with pytest.raises(ConfigError, match="'e' has no setting 'max_turns'"):
        apply_settings(words, {"max_turns": 2})
    group = EnvGroup([tools("a", sampling_args={"temperature": 0.1, "top_p": 0.9})])
    apply_settings(group, {"sampling_args": {"temperature": 0.5}})
    state = await group.init_state(group.get_dataset()[0], scripted_client(lambda prompt: "b"), "m")
    assert (state["sampling_args"]["temperature"], state["sampling_args"]["top_p"]) == (0.5, 0.9)


def test_an_unknown_setting_or_a_value_of_another_type_is_an_error():
    for name, value, problem in (
        *((name, 1, "max_turns") for name in ("max_turnz", "kwargs", "rubric", "logger", "env_id")),
        *(("max_turns", value, f"found {value!r}") for value in ("three", True)),
        ("score_rollouts", "false", "found 'false'"),
    ):
        env = tools("a")
        with pytest.raises(ConfigError, match=f"'{name}'.*{problem}") as refused:
            apply_settings(env, {"pass_threshold": 0.9, name: value})
        assert "'e'" in str(refused.value)
        assert "rubric" not in str(refused.value).partition("Choose")[2]
        assert env.pass_threshold == 0.5


def test_the_limit_of_sandboxes_is_a_field_of_a_run(tmp_path):
    (tmp_path / "tests").mkdir()
    for name in ("task.toml", "instruction.md", "tests/test.sh"):
        (tmp_path / name).write_text("# Nothing to do")
    from nightjar.evaluation.preparation import prepare

    config = parse_run_config({"env_id": f"harbor://{tmp_path}", "max_sandboxes": 2})
    assert "max_sandboxes" not in config.identity()
    assert prepare(config).env.max_sandboxes == 2
    assert not hasattr(prepare(config.model_copy(update={"env_id": "arithmetic"})).env, "max_sandboxes")

"""EnvGroup: several environments as one; each example runs, is scored and is cleaned up in its own."""

import asyncio
import logging

import pytest

from nightjar.core.calling.decorators import cleanup, teardown
from nightjar.core.messages import UserMessage
from nightjar.core.rollout.state import new_state
from nightjar.environments import (
    EnvGroup,
    EnvGroupRubric,
    EnvironmentRollouts,
    MultiTurnEnv,
    SingleTurnEnv,
    ToolEnv,
    tear_down,
)
from nightjar.environments.rubrics import Rubric


def rows(*questions, **columns):
    return [{"question": question, "answer": question.upper(), **columns} for question in questions]


def right(completion, answer):
    return float(completion[-1].content == answer)


def longest(completion):
    return float(len(completion[-1].content))


def an_input(**columns):
    return {"prompt": [UserMessage(content="a")], "example_id": 0, "answer": "A", **columns}


@pytest.fixture
def letters():
    return SingleTurnEnv(dataset=rows("a", "b"), rubric=Rubric(funcs=[right]))


@pytest.fixture
def words():
    return SingleTurnEnv(dataset=rows("word"), rubric=Rubric(funcs=[longest], weights=[0.5]))


@pytest.fixture
def group(letters, words):
    return EnvGroup([letters, words], env_names=["letters", "words"])


@pytest.fixture
def evaluate(scripted_client):
    """Evaluates an environment against a model that shouts back; returns the rows."""

    async def evaluate(env, **how):
        client = scripted_client(lambda prompt: prompt[-1].content.upper())
        async with asyncio.timeout(60):
            return (await env.evaluate(client, "m", **how))["outputs"]

    return evaluate


def test_examples_of_a_group_are_built_once_and_may_be_for_training_or_evaluation():
    built = []

    def build():
        built.append(1)
        return rows("a")

    group = EnvGroup([SingleTurnEnv(dataset=build), SingleTurnEnv(dataset=build)])
    assert built == []
    assert [len(group.get_dataset()) for _ in range(2)] == [2, 2]
    assert len(built) == 2
    both = SingleTurnEnv(dataset=rows("train"), eval_dataset=rows("eval"))
    group = EnvGroup([both, SingleTurnEnv(dataset=rows("only"))])
    assert list(group.get_dataset()["question"]) == ["train", "only"]
    assert list(group.get_eval_dataset()["question"]) == ["eval", "only"]
    group = EnvGroup([SingleTurnEnv(eval_dataset=rows("a")), SingleTurnEnv(eval_dataset=rows("b"))])
    assert list(group.get_eval_dataset()["question"]) == ["a", "b"]
    with pytest.raises(ValueError, match="dataset"):
        group.get_dataset()


def test_examples_of_a_group_are_those_of_its_named_environments(group, letters, words):
    for names in ([], ["x"], ["x", "x"], ["x", "y", "z"]):
        with pytest.raises(ValueError, match="env_names" if names else "at least one"):
            EnvGroup([letters, words] if names else [], env_names=names)
    assert group.get_env_for_name("letters") is group.get_env_for_task("letters") is letters
    with pytest.raises(ValueError, match=r"'numbers'.*letters, words"):
        group.get_env_for_name("numbers")
    dataset = group.get_dataset()
    assert (list(dataset["question"]), list(dataset["example_id"])) == (["a", "b", "word"], [0, 1, 2])
    assert [row["info"]["env_id"] for row in dataset] == ["letters", "letters", "words"]
    assert EnvGroup([letters, words]).env_names == ["env_0", "env_1"]
    assert EnvGroup([letters, words], names=["x", "y"]).env_names == ["x", "y"]
    for info in ({"level": 3}, '{"level": 3}'):
        brief = SingleTurnEnv(dataset=rows("c", info=info), system_prompt="Be brief.")
        group = EnvGroup([letters, brief], names=["x", "y"], system_prompt="You are a model.")
        assert group.examples[2]["info"] == {"level": 3, "env_id": "y"}
        prompts = [[message["content"] for message in group.examples[n]["prompt"]] for n in (0, 2)]
        assert prompts == [["You are a model.", "a"], ["Be brief.", "c"]]


async def test_a_rollout_without_a_route_costs_itself_unless_there_is_one_environment(group, scripted_client, letters):
    told = ("letters, words", {}), ("numbers", {"env_id": "numbers"}), ("found 7", {"env_id": 7}), ("found [1]", [1])
    inputs = [an_input(info=info, example_id=n) for n, (_, info) in enumerate(told)]
    inputs.append(an_input(info={"env_id": "letters"}, example_id=4))
    *wrong, good = (await group.generate(inputs, scripted_client("A"), "m"))["outputs"]
    assert [said in row["error"]["message"] for row, (said, _) in zip(wrong, told, strict=True)] == [True] * 4
    assert ([row["reward"] for row in wrong], good["reward"]) == ([None] * 4, 1.0)
    [row] = (await EnvGroup([letters]).generate([an_input()], scripted_client("A"), "m"))["outputs"]
    assert row["reward"] == 1.0
    inputs = [an_input(info={"env_id": name}) for name in ("letters", "words", "letters")]
    results = await group.generate(inputs, scripted_client("A"), "m")
    assert [row["reward"] for row in results["outputs"]] == [1.0, 0.5, 1.0]


async def test_rollouts_run_in_their_environment_and_are_scored_by_its_rubric_and_further_ones(group, evaluate):
    found = [(row["info"]["env_id"], row["reward"], row["metrics"]) for row in await evaluate(group)]
    letter = ("letters", 1.0, {"right": 1.0, "num_turns": 1.0})
    assert found == [letter, letter, ("words", 2.0, {"longest": 4.0, "num_turns": 1.0})]
    group.add_rubric(Rubric(funcs=[lambda info: float(info["env_id"] == "words")], weights=[10.0]))
    assert [row["reward"] for row in await evaluate(group)] == [1.0, 1.0, 12.0]


async def test_an_environment_never_sees_its_name_and_its_changes_of_the_info_are_kept(evaluate, tmp_path):
    seen = []

    class Curious(SingleTurnEnv):
        async def setup_state(self, state):
            await self.look(state)
            state["info"]["board"] = [1]

        @cleanup
        async def look(self, state):
            seen.append(dict(state["info"]))

    class CuriousRubric(Rubric):
        look = Curious.look

    rubric = CuriousRubric(funcs=[lambda info: float(seen.append(dict(info)) is None)])
    env = EnvGroup([Curious(dataset=rows("a", info={"level": 3}), rubric=rubric)])
    [row] = await evaluate(env, results_path=tmp_path)
    assert seen == [{"level": 3}, *[{"level": 3, "board": [1]}] * 3]
    assert (row["reward"], row["info"]) == (1.0, {"level": 3, "board": [1], "env_id": "env_0"})


async def test_an_unchanged_input_is_not_recorded_as_changed_and_a_new_state_knows_its_route(group, scripted_client):
    rollouts = EnvironmentRollouts(group, scripted_client("A"), "m", {})
    assert (await rollouts.attempt(rollouts.input(0, 0))).changed_input() == {}
    rollout_input = an_input(info={"env_id": "letters"})
    state = await group.init_state(rollout_input, scripted_client("A"), "m")
    assert (state["info"], state.keys()) == ({"env_id": "letters"}, new_state(rollout_input).keys())


async def test_rollouts_have_tools_turns_and_sampling_arguments_of_their_own(letters, scripted_client, response):
    def square(x: int) -> int:
        return x * x

    group = EnvGroup([letters, ToolEnv(tools=[square], dataset=rows("4 squared?"))])
    call = response("", tool_calls=[{"id": "1", "name": "square", "arguments": '{"x": 4}'}])
    client = scripted_client(lambda prompt: call if prompt[-1].content == "4 squared?" else "16")
    found = (await group.evaluate(client, "m"))["outputs"]
    assert [[tool["name"] for tool in row.get("tool_defs", [])] for row in found] == [[], [], ["square"]]
    assert [message["content"] for message in found[2]["completion"]] == ["", "16", "16"]
    assert found[2]["metrics"] == {"num_turns": 2.0, "total_tool_calls": 1.0, "square_calls": 1.0}
    env = SingleTurnEnv(dataset=rows("a"), sampling_args={"temperature": 0.1, "top_p": 0.2, "seed": 3})
    group = EnvGroup([env], sampling_args={"temperature": 0.5, "top_p": 0.6})
    client = scripted_client("A")
    await group.evaluate(client, "m", sampling_args={"temperature": 0.9})
    assert client.asked[0][2] == {"n": 1, "extra_body": {}, "temperature": 0.9, "top_p": 0.6, "seed": 3}


async def test_restored_rollouts_are_scored_by_their_environment(words, evaluate, tmp_path):
    is_broken = True

    def fragile(completion, answer, info):
        if is_broken:
            raise OSError("disk")
        return float(completion[-1].content == answer and "env_id" not in info)

    group = EnvGroup([SingleTurnEnv(dataset=rows("a"), rubric=Rubric(funcs=[fragile])), words])
    assert [row["reward"] for row in await evaluate(group, results_path=tmp_path)] == [None, 2.0]
    is_broken = False
    after = await evaluate(group, results_path=tmp_path)
    assert [(row["reward"], row["attempts"]) for row in after] == [(1.0, 1), (2.0, 1)]
    assert after[0]["info"] == {"env_id": "env_0"}


async def test_routes_name_the_outermost_group_first_and_an_inner_group_knows_its_own_part(
    group, evaluate, scripted_client
):
    other = SingleTurnEnv(dataset=rows("c"), rubric=Rubric(funcs=[right]))
    nested = EnvGroup([group, other], names=["inner", "c"])
    routes = [nested.examples[position]["info"]["env_id"] for position in range(4)]
    assert routes == [["inner", "letters"], ["inner", "letters"], ["inner", "words"], "c"]
    assert [row["reward"] for row in await evaluate(nested)] == [1.0, 1.0, 2.0, 1.0]
    dataset = nested.get_dataset()
    infos = dataset["info"]
    assert infos[:1] + infos[3:] == ['{"env_id":["inner","letters"]}', '{"env_id":"c"}']
    results = await nested.generate(dataset, scripted_client("A"), "m")
    assert [row["reward"] for row in results["outputs"]] == [1.0, 0.0, 0.5, 0.0]
    seen = []

    class Watched(EnvGroup):
        async def init_state(self, input, *args, **kwargs):  # noqa: A002
            seen.append(input["info"]["env_id"])
            return await super().init_state(input, *args, **kwargs)

        async def rollout(self, input, *args, **kwargs):  # noqa: A002
            seen.append(input["info"]["env_id"])
            return await super().rollout(input, *args, **kwargs)

    inner = Watched([SingleTurnEnv(dataset=rows("a"))], names=["leaf"])
    [row] = await evaluate(EnvGroup([inner], names=["inner"]))
    assert (seen, row["info"]["env_id"]) == (["leaf"], ["inner", "leaf"])


async def test_a_rollout_by_itself_has_zeros_for_the_metrics_of_the_others(group, make_state, caplog):
    assert isinstance(group.rubric, EnvGroupRubric)
    assert group.rubric.all_reward_names == ["longest", "num_turns", "right"]
    columns = {"answer": "A", "info": {"env_id": "letters"}}
    state = make_state(columns=columns, completion=[UserMessage(content="A")])
    await group.rubric.score_rollout(state)
    assert (state["reward"], state["metrics"]) == (1.0, {"longest": 0.0, "num_turns": 0.0, "right": 1.0})
    state = make_state(columns={"info": {"env_id": "numbers"}})
    with caplog.at_level(logging.WARNING):
        await group.rubric.score_rollout(state)
    assert (state["reward"], "{'env_id': 'numbers'}" in caplog.text) == (0.0, True)


async def test_group_functions_get_the_rollouts_of_their_environment(letters, evaluate):
    seen = []

    def rank(completions, answers):
        seen.append(len(completions))
        return [float(position) for position in range(len(completions))]

    group = EnvGroup([letters, SingleTurnEnv(dataset=rows("x"), rubric=Rubric(funcs=[rank]))])
    assert group.requires_group_rollouts
    found = await evaluate(group, rollouts_per_example=3)
    assert seen == [3]
    assert [(row["reward"], row["advantage"]) for row in found[6:]] == [(0.0, -1.0), (1.0, 0.0), (2.0, 1.0)]


async def test_both_rubrics_clean_up_and_all_environments_are_torn_down_although_one_fails(evaluate, caplog):
    cleaned, left = [], []

    class Messy(Rubric):
        @cleanup
        async def fail(self, state):
            raise OSError("disk")

    group = EnvGroup([SingleTurnEnv(dataset=rows("a"), rubric=Messy(funcs=[right]))])
    group.rubric.add_cleanup_handler(lambda state: cleaned.append(state["info"]))
    [row] = await evaluate(group)
    assert (cleaned, row["error"]["error"]) == ([{"env_id": "env_0"}], "ScoringError")

    class Leaving(SingleTurnEnv):
        @teardown
        async def leave(self):
            left.append(self.name)
            if self.name == "first":
                raise OSError("disk is full")

    first, last = (Leaving(dataset=rows("a"), name=name) for name in ("first", "last"))
    await tear_down(EnvGroup([EnvGroup([first]), last]))
    assert (left, "OSError: disk is full" in caplog.text) == (["first", "last"], True)


def test_settings_of_a_group_are_set_in_all_environments_or_where_they_are_known(group, letters, words):
    group.set_kwargs(max_seq_len=7, score_rollouts=False)
    assert [(env.max_seq_len, env.score_rollouts) for env in (group, letters, words)] == [(7, False)] * 3
    group.rubric.set_timeout_seconds(3.0)
    assert (letters.rubric.scoring_timeout_seconds, words.rubric.scoring_timeout_seconds) == (3.0, 3.0)

    class Talk(MultiTurnEnv):
        async def env_response(self, messages, state): ...

    talk = Talk(dataset=rows("x"))
    group = EnvGroup([letters, EnvGroup([talk])], env_id="group")
    group.set_kwargs(hook_timeout_seconds=2.0, max_total_completion_tokens=9, env_id="both", pass_threshold=0.9)
    assert (talk.hook_timeout_seconds, talk.max_total_completion_tokens, letters.hook_timeout_seconds) == (2.0, 9, 2.0)
    assert (group.env_id, group.pass_threshold) == ("both", 0.9), "are the group's own"
    assert (letters.env_id, letters.pass_threshold) == ("", 0.5)

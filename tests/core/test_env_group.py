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


class TestExamples:
    def test_stand_one_after_another_with_ids_and_names_of_their_own(self, group, letters, words):
        dataset = group.get_dataset()
        assert (list(dataset["question"]), list(dataset["example_id"])) == (["a", "b", "word"], [0, 1, 2])
        assert [row["info"]["env_id"] for row in dataset] == ["letters", "letters", "words"]
        assert EnvGroup([letters, words]).env_names == ["env_0", "env_1"]
        assert EnvGroup([letters, words], names=["x", "y"]).env_names == ["x", "y"]

    @pytest.mark.parametrize("info", [{"level": 3}, '{"level": 3}'])
    def test_other_info_stays(self, letters, info):
        group = EnvGroup([letters, SingleTurnEnv(dataset=rows("c", info=info))], names=["x", "y"])
        assert group.examples[2]["info"] == {"level": 3, "env_id": "y"}

    def test_each_environment_s_own_prompt_is_kept(self, letters):
        brief = SingleTurnEnv(dataset=rows("c"), system_prompt="Be brief.")
        group = EnvGroup([letters, brief], system_prompt="You are a model.")
        prompts = [[message["content"] for message in group.examples[n]["prompt"]] for n in (0, 2)]
        assert prompts == [["You are a model.", "a"], ["Be brief.", "c"]]

    def test_are_built_once_when_they_are_needed(self):
        built = []

        def build():
            built.append(1)
            return rows("a")

        group = EnvGroup([SingleTurnEnv(dataset=build), SingleTurnEnv(dataset=build)])
        assert built == []
        assert [len(group.get_dataset()) for _ in range(2)] == [2, 2]
        assert len(built) == 2

    def test_of_environments_with_training_or_evaluation_data_or_both(self):
        both = SingleTurnEnv(dataset=rows("train"), eval_dataset=rows("eval"))
        group = EnvGroup([both, SingleTurnEnv(dataset=rows("only"))])
        assert list(group.get_dataset()["question"]) == ["train", "only"]
        assert list(group.get_eval_dataset()["question"]) == ["eval", "only"]
        group = EnvGroup([SingleTurnEnv(eval_dataset=rows("a")), SingleTurnEnv(eval_dataset=rows("b"))])
        assert list(group.get_eval_dataset()["question"]) == ["a", "b"]
        with pytest.raises(ValueError, match="dataset"):
            group.get_dataset()


class TestWhatIsWrong:
    @pytest.mark.parametrize("names", [[], ["x"], ["x", "x"], ["x", "y", "z"]])
    def test_no_environment_or_not_one_name_for_each(self, letters, words, names):
        with pytest.raises(ValueError, match="env_names" if names else "at least one"):
            EnvGroup([letters, words] if names else [], env_names=names)

    def test_an_unknown_name(self, group, letters):
        assert group.get_env_for_name("letters") is group.get_env_for_task("letters") is letters
        with pytest.raises(ValueError, match=r"'numbers'.*letters, words"):
            group.get_env_for_name("numbers")

    @pytest.mark.parametrize(
        ("info", "says"),
        [({}, "letters, words"), ({"env_id": "numbers"}, "numbers"), ({"env_id": 7}, "found 7"), ([1], "found [1]")],
    )
    async def test_an_input_without_a_route_costs_its_rollout(self, group, scripted_client, info, says):
        inputs = [an_input(info=info), an_input(info={"env_id": "letters"}, example_id=1)]
        wrong, good = (await group.generate(inputs, scripted_client("A"), "m"))["outputs"]
        assert says in wrong["error"]["message"]
        assert (wrong["reward"], good["reward"]) == (None, 1.0)


class TestRollouts:
    async def test_run_in_their_environment_and_are_scored_by_its_rubric(self, group, evaluate):
        found = [(row["info"]["env_id"], row["reward"], row["metrics"]) for row in await evaluate(group)]
        letter = ("letters", 1.0, {"right": 1.0, "num_turns": 1.0})
        assert found == [letter, letter, ("words", 2.0, {"longest": 4.0, "num_turns": 1.0})]

    async def test_of_one_environment_need_no_route_and_several_may_have_one_example_id(
        self, letters, scripted_client, group
    ):
        results = await EnvGroup([letters]).generate([an_input()], scripted_client("A"), "m")
        assert results["outputs"][0]["reward"] == 1.0
        inputs = [an_input(info={"env_id": name}) for name in ("letters", "words", "letters")]
        results = await group.generate(inputs, scripted_client("A"), "m")
        assert [row["reward"] for row in results["outputs"]] == [1.0, 0.5, 1.0]

    async def test_an_environment_never_sees_its_name(self, evaluate):
        seen = []

        class Curious(SingleTurnEnv):
            async def setup_state(self, state):
                seen.append(dict(state["info"]))

            @cleanup
            async def look(self, state):
                seen.append(dict(state["info"]))

        class CuriousRubric(Rubric):
            look = Curious.look

        rubric = CuriousRubric(funcs=[lambda info: float(seen.append(dict(info)) is None)])
        [row] = await evaluate(EnvGroup([Curious(dataset=rows("a", info={"level": 3}), rubric=rubric)]))
        assert seen == [{"level": 3}] * 4
        assert row["info"] == {"level": 3, "env_id": "env_0"}

    async def test_changes_of_the_info_by_an_environment_are_kept(self, evaluate, tmp_path):
        class Noting(SingleTurnEnv):
            async def setup_state(self, state):
                state["info"]["board"] = [1]

        env = Noting(dataset=rows("a"), rubric=Rubric(funcs=[lambda info: float(info["board"] == [1])]))
        [row] = await evaluate(EnvGroup([env]), results_path=tmp_path)
        assert (row["reward"], row["info"]) == (1.0, {"board": [1], "env_id": "env_0"})

    async def test_an_unchanged_input_is_not_recorded_as_changed(self, group, scripted_client):
        rollouts = EnvironmentRollouts(group, scripted_client("A"), "m", {})
        assert (await rollouts.attempt(rollouts.input(0, 0))).changed_input() == {}

    async def test_with_tools_and_turns_of_their_own(self, letters, scripted_client, response):
        def square(x: int) -> int:
            return x * x

        group = EnvGroup([letters, ToolEnv(tools=[square], dataset=rows("4 squared?"))])
        call = response("", tool_calls=[{"id": "1", "name": "square", "arguments": '{"x": 4}'}])
        client = scripted_client(lambda prompt: call if prompt[-1].content == "4 squared?" else "16")
        found = (await group.evaluate(client, "m"))["outputs"]
        assert [[tool["name"] for tool in row.get("tool_defs", [])] for row in found] == [[], [], ["square"]]
        assert [message["content"] for message in found[2]["completion"]] == ["", "16", "16"]
        assert found[2]["metrics"] == {"num_turns": 2.0, "total_tool_calls": 1.0, "square_calls": 1.0}

    async def test_sampling_args_run_over_group_over_environment(self, scripted_client):
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


class TestNesting:
    @pytest.fixture
    def nested(self, group, letters):
        return EnvGroup([group, SingleTurnEnv(dataset=rows("c"), rubric=Rubric(funcs=[right]))], names=["inner", "c"])

    async def test_routes_name_the_outermost_first_and_rollouts_follow_them(self, nested, evaluate):
        routes = [nested.examples[position]["info"]["env_id"] for position in range(4)]
        assert routes == [["inner", "letters"], ["inner", "letters"], ["inner", "words"], "c"]
        assert [row["reward"] for row in await evaluate(nested)] == [1.0, 1.0, 2.0, 1.0]

    async def test_an_inner_group_knows_its_own_part_of_the_route(self, evaluate):
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
        assert seen == ["leaf"]
        assert row["info"]["env_id"] == ["inner", "leaf"]

    async def test_a_dataset_of_routes_of_both_kinds_can_be_generated_from(self, nested, scripted_client):
        dataset = nested.get_dataset()
        infos = dataset["info"]
        assert infos[:1] + infos[3:] == ['{"env_id":["inner","letters"]}', '{"env_id":"c"}']
        results = await nested.generate(dataset, scripted_client("A"), "m")
        assert [row["reward"] for row in results["outputs"]] == [1.0, 0.0, 0.5, 0.0]


class TestRubric:
    async def test_a_rollout_by_itself_has_zeros_for_the_metrics_of_the_others(self, group, make_state):
        assert isinstance(group.rubric, EnvGroupRubric)
        assert group.rubric.all_reward_names == ["longest", "num_turns", "right"]
        columns = {"answer": "A", "info": {"env_id": "letters"}}
        state = make_state(columns=columns, completion=[UserMessage(content="A")])
        await group.rubric.score_rollout(state)
        assert (state["reward"], state["metrics"]) == (1.0, {"longest": 0.0, "num_turns": 0.0, "right": 1.0})

    async def test_an_unknown_environment_is_no_reward_with_a_warning(self, group, make_state, caplog):
        state = make_state(columns={"info": {"env_id": "numbers"}})
        with caplog.at_level(logging.WARNING):
            await group.rubric.score_rollout(state)
        assert state["reward"] == 0.0
        assert "{'env_id': 'numbers'}" in caplog.text

    async def test_group_functions_get_the_rollouts_of_their_environment(self, letters, evaluate):
        seen = []

        def rank(completions, answers):
            seen.append(len(completions))
            return [float(position) for position in range(len(completions))]

        ranked = SingleTurnEnv(dataset=rows("x"), rubric=Rubric(funcs=[rank]))
        group = EnvGroup([letters, ranked])
        assert group.requires_group_rollouts
        found = await evaluate(group, rollouts_per_example=3)
        assert seen == [3]
        assert [(row["reward"], row["advantage"]) for row in found[6:]] == [(0.0, -1.0), (1.0, 0.0), (2.0, 1.0)]

    async def test_further_rubrics_score_all_environments(self, group, evaluate):
        group.add_rubric(Rubric(funcs=[lambda info: float(info["env_id"] == "words")], weights=[10.0]))
        assert [row["reward"] for row in await evaluate(group)] == [1.0, 1.0, 12.0]

    async def test_both_rubrics_clean_up_although_one_raises(self, evaluate):
        cleaned = []

        class Messy(Rubric):
            @cleanup
            async def fail(self, state):
                raise OSError("disk")

        group = EnvGroup([SingleTurnEnv(dataset=rows("a"), rubric=Messy(funcs=[right]))])
        group.rubric.add_cleanup_handler(lambda state: cleaned.append(state["info"]))
        [row] = await evaluate(group)
        assert (cleaned, row["error"]["error"]) == ([{"env_id": "env_0"}], "ScoringError")


class TestSettings:
    def test_lengths_scoring_and_time_limits_are_set_in_all_environments_and_others_where_they_are_known(
        self, group, letters, words
    ):
        group.set_kwargs(max_seq_len=7, score_rollouts=False)
        assert [(env.max_seq_len, env.score_rollouts) for env in (group, letters, words)] == [(7, False)] * 3
        group.rubric.set_timeout_seconds(3.0)
        assert (letters.rubric.scoring_timeout_seconds, words.rubric.scoring_timeout_seconds) == (3.0, 3.0)

        class Talk(MultiTurnEnv):
            async def env_response(self, messages, state):
                return "go on"

        talk = Talk(dataset=rows("x"))
        group = EnvGroup([letters, EnvGroup([talk])], env_id="group")
        group.set_kwargs(hook_timeout_seconds=2.0, max_total_completion_tokens=9, env_id="both", pass_threshold=0.9)
        assert (talk.hook_timeout_seconds, talk.max_total_completion_tokens) == (2.0, 9)
        assert letters.hook_timeout_seconds == 2.0
        assert (group.env_id, group.pass_threshold) == ("both", 0.9), "are the group's own"
        assert (letters.env_id, letters.pass_threshold) == ("", 0.5)


async def test_all_environments_are_torn_down_although_one_fails(caplog):
    left = []

    class Leaving(SingleTurnEnv):
        @teardown
        async def leave(self):
            left.append(self.name)
            if self.name == "first":
                raise OSError("disk")

    first, last = (Leaving(dataset=rows("a"), name=name) for name in ("first", "last"))
    await tear_down(EnvGroup([EnvGroup([first]), last]))
    assert left == ["first", "last"]
    assert "OSError: disk" in caplog.text


async def test_the_state_of_a_new_rollout_knows_its_route(group, scripted_client):
    rollout_input = an_input(info={"env_id": "letters"})
    state = await group.init_state(rollout_input, scripted_client("A"), "m")
    assert state["info"] == {"env_id": "letters"}
    assert state.keys() == new_state(rollout_input).keys()

"""Environments: what goes in, how the exchange goes on, what ends it, and what is in the state then."""

import logging

import pytest

from nightjar.core.calling.decorators import cleanup, stop, teardown
from nightjar.core.messages import AssistantMessage, SystemMessage, TextMessage, Tool, UserMessage
from nightjar.core.rollout import records
from nightjar.environments import MultiTurnEnv, SingleTurnEnv, tear_down
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ModelError, OverlongPromptError

DATASET = [{"question": "2+2?", "answer": "4"}]
ADD, SUB = ({"name": name, "description": "computes", "parameters": {}} for name in ("add", "sub"))


class Echo(MultiTurnEnv):
    """Says back what the model said; ends when the model says bye."""

    async def env_response(self, messages, state, **kwargs):
        said = messages[-1].content
        if said == "bye":
            state["final_env_response"] = [UserMessage(content="bye bye")]
        return [UserMessage(content=f"{said}?")]


def contents(messages):
    return [message.content for message in messages]


async def test_a_single_turn_asks_once_and_is_done(attempt, response):
    env = SingleTurnEnv(dataset=DATASET, system_prompt="Be brief.")
    state, client = await attempt(env, response("4", finish_reason="length", usage=(30, 7)), "never")
    assert [asked[0] for asked in client.asked] == [[SystemMessage(content="Be brief."), UserMessage(content="2+2?")]]
    assert state["completion"] == [AssistantMessage(content="4")]
    ended = (state["is_completed"], state["stop_condition"], state["is_truncated"], state["error"])
    assert ended == (True, "max_turns_reached", True, None)
    assert state["usage"] == {"input_tokens": 30, "output_tokens": 7}
    assert state["timing"]["generation_ms"] > 0
    assert not (await attempt(env, "4"))[0]["is_truncated"]


async def test_model_and_environment_take_turns_without_a_limit_at_0(attempt):
    state, client = await attempt(Echo(dataset=DATASET, max_turns=3), "a", "b", "c")
    said = ["2+2?", "a", "a?", "b", "b?", "c"]
    assert contents(client.asked[-1][0]) == said[:5]
    assert contents(state["completion"]) == said[1:]
    steps = [(contents(step["prompt"]), contents(step["completion"])) for step in state["trajectory"]]
    assert steps == [(said[:1], ["a"]), (said[:3], ["b"]), (said[:5], ["c"])]
    assert state["usage"] == {"input_tokens": 9, "output_tokens": 6}
    assert (len(client.asked), state["stop_condition"]) == (3, "max_turns_reached")
    for max_turns in (-1, 0):
        _, client = await attempt(Echo(dataset=DATASET, max_turns=max_turns), *["a"] * 30, "bye")
        assert len(client.asked) == 31

    class Plain(Echo):
        async def env_response(self, messages, state, **kwargs):
            return "go on"

    _, client = await attempt(Plain(dataset=DATASET, max_turns=2), "a")
    assert client.asked[1][0][-1] == TextMessage(content="go on")


async def test_what_ends_a_rollout_keeps_the_conversation_and_the_first_stop_is_recorded(attempt):
    for answer, ended, completion in (
        ("bye", "has_final_env_response", ["a", "a?", "bye", "bye bye"]),
        (ModelError("down"), "has_error", ["a"]),
        (OverlongPromptError("too long"), "prompt_too_long", ["a"]),
    ):
        state, client = await attempt(Echo(dataset=DATASET), "a", answer, "never")
        assert (len(client.asked), state["stop_condition"], state["is_completed"]) == (2, ended, True)
        assert contents(state["completion"]) == completion
        assert state["error"] is (answer if ended == "has_error" else None)
        assert state["is_truncated"] is (ended == "prompt_too_long")
    for priority, named in ((5, "middle"), (0, "apple")):

        class Stops(Echo):
            @stop
            async def apple(self, state):
                return len(state["trajectory"]) == 1

            @stop(priority=priority)
            async def middle(self, state):
                return len(state["trajectory"]) == 1

        state, _ = await attempt(Stops(dataset=DATASET, max_turns=1), "a")
        assert state["stop_condition"] == named


async def test_an_exception_keeps_the_conversation_and_a_cleanup_hides_no_earlier_error(attempt):
    class Broken(Echo):
        async def env_response(self, messages, state, **kwargs):
            return state["board"][3]

    state, _ = await attempt(Broken(dataset=DATASET), "a")
    assert (type(state["error"]), state["stop_condition"]) == (KeyError, "has_error")
    assert 'return state["board"][3]' in records.error_row(state["error"])["traceback"]
    assert (state["usage"], contents(state["completion"])) == ({"input_tokens": 3, "output_tokens": 2}, ["a"])

    class Messy(Echo):
        @cleanup
        async def wipe(self, state):
            state["seen"] = contents(state["completion"])
            raise OSError("disk")

    error = ModelError("down")
    state, _ = await attempt(Messy(dataset=DATASET), "a", error)
    assert (state["seen"], state["error"]) == (["a"], error)


async def test_sampling_args_of_a_run_override_the_environment_s_key_by_key_and_the_client_gets_the_state(attempt):
    own = {"temperature": 0.5, "max_tokens": 9, "extra_body": {"top_k": 3}}
    given = {"temperature": 1.0, "extra_body": {"min_p": 0.1}}
    _, client = await attempt(SingleTurnEnv(dataset=DATASET, sampling_args=own), "4", sampling_args=given)
    assert client.asked[0][2] == {"n": 1, "max_tokens": 9, **given}
    state, client = await attempt(Echo(dataset=DATASET, max_turns=2), "a")
    assert [list(kwargs) for kwargs in client.kwargs] == [["state"], ["state"]]
    assert client.kwargs[1]["state"] is state


def test_a_dataset_is_needed_and_may_be_one_of_the_datasets_library(caplog):
    with pytest.raises(ValueError, match="dataset or eval_dataset"):
        SingleTurnEnv()
    with pytest.raises(ValueError, match="only an eval_dataset"):
        SingleTurnEnv(eval_dataset=DATASET).get_dataset()
    with caplog.at_level(logging.WARNING):
        assert len(SingleTurnEnv(dataset=DATASET * 3).get_eval_dataset(2)) == 2
    assert "eval_dataset" in caplog.text

    import datasets

    env = SingleTurnEnv(dataset=lambda: datasets.Dataset.from_list([{"question": "2+2?", "info": {"level": 1}}]))
    assert env.examples[0]["info"] == {"level": 1}
    assert env.dataset.column_names == ["question", "info", "prompt", "example_id"]


def test_examples_are_numbered_and_drawn_by_a_seed_and_results_become_a_dataset():
    rows = [{"question": str(number), "example_id": f"q{number}", "env_id": "x"} for number in range(5)]
    env = SingleTurnEnv(dataset=rows)
    dataset = env.get_dataset()
    assert (list(dataset["example_id"]), dataset["src_id"][1]) == ([0, 1, 2, 3, 4], "q1")
    assert "env_id" not in dataset.column_names
    assert [len(env.get_dataset(n)) for n in (3, -1, 99)] == [3, 5, 5]
    rows, again = (env.get_dataset(5, seed=3).to_list() for _ in range(2))
    assert [row["question"] for row in rows] == [str(row["example_id"]) for row in rows] != list("01234")
    assert rows == again
    rows = [{"reward": 1.0, "info": {"a": 1}}, {"reward": None, "info": {"a": "x"}}, {"reward": 0.5, "board": [1]}]
    dataset = SingleTurnEnv.make_dataset({"outputs": rows})
    assert (dataset["reward"], dataset["board"]) == ([1.0, None, 0.5], [None, None, [1]])
    assert dataset["info"] == ['{"a":1}', '{"a":"x"}', "null"]
    assert len(SingleTurnEnv.make_dataset({"outputs": []})) == 0


async def test_a_limit_of_completion_tokens_ends_a_rollout_after_the_turn_that_reaches_it(attempt, response):
    for limit, turns in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 3)):
        env = Echo(dataset=DATASET, max_turns=9, max_total_completion_tokens=limit)
        state, client = await attempt(env, response("a", usage=(30, 2)))
        assert (len(client.asked), state["stop_condition"]) == (turns, "max_total_completion_tokens_reached")
        assert (state["error"], state["is_truncated"]) == (None, False)
    for limit, usage in ((-1, (3, 2)), (0, (3, 2)), (1, None)):  # no limit, or no counts
        env = Echo(dataset=DATASET, max_turns=3, max_total_completion_tokens=limit)
        state, _ = await attempt(env, response("a", usage=usage))
        assert state["stop_condition"] == "max_turns_reached"


async def test_sampling_args_and_tools_may_be_changed_by_a_rollout_or_for_one_request(attempt, scripted_client):
    class Changing(Echo):
        async def env_response(self, messages, state):
            state["sampling_args"]["temperature"], state["tool_defs"] = 0.5, []
            return "go on"

    given = {"temperature": 1.0}
    env = Changing(dataset=DATASET, max_turns=2, sampling_args=given, tool_defs=[ADD])
    _, client = await attempt(env, "a")
    asked = [(sampling_args["temperature"], tools) for _, _, sampling_args, tools in client.asked]
    assert asked == [(1.0, [Tool(**ADD)]), (0.5, None)]
    env.sampling_args["seed"] = 1
    assert (env.sampling_args["temperature"], given) == (1.0, {"temperature": 1.0})
    env = SingleTurnEnv(dataset=DATASET)
    client, other = scripted_client("4"), scripted_client("5")
    state = await env.init_state({**env.examples[0], "rollout_index": 0}, client, "m", {"temperature": 1.0})
    answer = await env.get_model_response(state, "Hi", other, "n", [Tool(**ADD)], {"seed": 1})
    assert answer.message.content == "5"
    assert other.asked == [([TextMessage(content="Hi")], "n", {"seed": 1}, [Tool(**ADD)])]
    assert client.asked == []
    assert env.get_state_usage(state) == {"input_tokens": 3, "output_tokens": 2}


async def test_tools_of_the_example_come_before_those_of_the_environment_and_tools_of_old_are_refused(attempt):
    env = SingleTurnEnv(dataset=DATASET, tool_defs=[ADD])
    for info, offered in (({}, [Tool(**ADD)]), ({"tool_defs": [SUB]}, [Tool(**SUB)]), ({"tool_defs": []}, None)):
        _, client = await attempt(env, "4", info=info)
        assert client.asked[0][3] == offered
    for given in ({"oai_tools": []}, {"tool_defs": [{"type": "function", "function": SUB}]}):
        with pytest.raises(ValueError, match=r"oai_tools|OpenAI"):
            SingleTurnEnv(dataset=DATASET, **given)
        with pytest.raises(ValueError, match=r"oai_tools|OpenAI"):
            await attempt(SingleTurnEnv(dataset=DATASET), "4", info=given)


async def test_usage_is_the_sum_of_all_reported_tokens_of_all_requests(scripted_client, response, attempt):
    env = SingleTurnEnv(dataset=DATASET)
    state = await env.init_state({**env.examples[0], "rollout_index": 0}, scripted_client("4"), "m")
    env.increment_state_usage_from_response(state, response("x", usage=None))
    assert env.get_state_usage(state) is None
    env.increment_state_usage(state, 3, 4)
    before = env.get_state_usage(state)
    env.increment_state_usage(state, output_tokens=1)
    env.increment_state_usage_from_response(state, response("x", usage=(10, 20)))
    assert env.get_state_usage(state) == state["usage"] == {"input_tokens": 13, "output_tokens": 25}
    assert before == {"input_tokens": 3, "output_tokens": 4}
    with pytest.raises(ValueError, match="negative"):
        env.increment_state_usage(state, -1)

    class Simulated(Echo):
        async def env_response(self, messages, state):
            await self.get_model_response(state, "What would a user say?")
            return "go on"

    state, _ = await attempt(Simulated(dataset=DATASET, max_turns=2), response("a", usage=(10, 1)))
    assert (state["usage"], len(state["trajectory"])) == ({"input_tokens": 30, "output_tokens": 3}, 2)


async def test_settings_go_through_methods_and_the_rubric_s_parser_and_teardown_are_the_environment_s(caplog):
    class Careful(SingleTurnEnv):
        def set_level(self, level):
            self.level = level * 2

    env = Careful(dataset=DATASET)
    env.set_kwargs(level=2, max_seq_len=7, score_rollouts=False, colour="red", max_turns=3)
    found = (env.level, env.max_seq_len, env.score_rollouts, env.colour, env.max_turns)
    assert found == (4, 7, False, "red", 3)
    env = SingleTurnEnv(dataset=DATASET, rubric=Rubric([len], [1.0]))
    with caplog.at_level(logging.WARNING):
        env.add_rubric(Rubric([len], [0.5]))
    assert env.rubric.weights == [1.0, 0.0, 0.5]
    rubric = Rubric()
    assert SingleTurnEnv(dataset=DATASET, rubric=rubric).parser is rubric.parser
    left = []

    class Leaving:
        @teardown
        async def leave(self):
            left.append(type(self).__mro__[2].__name__)

    class LeavingEnv(Leaving, SingleTurnEnv): ...

    class LeavingRubric(Leaving, Rubric): ...

    await tear_down(LeavingEnv(dataset=DATASET, rubric=LeavingRubric()))
    assert left == ["Rubric", "SingleTurnEnv"]


async def test_datasets_that_are_functions_are_built_once_when_they_are_needed_and_can_be_replaced(scripted_client):
    def build(name, count):
        built.append(name)
        return [{"question": f"{name} {number}", "answer": str(number)} for number in range(count)]

    built, how = [], {"dataset": lambda: build("train", 3), "eval_dataset": lambda: build("eval", 2)}
    rows = (await SingleTurnEnv(**how).evaluate(scripted_client("0"), "m"))["outputs"]
    assert ([row["answer"] for row in rows], built) == (["0", "1"], ["eval"])
    built, env = [], SingleTurnEnv(**how)
    assert (env.has_eval_examples, built) == (True, [])
    for _ in range(2):
        assert (len(env.get_dataset(2)), len(env.get_eval_dataset()), len(env.examples)) == (2, 2, 2)
        assert list(env.build_eval_dataset()["question"]) == ["eval 0", "eval 1"]
    assert built == ["train", "eval"]
    env.dataset, env.eval_dataset = [{"question": "new"}], None
    assert list(env.get_dataset()["question"]) == list(env.get_eval_dataset()["question"]) == ["new"]

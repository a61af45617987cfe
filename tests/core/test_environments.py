"""Environments: what goes in, how the exchange goes on, what ends it, and what is in the state then."""

import asyncio
import logging

import pytest

from nightjar.core.calling.decorators import cleanup, stop, teardown
from nightjar.core.messages import AssistantMessage, SystemMessage, TextMessage, Tool, UserMessage
from nightjar.core.rollout import records
from nightjar.environments import MultiTurnEnv, SingleTurnEnv, tear_down
from nightjar.environments.rubrics import Rubric
from nightjar.errors import DatasetError, ModelError, OverlongPromptError

DATASET = [{"question": "2+2?", "answer": "4"}]


class Echo(MultiTurnEnv):
    """Says back what the model said; ends when the model says bye."""

    async def env_response(self, messages, state, **kwargs):
        said = messages[-1].content
        if said == "bye":
            state["final_env_response"] = [UserMessage(content="bye bye")]
        return [UserMessage(content=f"{said}?")]


def contents(messages):
    return [message.content for message in messages]


class TestSingleTurn:
    async def test_asks_once_and_is_done(self, attempt):
        state, client = await attempt(SingleTurnEnv(dataset=DATASET, system_prompt="Be brief."), "4", "never")
        prompt = [SystemMessage(content="Be brief."), UserMessage(content="2+2?")]
        assert [asked[0] for asked in client.asked] == [prompt]
        assert state["completion"] == [AssistantMessage(content="4")]
        ended = (state["is_completed"], state["stop_condition"], state["is_truncated"], state["error"])
        assert ended == (True, "max_turns_reached", False, None)

    async def test_a_truncated_answer_is_noted(self, attempt, response):
        state, _ = await attempt(SingleTurnEnv(dataset=DATASET), response("4", finish_reason="length"))
        assert state["is_truncated"] is True

    async def test_usage_and_time_are_noted(self, attempt, response):
        state, _ = await attempt(SingleTurnEnv(dataset=DATASET), response("4", usage=(30, 7)))
        assert state["usage"] == {"input_tokens": 30, "output_tokens": 7}
        assert state["timing"]["generation_ms"] > 0

    async def test_num_turns_is_a_metric_that_does_not_count(self, attempt):
        env = SingleTurnEnv(dataset=DATASET, rubric=Rubric([lambda completion: 0.5]))
        state, _ = await attempt(env, "4")
        await env.rubric.score_rollout(state)
        assert (state["reward"], state["metrics"]) == (0.5, {"<lambda>": 0.5, "num_turns": 1.0})


class TestMultiTurn:
    async def test_model_and_environment_take_turns(self, attempt):
        state, client = await attempt(Echo(dataset=DATASET, max_turns=3), "a", "b", "c")
        said = ["2+2?", "a", "a?", "b", "b?", "c"]
        assert contents(client.asked[-1][0]) == said[:5]
        assert contents(state["completion"]) == said[1:]
        steps = [(contents(step["prompt"]), contents(step["completion"])) for step in state["trajectory"]]
        assert steps == [(said[:1], ["a"]), (said[:3], ["b"]), (said[:5], ["c"])]
        assert state["usage"] == {"input_tokens": 9, "output_tokens": 6}

    async def test_a_final_response_ends_it_without_asking_again(self, attempt):
        state, client = await attempt(Echo(dataset=DATASET), "a", "bye", "never")
        assert (len(client.asked), state["stop_condition"]) == (2, "has_final_env_response")
        assert contents(state["completion"]) == ["a", "a?", "bye", "bye bye"]

    async def test_max_turns_end_it(self, attempt):
        state, client = await attempt(Echo(dataset=DATASET, max_turns=4), "a")
        assert (len(client.asked), state["stop_condition"]) == (4, "max_turns_reached")

    @pytest.mark.parametrize("max_turns", [-1, 0])
    async def test_no_limit_of_turns(self, attempt, max_turns):
        _, client = await attempt(Echo(dataset=DATASET, max_turns=max_turns), *["a"] * 30, "bye")
        assert len(client.asked) == 31

    async def test_the_environment_may_answer_with_a_text(self, attempt):
        class Plain(Echo):
            async def env_response(self, messages, state, **kwargs):
                return "go on"

        _, client = await attempt(Plain(dataset=DATASET, max_turns=2), "a")
        assert client.asked[1][0][-1] == TextMessage(content="go on")

    async def test_the_saved_size_of_a_long_exchange_is_not_quadratic(self, attempt):
        state, _ = await attempt(Echo(dataset=DATASET, max_turns=50), "a")
        row, _ = records.attempt_row(state, 1, "h")
        assert [step["prompt"] for step in row["state"]["trajectory"]] == list(range(1, 101, 2))


class TestStopConditions:
    @pytest.mark.parametrize(("priority", "named"), [(5, "middle"), (0, "apple")])
    async def test_the_first_by_priority_and_then_by_name_is_recorded(self, attempt, priority, named):
        class Stops(Echo):
            @stop
            async def apple(self, state):
                return len(state["trajectory"]) == 1

            @stop(priority=priority)
            async def middle(self, state):
                return len(state["trajectory"]) == 1

        state, _ = await attempt(Stops(dataset=DATASET, max_turns=1), "a")
        assert state["stop_condition"] == named


class TestTimeout:
    async def test_is_no_error_and_keeps_the_conversation(self, attempt):
        async def hang(prompt):
            await asyncio.sleep(10)

        env = Echo(dataset=DATASET, timeout_seconds=0.02)
        state, _ = await attempt(env, "a", hang)
        assert (state["error"], state["stop_condition"], state["is_completed"]) == (None, "timeout_reached", True)
        assert contents(state["completion"]) == ["a"]


class TestErrors:
    async def test_an_exception_of_environment_code_keeps_traceback_usage_and_conversation(self, attempt):
        class Broken(Echo):
            async def env_response(self, messages, state, **kwargs):
                return state["board"][3]

        state, _ = await attempt(Broken(dataset=DATASET), "a")
        assert (type(state["error"]), state["stop_condition"]) == (KeyError, "has_error")
        assert 'return state["board"][3]' in records.error_row(state["error"])["traceback"]
        assert (state["usage"], contents(state["completion"])) == ({"input_tokens": 3, "output_tokens": 2}, ["a"])

    async def test_a_model_error_is_the_rollout_s_error(self, attempt):
        error = ModelError("down")
        state, _ = await attempt(SingleTurnEnv(dataset=DATASET), error)
        assert (state["error"], state["stop_condition"], state["completion"]) == (error, "has_error", [])

    async def test_a_prompt_that_is_too_long_is_no_error(self, attempt):
        state, _ = await attempt(Echo(dataset=DATASET), "a", OverlongPromptError("too long"))
        assert (state["error"], state["stop_condition"], state["is_truncated"]) == (None, "prompt_too_long", True)
        assert contents(state["completion"]) == ["a"]

    async def test_the_first_error_counts(self, attempt):
        class Messy(SingleTurnEnv):
            @cleanup
            async def wipe(self, state):
                raise OSError("disk")

        error = ModelError("down")
        state, _ = await attempt(Messy(dataset=DATASET), error)
        assert state["error"] is error


class TestHandlers:
    async def test_the_completion_is_there_when_the_environment_cleans_up(self, attempt):
        class Tidy(SingleTurnEnv):
            @cleanup
            async def look(self, state):
                state["seen"] = contents(state["completion"])

        state, _ = await attempt(Tidy(dataset=DATASET), "4")
        assert state["seen"] == ["4"]

    async def test_teardown_is_the_environment_s_and_the_rubric_s(self):
        left = []

        class Leaving(SingleTurnEnv):
            @teardown
            async def leave(self):
                left.append("environment")

        class LeavingRubric(Rubric):
            @teardown
            async def leave(self):
                left.append("rubric")

        await tear_down(Leaving(dataset=DATASET, rubric=LeavingRubric()))
        assert left == ["rubric", "environment"]


class TestRequests:
    async def test_a_run_s_sampling_args_override_the_environment_s_key_by_key(self, attempt):
        own = {"temperature": 0.5, "max_tokens": 9, "extra_body": {"top_k": 3}}
        given = {"temperature": 1.0, "extra_body": {"min_p": 0.1}}
        _, client = await attempt(SingleTurnEnv(dataset=DATASET, sampling_args=own), "4", sampling_args=given)
        assert client.asked[0][2] == {"n": 1, "max_tokens": 9, **given}

    async def test_the_client_gets_the_state(self, attempt):
        class Session(Echo):
            async def setup_state(self, state):
                state["session"] = 1

            async def env_response(self, messages, state, **kwargs):
                state["session"] += 1
                return "go on"

        state, client = await attempt(Session(dataset=DATASET, max_turns=2), "a")
        assert [list(kwargs) for kwargs in client.kwargs] == [["state"], ["state"]]
        assert client.kwargs[1]["state"] is state


class TestDatasets:
    def test_one_of_the_two_is_needed(self):
        with pytest.raises(ValueError, match="Either dataset or eval_dataset must be provided"):
            SingleTurnEnv()

    def test_the_evaluation_dataset_is_evaluated(self):
        env = SingleTurnEnv(dataset=DATASET, eval_dataset=[{"question": "3+3?"}])
        assert env.examples[0]["question"] == "3+3?"
        assert env.get_dataset()[0]["question"] == "2+2?"

    def test_the_only_one_serves_for_both(self):
        assert SingleTurnEnv(dataset=DATASET).get_eval_dataset()["answer"] == ["4"]

    def test_n_and_seed(self):
        env = SingleTurnEnv(dataset=[{"question": str(number)} for number in range(20)])
        assert (len(env.get_dataset(3)), len(env.get_dataset(-1)), len(env.get_dataset(99))) == (3, 20, 20)
        drawn = [env.get_dataset(20, seed=7)["question"] for _ in range(2)]
        assert drawn[0] == drawn[1] != env.get_dataset(20)["question"]

    def test_further_arguments_become_attributes(self):
        assert SingleTurnEnv(dataset=DATASET, difficulty=3).difficulty == 3


class TestRubrics:
    def test_added_rubrics_add_up(self, caplog):
        env = SingleTurnEnv(dataset=DATASET, rubric=Rubric([len], [1.0]))
        with caplog.at_level(logging.WARNING):
            env.add_rubric(Rubric([len], [0.5]))
        assert env.rubric.weights == [1.0, 0.0, 0.5]

    def test_the_parser_is_the_rubric_s_unless_given(self):
        rubric = Rubric()
        assert SingleTurnEnv(dataset=DATASET, rubric=rubric).parser is rubric.parser


class TestTokenLimit:
    """``max_total_completion_tokens`` bounds what the model writes in a rollout."""

    @pytest.mark.parametrize(("limit", "turns"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
    async def test_ends_it_after_the_turn_that_reaches_it(self, attempt, response, limit, turns):
        env = Echo(dataset=DATASET, max_turns=9, max_total_completion_tokens=limit)
        state, client = await attempt(env, response("a", usage=(30, 2)))
        assert (len(client.asked), state["stop_condition"]) == (turns, "max_total_completion_tokens_reached")
        assert (state["error"], state["is_truncated"]) == (None, False)

    @pytest.mark.parametrize(("limit", "usage"), [(-1, (3, 2)), (0, (3, 2)), (1, None)])
    async def test_no_limit_or_no_counts_mean_no_end(self, attempt, response, limit, usage):
        env = Echo(dataset=DATASET, max_turns=3, max_total_completion_tokens=limit)
        state, _ = await attempt(env, response("a", usage=usage))
        assert state["stop_condition"] == "max_turns_reached"

    async def test_can_be_set_later(self, attempt):
        env = Echo(dataset=DATASET)
        env.set_max_total_completion_tokens(4)
        state, client = await attempt(env, "a")
        assert (len(client.asked), state["stop_condition"]) == (2, "max_total_completion_tokens_reached")


class TestSamplingArgs:
    async def test_a_rollout_may_change_its_own(self, attempt):
        class Warming(Echo):
            async def env_response(self, messages, state):
                state["sampling_args"]["temperature"] = 0.5
                return "go on"

        env = Warming(dataset=DATASET, max_turns=2, sampling_args={"temperature": 1.0})
        _, client = await attempt(env, "a")
        assert [asked[2]["temperature"] for asked in client.asked] == [1.0, 0.5]
        assert env.sampling_args["temperature"] == 1.0

    async def test_the_caller_s_arguments_are_not_changed(self, attempt):
        given = {"temperature": 1.0}
        env = SingleTurnEnv(dataset=DATASET, sampling_args=given)
        env.sampling_args["seed"] = 1
        assert given == {"temperature": 1.0}

    async def test_one_request_may_have_others(self, scripted_client):
        env = SingleTurnEnv(dataset=DATASET)
        client, other = scripted_client("4"), scripted_client("5")
        state = await env.init_state({**env.examples[0], "rollout_index": 0}, client, "m", {"temperature": 1.0})
        tool = Tool(name="add", description="adds", parameters={})
        answer = await env.get_model_response(state, "Hi", other, "n", [tool], {"seed": 1})
        assert answer.message.content == "5"
        assert other.asked == [([TextMessage(content="Hi")], "n", {"seed": 1}, [tool])]
        assert client.asked == []
        assert env.get_state_usage(state) == {"input_tokens": 3, "output_tokens": 2}


ADD, SUB = ({"name": name, "description": "computes", "parameters": {}} for name in ("add", "sub"))
OLD = {"type": "function", "function": SUB}


class TestToolDefs:
    @pytest.mark.parametrize(
        ("info", "offered"),
        [({}, [Tool(**ADD)]), ({"tool_defs": [SUB]}, [Tool(**SUB)]), ({"tool_defs": []}, None)],
    )
    async def test_those_of_the_example_come_before_those_of_the_environment(self, attempt, info, offered):
        _, client = await attempt(SingleTurnEnv(dataset=DATASET, tool_defs=[ADD]), "4", info=info)
        assert client.asked[0][3] == offered

    @pytest.mark.parametrize(("given", "named"), [({"oai_tools": []}, "oai_tools"), ({"tool_defs": [OLD]}, "OpenAI")])
    async def test_of_old_are_refused(self, attempt, given, named):
        with pytest.raises(ValueError, match=named):
            SingleTurnEnv(dataset=DATASET, **given)
        with pytest.raises(ValueError, match=named):
            await attempt(SingleTurnEnv(dataset=DATASET), "4", info=given)

    async def test_a_rollout_may_change_its_own(self, attempt):
        class Taking(Echo):
            async def env_response(self, messages, state):
                state["tool_defs"] = []
                return "go on"

        tool = Tool(name="add", description="adds", parameters={})
        _, client = await attempt(Taking(dataset=DATASET, max_turns=2, tool_defs=[tool]), "a")
        assert [asked[3] for asked in client.asked] == [[tool], None]


class TestUsage:
    @pytest.fixture
    async def state(self, scripted_client):
        env = SingleTurnEnv(dataset=DATASET)
        return env, await env.init_state({**env.examples[0], "rollout_index": 0}, scripted_client("4"), "m")

    async def test_is_the_sum_of_all_reported_tokens(self, state, response):
        env, state = state
        env.increment_state_usage_from_response(state, response("x", usage=None))
        assert env.get_state_usage(state) is None
        env.increment_state_usage(state, 3, 4)
        before = env.get_state_usage(state)
        env.increment_state_usage(state, output_tokens=1)
        env.increment_state_usage_from_response(state, response("x", usage=(10, 20)))
        assert env.get_state_usage(state) == state["usage"] == {"input_tokens": 13, "output_tokens": 25}
        assert before == {"input_tokens": 3, "output_tokens": 4}

    async def test_tokens_cannot_be_taken_back(self, state):
        env, state = state
        with pytest.raises(ValueError, match="cannot be negative"):
            env.increment_state_usage(state, -1)

    async def test_of_a_rollout_includes_the_environment_s_own_requests(self, attempt, response):
        class Simulated(Echo):
            async def env_response(self, messages, state):
                await self.get_model_response(state, "What would a user say?")
                return "go on"

        state, _ = await attempt(Simulated(dataset=DATASET, max_turns=2), response("a", usage=(10, 1)))
        assert state["usage"] == {"input_tokens": 30, "output_tokens": 3}
        assert len(state["trajectory"]) == 2


class TestSettings:
    def test_go_through_the_method_where_there_is_one(self):
        class Careful(SingleTurnEnv):
            def set_level(self, level):
                self.level = level * 2

        env = Careful(dataset=DATASET)
        env.set_kwargs(level=2, max_seq_len=7, score_rollouts=False, colour="red", max_turns=3)
        found = (env.level, env.max_seq_len, env.score_rollouts, env.colour, env.max_turns)
        assert found == (4, 7, False, "red", 3)


class TestBuilders:
    """Datasets may be functions, which are called when they are needed, once."""

    @pytest.fixture
    def built(self):
        return []

    @pytest.fixture
    def env(self, built):
        def build(name, count):
            built.append(name)
            return [{"question": f"{name} {number}", "answer": str(number)} for number in range(count)]

        return SingleTurnEnv(dataset=lambda: build("train", 3), eval_dataset=lambda: build("eval", 2))

    def test_nothing_is_built_before(self, env, built):
        assert (env.has_eval_examples, built) == (True, [])

    def test_each_is_built_once(self, env, built):
        for _ in range(2):
            assert len(env.get_dataset(2)) == 2
            assert len(env.get_eval_dataset()) == 2
            assert len(env.examples) == 2
            assert list(env.build_eval_dataset()["question"]) == ["eval 0", "eval 1"]
        assert built == ["train", "eval"]

    async def test_an_evaluation_builds_what_it_evaluates(self, env, built, scripted_client):
        rows = (await env.evaluate(scripted_client("0"), "m"))["outputs"]
        assert ([row["answer"] for row in rows], built) == (["0", "1"], ["eval"])

    def test_a_dataset_of_the_datasets_library_can_be_built(self):
        import datasets

        env = SingleTurnEnv(dataset=lambda: datasets.Dataset.from_list([{"question": "2+2?", "info": {"level": 1}}]))
        assert env.examples[0]["info"] == {"level": 1}
        assert env.dataset.column_names == ["question", "info", "prompt", "example_id"]

    def test_a_dataset_can_be_replaced(self, env):
        env.dataset = [{"question": "new"}]
        assert list(env.get_dataset()["question"]) == ["new"]
        env.eval_dataset = None
        assert list(env.get_eval_dataset()["question"]) == ["new"]

    def test_an_invalid_dataset_is_an_error_when_it_is_built(self):
        with pytest.raises(DatasetError, match="A dataset must be a list of dicts or a Dataset, found dict"):
            SingleTurnEnv(dataset=lambda: {"question": "2+2?"}).get_dataset()


class TestGettingDatasets:
    @pytest.fixture
    def env(self):
        rows = [{"question": str(number), "example_id": f"q{number}", "env_id": "x"} for number in range(5)]
        return SingleTurnEnv(dataset=rows, system_prompt="Be brief.")

    def test_examples_are_numbered_and_old_ids_kept(self, env):
        dataset = env.get_dataset()
        assert (list(dataset["example_id"]), dataset["src_id"][1]) == ([0, 1, 2, 3, 4], "q1")
        assert "env_id" not in dataset.column_names

    def test_shuffled_examples_keep_their_numbers(self, env):
        rows = env.get_dataset(seed=3).to_list()
        assert [row["question"] for row in rows] == [str(row["example_id"]) for row in rows] != list("01234")

    def test_a_missing_evaluation_dataset_is_a_warning(self, env, caplog):
        with caplog.at_level(logging.WARNING):
            assert len(env.get_eval_dataset(2)) == 2
        assert "eval_dataset is not set" in caplog.text

    def test_a_training_dataset_that_is_not_there(self):
        with pytest.raises(ValueError, match="there is only an eval_dataset"):
            SingleTurnEnv(eval_dataset=DATASET).get_dataset()

    def test_few_shot_messages_stand_between(self):
        few_shot = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
        env = SingleTurnEnv(dataset=DATASET, system_prompt="Be brief.", few_shot=few_shot)
        assert [message["content"] for message in env.get_dataset()[0]["prompt"]] == ["Be brief.", "1+1?", "2", "2+2?"]


class TestMakingDatasets:
    """``make_dataset`` makes a dataset of what ``generate`` returned."""

    def test_columns_that_do_not_go_together_are_json(self):
        rows = [{"reward": 1.0, "info": {"a": 1}}, {"reward": None, "info": {"a": "x"}}, {"reward": 0.5, "board": [1]}]
        dataset = SingleTurnEnv.make_dataset({"outputs": rows})
        assert dataset["reward"] == [1.0, None, 0.5]
        assert dataset["info"] == ['{"a":1}', '{"a":"x"}', "null"]
        assert dataset["board"] == [None, None, [1]]

    def test_of_no_rollouts(self):
        assert len(SingleTurnEnv.make_dataset({"outputs": []})) == 0

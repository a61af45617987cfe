"""Rollouts as rows: the fields that docs/run-directory.md describes, and the way back to a state."""

import orjson
import pytest

from nightjar.core.messages import AssistantMessage, Tool, ToolCall, ToolMessage, UserMessage
from nightjar.core.rollout.records import attempt_row, error_row, is_json_serializable, restore_state, result_row
from nightjar.core.rollout.state import TrajectoryStep
from nightjar.environments import SingleTurnEnv
from nightjar.errors import EmptyModelResponseError, ModelError, ScoringError


def caused_by(error, cause):
    error.__cause__ = cause
    return error


def raised(function):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller knows which
        function()
    return caught.value


def step(prompt, said, response, **fields):
    return TrajectoryStep(
        prompt=prompt,
        completion=[said],
        response=response,
        tokens=None,
        reward=None,
        advantage=None,
        is_truncated=False,
        trajectory_id="t",
        extras={},
        **fields,
    )


@pytest.fixture
def tool_rollout(make_state, response):
    """Two model calls with a tool call between them, as MultiTurnEnv leaves them."""
    call = {"id": "c1", "name": "add", "arguments": '{"a": 2, "b": 2}'}
    state = make_state(7, 1, usage={"input_tokens": 30, "output_tokens": 5}, turn_count=2)
    first = AssistantMessage(content=None, reasoning_content="add them", tool_calls=[ToolCall(**call)])
    result = ToolMessage(tool_call_id="c1", content="4")
    second = AssistantMessage(content="4")
    prompt = state["prompt"]
    state["trajectory"] = [
        step(prompt, first, response(None, tool_calls=[call], finish_reason="tool_calls")),
        step([*prompt, first, result], second, response("4")),
    ]
    state["completion"] = [first, result, second]
    state.update(is_completed=True, stop_condition="no_tools_called")
    state["timing"].restore(120.5)
    return state


def stored(row):
    """Returns a row as it comes back from a file."""
    return orjson.loads(orjson.dumps(row))


def ledger_row(state, attempt=1, example_hash="h"):
    """What the ledger's file holds of an attempt."""
    row, _ = attempt_row(state, attempt, example_hash)
    return stored(row)


class TestErrorRow:
    def test_no_error_is_null(self):
        assert error_row(None) is None

    def test_an_endpoint_s_error_has_its_chain_and_no_traceback(self):
        error = caused_by(ModelError("Model 'm': overloaded"), ConnectionError("reset"))
        assert error_row(error) == {
            "error": "ModelError",
            "message": "Model 'm': overloaded",
            "phase": "generation",
            "error_chain_repr": "ModelError -> ConnectionError",
            "error_chain_str": "ModelError: Model 'm': overloaded -> ConnectionError: reset",
            "traceback": None,
        }

    def test_an_error_of_code_keeps_its_traceback(self):
        row = error_row(raised(lambda: {}["board"]))
        assert 'row = error_row(raised(lambda: {}["board"]))' in row["traceback"]

    def test_a_scoring_error_says_its_phase_and_keeps_the_cause_s_traceback(self):
        row = error_row(caused_by(ScoringError("Reward function 'f': division by zero"), raised(lambda: 1 / 0)))
        assert (row["phase"], "raised(lambda: 1 / 0)" in row["traceback"]) == ("scoring", True)

    def test_a_row_stays_a_row(self):
        row = error_row(EmptyModelResponseError("nothing"))
        assert error_row(row) is row


class TestAttemptRow:
    def test_says_which_rollout_and_which_attempt(self, tool_rollout):
        row = ledger_row(tool_rollout, 3, "abcd")
        fields = ("example_id", "rollout_index", "attempt", "example_hash", "error", "generation_ms")
        assert [row[field] for field in fields] == [7, 1, 3, "abcd", None, 120.5]

    def test_a_failed_attempt_has_an_error_usage_and_no_state(self, make_state):
        state = make_state(error=ModelError("down"), usage={"input_tokens": 9, "output_tokens": 1})
        row = ledger_row(state)
        assert (row["error"]["error"], row["token_usage"]["input_tokens"], row["state"]) == ("ModelError", 9, None)

    def test_a_step_stores_how_many_messages_it_was_asked_with_not_the_messages(self, tool_rollout):
        steps = ledger_row(tool_rollout)["state"]["trajectory"]
        assert [(saved["prompt"], saved["completion"]) for saved in steps] == [(1, 1), (3, 1)]

    def test_a_step_asked_with_other_messages_stores_them(self, tool_rollout):
        tool_rollout["trajectory"][1]["prompt"] = [UserMessage(content="a summary")]
        steps = ledger_row(tool_rollout)["state"]["trajectory"]
        assert steps[1]["prompt"] == [{"role": "user", "content": "a summary"}]

    def test_the_environment_s_own_keys_are_extras(self, tool_rollout):
        assert ledger_row(tool_rollout)["state"]["extras"] == {"turn_count": 2}

    def test_a_key_that_no_file_can_hold_is_left_out_and_named(self, tool_rollout):
        tool_rollout["connection"] = object()
        assert ledger_row(tool_rollout)["state"]["extras"] == {"turn_count": 2}
        assert attempt_row(tool_rollout, 1, "h")[1] == ["connection"]


class TestRestore:
    @pytest.fixture
    def restored(self, tool_rollout, make_state):
        return restore_state(make_state(7, 1), ledger_row(tool_rollout))

    def test_completion_with_tool_calls_and_reasoning(self, restored, tool_rollout):
        assert restored["completion"] == tool_rollout["completion"]

    def test_prompts_and_completions_of_every_step(self, restored, tool_rollout):
        for found, expected in zip(restored["trajectory"], tool_rollout["trajectory"], strict=True):
            assert (found["prompt"], found["completion"]) == (expected["prompt"], expected["completion"])

    def test_the_response_of_every_step(self, restored):
        answers = [saved["response"] for saved in restored["trajectory"]]
        assert [(a.id, a.model, a.message.finish_reason, a.usage.prompt_tokens) for a in answers] == [
            ("r", "served", "tool_calls", 3),
            ("r", "served", "stop", 3),
        ]
        assert answers[0].message.tool_calls == [ToolCall(id="c1", name="add", arguments='{"a": 2, "b": 2}')]

    def test_how_it_ended(self, restored):
        ended = (restored["is_completed"], restored["is_truncated"], restored["stop_condition"])
        assert ended == (True, False, "no_tools_called")

    def test_usage_time_and_extras(self, restored):
        assert restored["usage"] == {"input_tokens": 30, "output_tokens": 5}
        assert (restored["timing"]["generation_ms"], restored["turn_count"]) == (120.5, 2)

    def test_the_result_is_the_same_as_without_the_detour(self, restored, tool_rollout):
        rows = [result_row(state, attempts=1, example_hash="h") for state in (restored, tool_rollout)]
        assert rows[0] == rows[1]

    def test_a_step_with_other_messages(self, tool_rollout, make_state):
        tool_rollout["trajectory"][1]["prompt"] = [UserMessage(content="a summary")]
        restored = restore_state(make_state(7, 1), ledger_row(tool_rollout))
        assert restored["trajectory"][1]["prompt"] == [UserMessage(content="a summary")]
        assert restored["trajectory"][1]["completion"] == tool_rollout["trajectory"][1]["completion"]

    def test_a_rollout_that_said_nothing(self, make_state):
        state = make_state(completion=[], is_completed=True, stop_condition="timeout_reached")
        restored = restore_state(make_state(), ledger_row(state))
        assert (restored["completion"], restored["trajectory"]) == ([], [])


class TestResultRow:
    def row(self, state, **fields):
        return result_row(state, attempts=2, example_hash="h", **fields)

    def test_a_scored_rollout(self, tool_rollout):
        tool_rollout.update(reward=1.0, advantage=0.25, metrics={"correct": 1.0})
        row = self.row(tool_rollout)
        fields = ("reward", "advantage", "metrics", "error", "attempts", "model", "stop_condition")
        assert [row[field] for field in fields] == [1.0, 0.25, {"correct": 1.0}, None, 2, "served", "no_tools_called"]

    def test_a_failed_rollout_has_no_reward_no_metrics_and_no_model(self, make_state):
        row = self.row(make_state(error=ModelError("down")))
        assert (row["reward"], row["advantage"], row["metrics"], row["model"]) == (None, None, {}, None)

    def test_messages_are_plain_data(self, tool_rollout):
        assert self.row(tool_rollout)["completion"][1:] == [
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
            {"role": "assistant", "content": "4"},
        ]

    def test_empty_columns_of_the_example_are_left_out(self, make_state):
        row = self.row(make_state(columns={"answer": "4", "info": {}, "task": ""}))
        assert (row["answer"], "info" in row, "task" in row) == ("4", False, False)

    def test_timing_has_three_keys(self, tool_rollout):
        assert self.row(tool_rollout)["timing"] == {"generation_ms": 120.5, "scoring_ms": 0.0, "total_ms": 120.5}

    def test_tools_are_there_where_the_model_was_offered_any(self, make_state, tool_rollout):
        tool = Tool(name="add", description="adds", parameters={"type": "object"})
        assert "tool_defs" not in self.row(tool_rollout)
        assert self.row(make_state(tool_defs=[tool]))["tool_defs"] == [
            {"name": "add", "description": "adds", "parameters": {"type": "object"}}
        ]

    def test_state_columns_are_kept_and_others_written_as_their_repr(self, tool_rollout):
        tool_rollout["seen"] = {1, 2}
        row = self.row(tool_rollout, state_columns=["turn_count", "seen", "missing"])
        assert (row["turn_count"], row["seen"], row["missing"]) == (2, "{1, 2}", None)

    def test_a_state_column_never_replaces_a_field(self, tool_rollout):
        tool_rollout["attempts"] = 99
        assert self.row(tool_rollout, state_columns=["attempts"])["attempts"] == 2


@pytest.mark.parametrize("value", [None, 1, "x", [1.5], {"a": [True]}])
def test_json_can_hold(value):
    assert is_json_serializable(value)


@pytest.mark.parametrize(
    "value", [object(), {1: "a"}, {1, 2}, 1 << 70, b"bytes"], ids=["object", "int key", "set", "large int", "bytes"]
)
def test_json_cannot_hold(value):
    assert not is_json_serializable(value)


class TestWhatAnEnvironmentChangesInItsInput:
    """``setup_state`` may set prompt, answer and info; a resumed run must score with these."""

    @pytest.fixture
    def restored(self, scripted_client):
        async def restore(change):
            return await self.saved_and_restored(scripted_client("said"), change)

        return restore

    async def saved_and_restored(self, client, change):
        env = SingleTurnEnv(dataset=[{"question": "q", "answer": "a", "info": {"level": 1}}])
        state = await env.init_state({**env.examples[0], "rollout_index": 0}, client, "m")
        change(state)
        state["completion"] = [AssistantMessage(content="said")]
        row = ledger_row(state)
        fresh = await env.init_state({**env.examples[0], "rollout_index": 0}, client, "m")
        return row, restore_state(fresh, row)

    async def test_nothing_is_stored_twice_where_nothing_changed(self, restored):
        row, _ = await restored(lambda state: None)
        assert "input" not in row["state"]

    async def test_a_new_answer_is_restored(self, restored):
        _, state = await restored(lambda state: state.__setitem__("answer", "b"))
        assert state["answer"] == "b"

    async def test_a_change_inside_info_is_restored(self, restored):
        _, state = await restored(lambda state: state["info"].update(level=2))
        assert state["info"] == {"level": 2}

    async def test_a_longer_prompt_is_restored(self, restored):
        _, state = await restored(lambda state: state["prompt"].append(UserMessage(content="hint")))
        assert [message.content for message in state["prompt"]] == ["q", "hint"]

    async def test_a_final_answer_of_the_environment_is_restored(self, restored):
        final = [UserMessage(content="game over")]
        _, state = await restored(lambda state: state.__setitem__("final_env_response", final))
        assert state["final_env_response"] == final

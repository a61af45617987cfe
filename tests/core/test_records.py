"""Rollouts as rows: the fields that docs/reference/run-directory.md describes, and the way back to a state."""

import functools

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


def step(prompt, said, response, **fields):
    return TrajectoryStep(
        prompt=prompt, completion=[said], response=response, tokens=None, reward=None, advantage=None,
        is_truncated=False, trajectory_id="t", extras={}, **fields,
    )  # fmt: skip


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


def ledger_row(state, attempt=1, example_hash="h"):
    row, _ = attempt_row(state, attempt, example_hash)
    return orjson.loads(orjson.dumps(row))


def test_errors_are_rows_with_their_chain_phase_and_traceback():
    row = error_row(EmptyModelResponseError("nothing"))
    assert (error_row(None), error_row(row) is row) == (None, True)
    error = caused_by(ModelError("Model 'm': overloaded"), ConnectionError("reset"))
    assert error_row(error) == {
        "error": "ModelError", "message": "Model 'm': overloaded", "phase": "generation",
        "error_chain_repr": "ModelError -> ConnectionError",
        "error_chain_str": "ModelError: Model 'm': overloaded -> ConnectionError: reset", "traceback": None,
    }  # fmt: skip
    with pytest.raises(KeyError) as caught:
        {}["board"]
    rows = [error_row(error) for error in (caught.value, caused_by(ScoringError("Reward function"), caught.value))]
    assert [row["phase"] for row in rows] == ["generation", "scoring"]
    assert all('{}["board"]' in row["traceback"] for row in rows)


def test_an_attempt_has_its_identity_the_number_of_its_messages_and_extras_or_its_error(tool_rollout, make_state):
    tool_rollout["connection"] = object()
    row = ledger_row(tool_rollout, 3, "abcd")
    fields = ("example_id", "rollout_index", "attempt", "example_hash", "error", "generation_ms")
    assert [row[field] for field in fields] == [7, 1, 3, "abcd", None, 120.5]
    assert [(saved["prompt"], saved["completion"]) for saved in row["state"]["trajectory"]] == [(1, 1), (3, 1)]
    assert row["state"]["extras"] == {"turn_count": 2}
    assert attempt_row(tool_rollout, 1, "h")[1] == ["connection"]
    row = ledger_row(make_state(error=ModelError("down"), usage={"input_tokens": 9, "output_tokens": 1}))
    assert (row["error"]["error"], row["token_usage"]["input_tokens"], row["state"]) == ("ModelError", 9, None)


def test_everything_that_scoring_needs_is_restored_also_messages_outside_the_conversation(tool_rollout, make_state):
    restored = restore_state(make_state(7, 1), ledger_row(tool_rollout))
    for key in ("completion", "is_completed", "is_truncated", "stop_condition", "usage", "turn_count"):
        assert restored[key] == tool_rollout[key]
    for found, expected in zip(restored["trajectory"], tool_rollout["trajectory"], strict=True):
        assert (found["prompt"], found["completion"]) == (expected["prompt"], expected["completion"])
    rows = [result_row(state, attempts=1, example_hash="h") for state in (restored, tool_rollout)]
    assert rows[0] == rows[1]
    answers = [saved["response"] for saved in restored["trajectory"]]
    assert {(a.id, a.model, a.usage.prompt_tokens) for a in answers} == {("r", "served", 3)}
    assert [a.message.finish_reason for a in answers] == ["tool_calls", "stop"]
    assert answers[0].message.tool_calls == [ToolCall(id="c1", name="add", arguments='{"a": 2, "b": 2}')]
    tool_rollout["trajectory"][1]["prompt"] = [UserMessage(content="a summary")]
    row = ledger_row(tool_rollout)
    assert row["state"]["trajectory"][1]["prompt"] == [{"role": "user", "content": "a summary"}]
    restored = restore_state(make_state(7, 1), row)["trajectory"][1]
    assert restored["prompt"] == [UserMessage(content="a summary")]
    assert restored["completion"] == tool_rollout["trajectory"][1]["completion"]
    state = make_state(completion=[], is_completed=True, stop_condition="timeout_reached")
    restored = restore_state(make_state(), ledger_row(state))
    assert (restored["completion"], restored["trajectory"]) == ([], [])


result_of = functools.partial(result_row, attempts=2, example_hash="h")


def test_rollouts_are_rows_without_what_they_lack_and_state_columns_never_replace_a_field(tool_rollout, make_state):
    tool_rollout.update(reward=1.0, advantage=0.25, metrics={"correct": 1.0}, seen={1, 2}, attempts=99)
    row = result_of(tool_rollout, state_columns=["turn_count", "seen", "missing", "attempts"])
    expected = {
        "reward": 1.0, "advantage": 0.25, "metrics": {"correct": 1.0}, "error": None, "attempts": 2,
        "model": "served", "stop_condition": "no_tools_called", "turn_count": 2, "seen": "{1, 2}", "missing": None,
        "timing": {"generation_ms": 120.5, "scoring_ms": 0.0, "total_ms": 120.5},
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    result = {"role": "tool", "tool_call_id": "c1", "content": "4"}
    assert row["completion"][1:] == [result, {"role": "assistant", "content": "4"}]
    row = result_of(make_state(error=ModelError("down")))
    assert (row["reward"], row["advantage"], row["metrics"], row["model"]) == (None, None, {}, None)
    tool = {"name": "add", "description": "adds", "parameters": {"type": "object"}}
    row = result_of(make_state(columns={"answer": "4", "info": {}, "task": ""}))
    assert (row["answer"], {"info", "task", "tool_defs"} & row.keys()) == ("4", set())
    assert result_of(make_state(tool_defs=[Tool(**tool)]))["tool_defs"] == [tool]


def test_json_holds_a_value_only_if_it_is_read_back_unchanged():
    assert all(map(is_json_serializable, (None, 1, "x", [1.5], {"a": [True]})))
    assert not any(map(is_json_serializable, (object(), {1: "a"}, {1, 2}, 1 << 70, b"bytes")))


FINAL = [UserMessage(content="game over")]


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (lambda state: None, "answer", "a"),
        (lambda state: state.__setitem__("answer", "b"), "answer", "b"),
        (lambda state: state["info"].update(level=2), "info", {"level": 2}),
        (lambda state: state["prompt"].append(FINAL[0]), "prompt", [UserMessage(content="q"), *FINAL]),
        (lambda state: state.__setitem__("final_env_response", FINAL), "final_env_response", FINAL),
    ],
    ids=["nothing", "answer", "info", "prompt", "final response"],
)
async def test_a_resumed_run_scores_with_the_input_that_the_environment_has_changed(
    scripted_client, change, key, value
):
    env = SingleTurnEnv(dataset=[{"question": "q", "answer": "a", "info": {"level": 1}}])

    async def fresh():
        return await env.init_state({**env.examples[0], "rollout_index": 0}, scripted_client("said"), "m")

    state = await fresh()
    change(state)
    state["completion"] = [AssistantMessage(content="said")]
    row = ledger_row(state)
    assert ("input" in row["state"]) is (value not in ("a", FINAL)), "unchanged columns are not stored"
    assert restore_state(await fresh(), row)[key] == value

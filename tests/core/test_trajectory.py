"""Steps of a trajectory: what is made of a response, and how its tokens are cut. Cuts are counted by hand."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from nightjar.core.messages import AssistantMessage, ResponseTokens, UserMessage
from nightjar.core.rollout.records import attempt_row, restore_state
from nightjar.core.rollout.state import new_step, response_messages, response_tokens
from nightjar.environments import MultiTurnEnv

PROMPT = [UserMessage(content="2+2?")]


@pytest.fixture
def with_tokens(response):
    """A response of four tokens to a prompt of three."""

    def make(content="4", routed_experts=None):
        answer = response(content)
        answer.message.tokens = ResponseTokens(
            prompt_ids=[11, 12, 13], prompt_mask=[0, 0, 0], completion_ids=[21, 22, 23, 24],
            completion_mask=[1, 1, 1, 1], completion_logprobs=[-0.1, -0.2, -0.3, -0.4], routed_experts=routed_experts,
        )  # fmt: skip
        return answer

    return make


def test_steps_are_cut_to_max_seq_len_tokens_prompt_first(with_tokens, response):
    """Of prompt and completion together; experts are cut with the completion."""
    prompt, completion, logprobs = [11, 12, 13], [21, 22, 23, 24], [-0.1, -0.2, -0.3, -0.4]
    experts = [[[1]], [[2]], [[3]], [[4]]]
    kept = {
        None: (3, 4, False, False), 8: (3, 4, False, False), 7: (3, 4, False, False), 6: (3, 3, False, True),
        5: (3, 2, False, True), 4: (3, 1, False, True), 3: (3, 0, False, True), 2: (2, 0, True, True),
        1: (1, 0, True, True), 0: (0, 0, True, True),
    }  # fmt: skip
    for max_seq_len, (of_prompt, of_completion, is_overlong, is_cut) in kept.items():
        answer = with_tokens(routed_experts=experts)
        assert response_tokens(answer, max_seq_len) == {
            "prompt_ids": prompt[:of_prompt], "prompt_mask": [0] * of_prompt,
            "completion_ids": completion[:of_completion], "completion_mask": [1] * of_completion,
            "completion_logprobs": logprobs[:of_completion], "routed_experts": experts[:of_completion],
            "overlong_prompt": is_overlong, "is_truncated": is_cut,
        }  # fmt: skip
        assert answer.message.tokens.completion_ids == completion
    assert response_tokens(with_tokens(), 5)["routed_experts"] is None
    assert response_tokens(response("4"), 1) is None


def test_steps_hold_what_was_asked_and_answered_with_reasoning_tool_calls_and_unknown_fields(response):
    answer = response("4")
    assert new_step(PROMPT, answer, "t1") == {
        "prompt": PROMPT, "completion": [AssistantMessage(content="4")], "response": answer, "tokens": None,
        "reward": None, "advantage": None, "is_truncated": False, "trajectory_id": "t1", "extras": {},
    }  # fmt: skip
    answer = response("", tool_calls=[{"id": "1", "name": "look", "arguments": "{}"}])
    answer.message.reasoning_content = "Let me look."
    answer.message.annotations = [{"seen": True}]
    [message] = response_messages(answer)
    assert (message.reasoning_content, message.tool_calls[0].name) == ("Let me look.", "look")
    assert message["annotations"] == [{"seen": True}]
    assert "finish_reason" not in message


class Talk(MultiTurnEnv):
    def __init__(self, **kwargs):
        super().__init__(dataset=[{"question": "2+2?"}], **kwargs)

    async def env_response(self, messages, state):
        return [UserMessage(content="go on")]


@pytest.fixture
def play(attempt):
    async def play(env, *answers):
        state, client = await attempt(env, *answers)
        row, _ = attempt_row(state, 1, "h")
        row["state"]["extras"] = {}
        fresh = await env.init_state({**env.examples[0], "rollout_index": 0}, client, "m")
        return state, restore_state(fresh, row)

    return play


async def test_steps_that_are_cut_truncate_the_rollout_and_all_steps_come_back_from_the_ledger(play, with_tokens):
    state, _ = await play(Talk(max_turns=2, max_seq_len=6), with_tokens())
    assert [step["tokens"]["completion_ids"] for step in state["trajectory"]] == [[21, 22, 23]] * 2
    assert (state["is_truncated"], state["error"]) == (True, None)

    class Judged(Talk):
        async def add_trajectory_step(self, state, trajectory_step):
            trajectory_step["extras"]["board"] = [1, 2]
            trajectory_step["reward"] = 0.5
            await super().add_trajectory_step(state, trajectory_step)

    state, restored = await play(Judged(max_turns=2), with_tokens())
    for name in ("tokens", "extras", "reward", "is_truncated", "prompt", "completion"):
        assert [step[name] for step in restored["trajectory"]] == [step[name] for step in state["trajectory"]]

    class Own(Talk):
        async def add_model_response(self, state, prompt_messages, response):
            completion = [AssistantMessage(content="mine")]
            state["trajectory"].append({"prompt": prompt_messages, "completion": completion})

    _, restored = await play(Own(max_turns=1), "4")
    [step] = restored["trajectory"]
    assert (step["completion"], step["response"]) == ([AssistantMessage(content="mine")], None)


async def test_extras_and_keys_that_would_not_come_back_the_same_are_named(attempt):
    @dataclass
    class Board:
        size: int

    class Odd(Talk):
        async def setup_state(self, state):
            state.update(board=Board(3), since=datetime(2026, 1, 31, tzinfo=UTC), moves=[1])

        async def add_trajectory_step(self, state, trajectory_step):
            trajectory_step["extras"]["lock"] = object()
            await super().add_trajectory_step(state, trajectory_step)

    state, _ = await attempt(Odd(max_turns=1), "4")
    row, unsaved = attempt_row(state, 1, "h")
    assert (sorted(unsaved), list(row["state"]["extras"])) == (["board", "since", "trajectory[].extras"], ["moves"])
    assert row["state"]["trajectory"][0]["extras"] == {}

"""Servers send what no protocol has: whatever it is, it is an answer, or an invalid one that is worth another try."""

import copy
import json

import pytest

import nightjar as vf
from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.failures import classify
from nightjar.core.messages import AssistantMessage, Tool, ToolCall, ToolMessage, UserMessage
from nightjar.errors import InvalidModelResponseError
from nightjar.model_server import FixedAnswer, ModelServer

pytestmark = pytest.mark.slow

CHAT = {
    "id": "c1",
    "created": 17,
    "model": "served",
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "finish_reason": "stop",
            "token_ids": [3],
            "logprobs": {"content": [{"token": "4", "logprob": -0.1}]},
            "routed_experts": {"data": "0000000000", "shape": [1, 2, 1]},
            "message": {
                "role": "assistant",
                "content": "4",
                "reasoning_content": "2 and 2",
                "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}},
}
TEXT = {
    "id": "c1",
    "created": 17,
    "model": "served",
    "choices": [
        {
            "finish_reason": "stop",
            "text": "4",
            "prompt_token_ids": [1],
            "token_ids": [2],
            "logprobs": {"token_logprobs": [0]},
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
}
RESPONSES = {
    "id": "r1",
    "created_at": 17,
    "status": "completed",
    "model": "served",
    "error": None,
    "incomplete_details": {"reason": None},
    "output": [
        {"type": "reasoning", "id": "rs1", "summary": [{"type": "summary_text", "text": "2 and 2"}]},
        {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]},
        {"type": "function_call", "id": "f1", "call_id": "t1", "name": "f", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}},
}
MESSAGES = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "served",
    "content": [
        {"type": "text", "text": "Let me think"},
        {"type": "thinking", "thinking": "2 and 2", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
VALID = {
    "openai_chat_completions": CHAT,
    "openai_completions": TEXT,
    "openai_responses": RESPONSES,
    "anthropic_messages": MESSAGES,
}
ODD = [None, "", "x", "\ud800", -1, 0.5, 10**30, True, [], {}, [None], ["x"], [[]], [{}], {"a": 1}]
LEFT_OUT = object()
FUNCTION = Tool(name="f", description="d", parameters={"type": "object", "properties": {}})


def places(value, way=()):
    """Yields the way to each part of a JSON value."""
    yield way
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*way, key))


def changed(value, way, odd):
    if not way:
        return odd
    value = copy.deepcopy(value)
    parent = value
    for key in way[:-1]:
        parent = parent[key]
    if odd is LEFT_OUT:
        del parent[way[-1]]
    else:
        parent[way[-1]] = odd
    return value


@pytest.mark.parametrize("client_type", VALID)
async def test_whatever_stands_anywhere_in_an_answer(canned, client_type):
    tools = None if client_type == "openai_completions" else [FUNCTION]
    answered, refused = 0, []
    async with resolve_client(ClientConfig(api_base_url=canned.url, client_type=client_type, max_retries=0)) as client:
        for way in places(VALID[client_type]):
            for odd in [*ODD, *([LEFT_OUT] if way else [])]:
                canned.reply(changed(VALID[client_type], way, odd))
                try:
                    said = await client.get_response([UserMessage(content="2+2?")], "m", {"max_tokens": 9}, tools)
                except InvalidModelResponseError as error:
                    refused.append(error)
                    continue
                await client.to_native_prompt([UserMessage(content="2+2?"), said.message])
                answered += 1
    assert min(answered, len(refused)) > 50
    assert all(classify(error).is_retryable for error in refused)


class TestNumbersAndTextsThatJsonLibrariesRefuse:
    """Integers of more than 64 bits are JSON; halves of surrogate pairs come from names of files and broken output."""

    BIG = 10**30

    async def test_an_integer_in_a_call_comes_and_goes_back_as_it_is(self, canned):
        called = [{"type": "tool_use", "id": "t1", "name": "f", "input": {"x": self.BIG}}]
        canned.reply({**MESSAGES, "content": called})
        config = ClientConfig(api_base_url=canned.url, client_type="anthropic_messages")
        async with resolve_client(config) as client:
            asked = [UserMessage(content="10^30?")]
            said = (await client.get_response(asked, "m", {"max_tokens": 9})).message
            assert json.loads(said.tool_calls[0].arguments) == {"x": self.BIG}
            result = ToolMessage(tool_call_id="t1", content="ok")
            await client.get_response([*asked, said, result], "m", {"max_tokens": 9})
        assert canned.requests[-1][2]["messages"][1]["content"][0]["input"] == {"x": self.BIG}

    @pytest.mark.parametrize("client_type", VALID)
    async def test_half_a_surrogate_pair_is_sent_as_a_question_mark(self, canned, client_type):
        canned.reply(VALID[client_type])
        async with resolve_client(
            ClientConfig(api_base_url=canned.url, client_type=client_type, max_retries=0)
        ) as client:
            await client.get_response([UserMessage(content="caf\udce9 é")], "m", {"max_tokens": 9})
        assert "caf? é" in json.dumps(canned.requests[-1][2], ensure_ascii=False)

    def test_they_cost_no_run(self, tmp_path):
        def keep(info):
            return float(info == {"n": self.BIG, "name": "\udce9"})

        rows = [{"question": "caf\udce9", "answer": "4", "info": {"n": self.BIG, "name": "\udce9"}}]
        env = vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric([keep]))
        with ModelServer(FixedAnswer("4")) as server:
            config = ClientConfig(api_base_url=server.base_url)
            [row] = env.evaluate_sync(config, "m", results_path=tmp_path / "run")["outputs"]
            [again] = env.evaluate_sync(config, "m", results_path=tmp_path / "run")["outputs"]
            assert server.stats().answered == 1
        assert (row["error"], row["reward"], again["reward"]) == (None, 1.0, 1.0)


async def test_arguments_that_are_no_object_are_sent_to_anthropic_in_one(canned):
    canned.reply(MESSAGES)
    call = ToolCall(id="t1", name="f", arguments="[" * 100_000)
    asked = [UserMessage(content="?"), AssistantMessage(tool_calls=[call]), ToolMessage(tool_call_id="t1", content="?")]
    async with resolve_client(ClientConfig(api_base_url=canned.url, client_type="anthropic_messages")) as client:
        await client.get_response(asked, "m", {"max_tokens": 9})
    assert list(canned.requests[-1][2]["messages"][1]["content"][0]["input"]) == ["INVALID_JSON"]

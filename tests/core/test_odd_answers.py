"""Odd answers of servers: each is accepted, or refused as invalid and retryable."""

import copy
import functools
import json
import operator

import pytest

import nightjar as vf
from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.failures import classify
from nightjar.core.messages import Tool, ToolMessage, UserMessage
from nightjar.errors import ModelError
from nightjar.model_server import FixedAnswer, ModelServer

pytestmark = pytest.mark.slow

HEAD = {"id": "c1", "created": 17, "model": "served"}
CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT = {
    **HEAD,
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "finish_reason": "stop", "token_ids": [3], "logprobs": {"content": [{"token": "4", "logprob": -0.1}]},
            "routed_experts": {"data": "0000000000", "shape": [1, 2, 1]},
            "message": {"role": "assistant", "content": "4", "reasoning_content": "2 and 2", "tool_calls": [CALL]},
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}},
}  # fmt: skip
IDS = {"prompt_token_ids": [1], "token_ids": [2], "logprobs": {"token_logprobs": [0]}}
TEXT = {
    **HEAD,
    "choices": [{"finish_reason": "stop", "text": "4", **IDS}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2},
}
RESPONSES = {
    "id": "r1", "created_at": 17, "model": "served", "status": "completed", "error": None,
    "incomplete_details": {"reason": None},
    "output": [
        {"type": "reasoning", "id": "rs1", "summary": [{"type": "summary_text", "text": "2 and 2"}]},
        {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]},
        {"type": "function_call", "id": "f1", "call_id": "t1", "name": "f", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}},
}  # fmt: skip
MESSAGES = {
    "id": "m1", "type": "message", "role": "assistant", "model": "served", "stop_reason": "tool_use",
    "content": [
        {"type": "text", "text": "Let me think"}, {"type": "thinking", "thinking": "2 and 2", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2},
}  # fmt: skip
VALID = {
    "openai_chat_completions": CHAT, "openai_completions": TEXT, "openai_responses": RESPONSES,
    "anthropic_messages": MESSAGES,
}  # fmt: skip
ODD = [None, "", "x", "\ud800", -1, 0.5, 10**30, True, [], {}, [None], ["x"], [[]], [{}], {"a": 1}]
LEFT_OUT = object()
FUNCTION = Tool(name="f", description="d", parameters={"type": "object", "properties": {}})


def places(value, path=()):
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def changed(value, path, odd):
    if not path:
        return odd
    value = copy.deepcopy(value)
    parent = functools.reduce(operator.getitem, path[:-1], value)
    if odd is LEFT_OUT:
        del parent[path[-1]]
    else:
        parent[path[-1]] = odd
    return value


@pytest.mark.long
@pytest.mark.parametrize("client_type", VALID)
async def test_any_value_anywhere_in_an_answer(canned, client_type):
    tools = None if client_type == "openai_completions" else [FUNCTION]
    answered, refused = 0, []
    async with resolve_client(ClientConfig(api_base_url=canned.url, client_type=client_type, max_retries=0)) as client:
        for path in places(VALID[client_type]):
            for odd in [*ODD, *([LEFT_OUT] if path else [])]:
                canned.reply(changed(VALID[client_type], path, odd))
                try:
                    said = await client.get_response([UserMessage(content="2+2?")], "m", {"max_tokens": 9}, tools)
                except ModelError as error:
                    refused.append(error)
                    continue
                await client.to_native_prompt([UserMessage(content="2+2?"), said.message])
                answered += 1
    assert min(answered, len(refused)) > 50
    assert all(classify(error).is_retryable for error in refused)


BIG = 10**30


async def test_an_integer_of_more_than_64_bits_in_a_call_is_read_and_sent_back_unchanged(canned):
    called = [{"type": "tool_use", "id": "t1", "name": "f", "input": {"x": BIG}}]
    canned.reply({**MESSAGES, "content": called})
    config = ClientConfig(api_base_url=canned.url, client_type="anthropic_messages")
    async with resolve_client(config) as client:
        asked = [UserMessage(content="10^30?")]
        said = (await client.get_response(asked, "m", {"max_tokens": 9})).message
        assert json.loads(said.tool_calls[0].arguments) == {"x": BIG}
        result = ToolMessage(tool_call_id="t1", content="ok")
        await client.get_response([*asked, said, result], "m", {"max_tokens": 9})
    assert canned.requests[-1][2]["messages"][1]["content"][0]["input"] == {"x": BIG}


@pytest.mark.parametrize("client_type", VALID)
async def test_half_a_surrogate_pair_is_sent_as_a_question_mark(canned, client_type):
    canned.reply(VALID[client_type])
    async with resolve_client(ClientConfig(api_base_url=canned.url, client_type=client_type)) as client:
        await client.get_response([UserMessage(content="caf\udce9 é")], "m", {"max_tokens": 9})
    assert "caf? é" in json.dumps(canned.requests[-1][2], ensure_ascii=False)


def test_large_integers_and_half_surrogate_pairs_do_not_fail_a_run(tmp_path):
    def keep(info):
        return float(info == {"n": BIG, "name": "\udce9"})

    rows = [{"question": "caf\udce9", "answer": "4", "info": {"n": BIG, "name": "\udce9"}}]
    env = vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric([keep]))
    with ModelServer(FixedAnswer("4")) as server:
        config = ClientConfig(api_base_url=server.base_url)
        [row] = env.evaluate_sync(config, "m", results_path=tmp_path / "run")["outputs"]
        [again] = env.evaluate_sync(config, "m", results_path=tmp_path / "run")["outputs"]
        assert server.stats().answered == 1
    assert (row["error"], row["reward"], again["reward"]) == (None, 1.0, 1.0)

"""What the client of each protocol makes of the answers and errors of servers."""

import base64
import contextlib
import struct

import pytest
from bodies import MESSAGE, MISSING, block, chat, message, response, said, text, without_text

from nightjar import errors
from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.failures import classify
from nightjar.core.messages import AssistantMessage, ToolCall, UserMessage
from nightjar.environments.rubrics import JudgeRubric

CHAT, TEXT, RESPONSES, MESSAGES = (
    *("openai_chat_completions", "openai_completions", "openai_responses", "anthropic_messages"),
)
KEY = "sk-very-secret-0123456789"
ASKED = [UserMessage(content="2+2?")]


@pytest.fixture
async def ask(canned, monkeypatch):
    """Asks the canned server in a protocol; it answers with the given body."""
    monkeypatch.setenv("TEST_KEY", KEY)
    async with contextlib.AsyncExitStack() as stack:
        clients = {}

        async def ask(protocol, body, status=200, prompt=ASKED):
            canned.reply(body, status)
            if protocol not in clients:
                fields = {"client_type": protocol, "api_key_var": "TEST_KEY", "max_retries": 0}
                client = resolve_client(ClientConfig(api_base_url=canned.url, **fields))
                clients[protocol] = await stack.enter_async_context(client)
            return await clients[protocol].get_response(prompt, "m", {"max_tokens": 9})

        yield ask


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}


async def test_unusual_ends_of_an_answer(ask):
    """The usual ends are those of the contract of clients."""
    for protocol, body, finish_reason in (
        *((CHAT, chat(finish_reason=reason), ended) for reason, ended in ((None, None), ("eos", "stop"))),
        (MESSAGES, message(block("4"), stop_reason="stop_sequence"), "stop"),
        (MESSAGES, message(block("4"), stop_reason="model_context_window_exceeded"), "length"),
        *(
            (MESSAGES, message(block("4"), stop_reason=reason), ended)
            for reason, ended in (("pause_turn", "length"), (None, None))
        ),
    ):
        answer = (await ask(protocol, body)).message
        ended = (answer.content, answer.finish_reason, answer.is_truncated)
        assert ended == ("4", finish_reason, finish_reason == "length"), body


REASONING = {
    "type": "reasoning", "id": "rs_1", "encrypted_content": "zzz",
    "summary": [{"type": "summary_text", "text": "First"}, {"type": "summary_text", "text": "then"}],
}  # fmt: skip
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a":1}'}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s1"}
HIDDEN = {"type": "redacted_thinking", "data": "x1"}
USE = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
CALL = ToolCall(id="c1", name="add", arguments='{"a":1}')
DETAILS = [{"type": "reasoning.text", "text": "h"}, {"summary": "m"}]


async def test_an_answer_contains_text_reasoning_and_calls(ask):
    for protocol, body, expected in (
        *((CHAT, chat(**{field: MISSING}), {"content": "4"}) for field in ("id", "created", "model", "object")),
        (CHAT, chat(without_text(reasoning_content="hm")), {"content": None, "reasoning_content": "hm"}),
        (CHAT, chat(without_text(reasoning="hm")), {"content": None, "reasoning_content": "hm"}),
        (CHAT, chat(without_text(reasoning_details=DETAILS)), {"content": None, "reasoning_content": "hm"}),
        (CHAT, chat(without_text(refusal="No.")), {"content": "No.", "finish_reason": "stop"}),
        (TEXT, text(" 4"), {"content": " 4", "tool_calls": None}),
        (TEXT, text("", "length"), {"content": ""}),
        (
            RESPONSES,
            response(REASONING, said("I ", "add."), ITEM),
            {"content": "I add.", "reasoning_content": "First\nthen", "tool_calls": [CALL]},
        ),
        (RESPONSES, response(said({"type": "refusal", "refusal": "No."})), {"content": "No."}),
        (RESPONSES, response(**CUT), {"content": None, "is_truncated": True}),
        (
            MESSAGES,
            message(THOUGHT, HIDDEN, block("I "), block("add."), USE, stop_reason="tool_use"),
            {
                "content": "I add.", "reasoning_content": "hm", "thinking_blocks": [THOUGHT, HIDDEN],
                "tool_calls": [CALL], "finish_reason": "tool_calls", "anthropic_content": None,
            },
        ),
        (MESSAGES, message(stop_reason="max_tokens"), {"content": ""}),
    ):  # fmt: skip
        answer = (await ask(protocol, body)).message
        assert {name: answer.get(name) for name in expected} == expected


CACHED = {"cache_creation_input_tokens": 20, "cache_read_input_tokens": 100}
THOUGHTFUL = {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}}


async def test_unusual_usage_of_an_answer(ask):
    bodies = {CHAT: chat(), MESSAGES: message(block("4"))}
    names = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "total_tokens")
    for protocol, usage, counts in (
        (CHAT, {"prompt_tokens": 5}, (5, 0, 0, 5)),
        (CHAT, {"input_tokens": 5, "output_tokens": 7}, (5, 7, 0, 12)),
        *(
            (CHAT, {"prompt_tokens": impossible, "completion_tokens": 7, "total_tokens": impossible}, (0, 7, 0, 7))
            for impossible in (10**26, -5, 1e300, "many")
        ),
        (MESSAGES, {"input_tokens": 5, **CACHED, **THOUGHTFUL}, (125, 7, 3, 132)),
        *((CHAT, unknown, None) for unknown in (None, MISSING)),
        (MESSAGES, MISSING, None),
    ):
        body = {name: value for name, value in {**bodies[protocol], "usage": usage}.items() if value is not MISSING}
        answer = await ask(protocol, body)
        assert (answer.id, answer.model) == (body["id"], "served")
        assert answer.created == 17 or protocol == MESSAGES
        assert (answer.usage and tuple(answer.usage[name] for name in names)) == counts, usage


async def test_token_ids_and_log_probabilities_of_the_answer_are_kept(ask):
    entry = {"token": "4", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    choice = {"index": 0, "finish_reason": "stop", "message": MESSAGE, "logprobs": {"content": [entry]}}

    def chat_with(**changes):
        return chat(choices=[{**choice, "token_ids": [3], **changes}], prompt_token_ids=[1, 2])

    told = {"token_logprobs": [-0.5], "tokens": ["4"]}
    completed = text(choice={"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": told})
    for protocol, body in ((CHAT, chat_with()), (TEXT, completed)):
        tokens = (await ask(protocol, body)).message.tokens
        assert (tokens.prompt_ids, tokens.prompt_mask) == ([1, 2], [0, 0])
        assert (tokens.completion_ids, tokens.completion_mask, tokens.completion_logprobs) == ([3], [1], [-0.5])
    numbers = [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]  # three tokens, two layers, two experts each
    packed = base64.b85encode(struct.pack("<12i", *range(12))).decode()
    routed = chat_with(routed_experts={"data": packed, "shape": [3, 2, 2]})
    assert (await ask(CHAT, routed)).message.tokens.routed_experts == numbers
    for missing in ("token_ids", "logprobs"):
        assert (await ask(CHAT, chat_with(**{missing: None}))).message.tokens is None
    told = {"tokens": ["2+2=", "4"], "text_offset": [0, 4], "token_logprobs": [None, -0.5], "top_logprobs": None}
    logprobs = (await ask(TEXT, text("2+2=4", choice={"logprobs": told}))).logprobs
    assert (logprobs.text_offset, logprobs.token_logprobs) == ([0, 4], [None, -0.5])
    in_another_form = {"content": [{"token": "4", "logprob": -0.5}]}
    assert (await ask(TEXT, text(choice={"logprobs": in_another_form}))).logprobs is None


async def test_the_next_turn_has_the_model_s_output_unchanged(ask, canned):
    for protocol, output in (
        (RESPONSES, [REASONING, said("4")]),
        (RESPONSES, [REASONING, ITEM]),
        (RESPONSES, [{"type": "web_search_call", "id": "w"}, said("x")]),
        (MESSAGES, [THOUGHT, block("I"), USE, {**THOUGHT, "signature": "s2"}, {**USE, "id": "t2"}]),
        (MESSAGES, [{"type": "server_tool_use", "id": "w1", "name": "web_search", "input": {}}, block("found")]),
        (MESSAGES, [{"type": "something_new", "value": 1}, block("hello")]),
    ):
        body = response(*output) if protocol == RESPONSES else message(*output)
        answer = (await ask(protocol, body)).message
        turn = AssistantMessage.model_validate(answer.model_dump(exclude={"finish_reason", "is_truncated", "tokens"}))
        await ask(protocol, body, prompt=[*ASKED, turn])
        sent = canned.requests[-1][2]
        assert (sent["input"][1:] if protocol == RESPONSES else sent["messages"][1]["content"]) == output


async def test_the_next_turn_has_what_the_environment_has_changed_and_no_reasoning_behind_it(ask, canned):
    body = response(REASONING, said("4"), ITEM)
    for name, value in (("content", "5"), ("tool_calls", [CALL.model_copy(update={"id": "c2"})])):
        answer = (await ask(RESPONSES, body)).message
        answer[name] = value
        await ask(RESPONSES, body, prompt=[*ASKED, answer])
        types = [item["type"] for item in canned.requests[-1][2]["input"]]
        assert types == ["message", "message", "function_call"]
    body = message(block("I"), THOUGHT, block("add"))
    answer = (await ask(MESSAGES, body)).message
    answer.content = "I do"
    await ask(MESSAGES, body, prompt=[*ASKED, answer])
    assert canned.requests[-1][2]["messages"][1]["content"] == [THOUGHT, block("I do")]


INVALID, EMPTY = errors.InvalidModelResponseError, errors.EmptyModelResponseError
WITHHELD, FAILED = errors.ContentFilteredError, errors.ModelError


async def test_an_answer_is_invalid_empty_or_withheld_by_a_filter(ask):
    for protocol, body, kind, says in (
        *(
            (protocol, body, INVALID, None)
            for protocol in (CHAT, TEXT, RESPONSES, MESSAGES)
            for body in ([1], b"<html>", b"")
        ),
        *((CHAT, chat(choices=choices), INVALID, "choices is") for choices in ([], None)),
        (CHAT, chat(choices=MISSING), INVALID, "choices is None"),
        (CHAT, chat(choices=[{"index": 0, "finish_reason": "stop"}]), INVALID, r"choices\[0\].message is None"),
        (CHAT, b"<html>502</html>", INVALID, "<html>502</html>"),
        (TEXT, {"id": "c1"}, INVALID, "choices is None"),
        *((RESPONSES, body, INVALID, "output is") for body in ({"id": "r1"}, {"output": None}, {"output": "x"})),
        (RESPONSES, response(status="failed", error={"code": "x", "message": "out of order"}), FAILED, "out of order"),
        (MESSAGES, message({"type": "hologram", "data": "4"}), INVALID, "hologram"),
        *((CHAT, chat(without_text(content=content)), EMPTY, None) for content in ("", None)),
        *((protocol, body, EMPTY, None) for protocol, body in ((TEXT, text("")), (RESPONSES, response()))),
        *((MESSAGES, message(*content), EMPTY, None) for content in ([], [block("")])),
        (CHAT, chat(without_text(), finish_reason="content_filter"), WITHHELD, None),
        (TEXT, text("", finish_reason="content_filter"), WITHHELD, None),
        (RESPONSES, response(**FILTERED), WITHHELD, None),
        (MESSAGES, message(stop_reason="refusal"), WITHHELD, None),
    ):
        with pytest.raises(kind, match=says) as caught:
            await ask(protocol, body)
        assert type(caught.value) is kind


async def test_a_prompt_that_is_too_long_is_recognised_and_a_refused_permission_is_the_sdk_s_error(ask):
    long = {"message": "This model's maximum context length is 8192 tokens."}
    coded = {"message": "Too much.", "code": "context_length_exceeded"}
    for error, status in ((long, 400), (long, 413), (coded, 400)):
        with pytest.raises(errors.OverlongPromptError, match=error["message"]):
            await ask(CHAT, {"error": error}, status)
        with pytest.raises(errors.ModelError):
            await ask(CHAT, {"error": error}, 500)
    with pytest.raises(Exception, match="no luck") as caught:
        await ask(CHAT, {"error": {"message": "no luck"}}, 403)
    assert type(caught.value).__name__ == "PermissionDeniedError"


async def test_a_key_that_anthropic_s_server_echoes_is_hidden(ask):
    for status in (401, 400, 500):
        with pytest.raises(Exception, match=r"\[secret\]") as caught:
            await ask(MESSAGES, {"error": {"message": f"invalid x-api-key: {KEY}"}}, status)
        error = caught.value.__cause__ or caught.value
        assert KEY not in f"{caught.value} {error} {error.body} {error.response.text}"


async def test_an_sdk_client_of_the_user_has_its_key_hidden_if_the_server_echoes_it(canned, monkeypatch):
    import openai

    monkeypatch.setattr("nightjar.clients.retries.wait_seconds", lambda *_: 0.0)
    async with openai.AsyncOpenAI(base_url=canned.url, api_key=KEY, max_retries=0) as sdk:
        for status in (400, 401, 500):
            canned.reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}, status)
            with pytest.raises(Exception, match=r"Incorrect API key provided: \[secret\]") as caught:
                await resolve_client(sdk).get_response(ASKED, "m", {})
            with pytest.raises(errors.ModelError, match=r"\[secret\]") as judged:
                await JudgeRubric(judge_client=sdk).judge("2+2?", "4", "4")
            chain = [*errors.error_chain(caught.value), *errors.error_chain(judged.value)]
            assert KEY not in " ".join(f"{error} {error!r} {getattr(error, 'message', '')}" for error in chain)


@pytest.mark.parametrize("protocol", [CHAT, TEXT, RESPONSES, MESSAGES])
async def test_an_error_object_with_status_200_is_that_error(ask, protocol):
    for error, status in (
        ({"code": 502, "message": "Bad gateway"}, 502),
        ({"code": "429", "message": "Slow down"}, 429),
        ({"type": "overloaded_error", "message": "Overloaded"}, 529),
        ({"code": "model_not_found", "type": "not_found_error", "message": "No such model"}, 404),
        ({"message": "Provider returned error"}, 502),
        ("upstream failed", 502),
    ):
        with pytest.raises(errors.ModelError) as caught:
            await ask(protocol, {"type": "error", "error": error})
        [found] = {cause.status_code for cause in errors.error_chain(caught.value) if hasattr(cause, "status_code")}
        assert (found, classify(caught.value).is_repeatable) == (status, status != 404)

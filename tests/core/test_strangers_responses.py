"""What real providers send, as public documentation and bug reports show it, and what a client makes of it."""

import asyncio
import contextlib
import json

import pytest
from bodies import MESSAGE, block, chat, message, response, said, text, without_text

from nightjar import errors
from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.failures import classify
from nightjar.clients.status_errors import HttpResponse, status_error
from nightjar.core.messages import UserMessage

CHAT, TEXT, RESPONSES, MESSAGES = (
    *("openai_chat_completions", "openai_completions", "openai_responses", "anthropic_messages"),
)
ANSWERED, TRUNCATED, FILTERED, EMPTY, INVALID = "answered", "truncated", "filtered", "empty", "invalid"
RETRIED, REFUSED = "retried", "refused"
FAILURES = {
    errors.ContentFilteredError: FILTERED,
    errors.EmptyModelResponseError: EMPTY,
    errors.InvalidModelResponseError: INVALID,
}


@pytest.fixture
async def outcome(canned):
    """Sends a body, and returns what the client makes of it, with its text, call or words."""
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for protocol in (CHAT, TEXT, RESPONSES, MESSAGES):
            config = ClientConfig(client_type=protocol, api_base_url=canned.url, max_retries=0)
            clients[protocol] = await stack.enter_async_context(resolve_client(config))

        async def outcome(protocol, body, status=200, **headers):
            canned.reply(body, status, **headers)
            try:
                answer = (await clients[protocol].get_response([UserMessage(content="2+2?")], "m", {})).message
            except Exception as error:  # noqa: BLE001 - each is sorted
                if type(error) in FAILURES and not classify(error).is_repeatable:
                    return FAILURES[type(error)], str(error)
                return RETRIED if classify(error).is_repeatable else REFUSED, str(error)
            calls = [(call.name, call.arguments) for call in answer.tool_calls or []]
            return TRUNCATED if answer.is_truncated else ANSWERED, calls or answer.content

        yield outcome


def failing(outcomes):
    """Lists what differs from a table of (case, found, right)."""
    return [f"{case}: {found}, not {right}" for case, found, right in outcomes if found != right]


REASONS = {
    ANSWERED: {
        CHAT: "stop tool_calls function_call eos_token stop_sequence eos STOP COMPLETE end_turn function_calls",
        TEXT: "stop eos_token stop_sequence eos endoftext COMPLETE",
        MESSAGES: "end_turn stop_sequence tool_use stop endTurn",
    },
    TRUNCATED: {
        CHAT: "length model_length MAX_TOKENS max_tokens model_context_window_exceeded limit maxTokens token_limit "
        "FINISH_REASON_MAX_TOKENS max_output_tokens",
        TEXT: "length model_length MAX_TOKENS max_tokens limit",
        MESSAGES: "max_tokens model_context_window_exceeded pause_turn length MAX_TOKENS",
    },
    FILTERED: {
        CHAT: "content_filter sensitive SAFETY RECITATION PROHIBITED_CONTENT BLOCKLIST SPII refusal "
        "guardrail_intervened content-filter content_filtered data_inspection_failed ERROR_TOXIC",
        TEXT: "content_filter SAFETY sensitive",
        MESSAGES: "refusal guardrail_intervened content_filtered content_filter SAFETY",
    },
    RETRIED: {
        CHAT: "error abort network_error insufficient_system_resource MALFORMED_FUNCTION_CALL OTHER cancelled load "
        "TIMEOUT ERROR",
        TEXT: "error abort network_error insufficient_system_resource",
        MESSAGES: "error malformed_model_output malformed_tool_use abort",
    },
}
GEMINI = {CHAT: {FILTERED: ["content_filter: RECITATION"], RETRIED: ["function_call_filter: MALFORMED_FUNCTION_CALL"]}}


def ended_with(protocol, reason, words):
    if protocol == CHAT:
        return chat({"role": "assistant", "content": words}, reason)
    if protocol == TEXT:
        return text(words, reason)
    return message(block(words), stop_reason=reason)


async def test_the_reason_for_the_end_comes_before_the_text(outcome):
    cases = [
        (protocol, reason, right)
        for right, by_protocol in REASONS.items()
        for protocol, names in by_protocol.items()
        for reason in [*names.split(), *GEMINI.get(protocol, {}).get(right, [])]
    ]
    found = [
        ((protocol, reason), (await outcome(protocol, ended_with(protocol, reason, "4")))[0], right)
        for protocol, reason, right in cases
    ]
    assert failing(found) == []
    assert len(found) >= 60
    _, told = await outcome(CHAT, chat(finish_reason="network_error"))
    assert told == "Model 'm': Error code: 502 - the endpoint ended the response with the reason 'network_error'"


async def test_the_status_of_a_response_of_openai_comes_before_its_text(outcome):
    incomplete = [
        (RESPONSES, response(said("4"), status="incomplete", incomplete_details={"reason": reason}), right)
        for reason, right in (
            ("max_output_tokens", TRUNCATED),
            ("max_tokens", TRUNCATED),
            ("content_filter", FILTERED),
            (None, TRUNCATED),
        )
    ]
    statuses = [
        (RESPONSES, response(said("4"), status=status), right)
        for status, right in (
            ("completed", ANSWERED),
            ("incomplete", TRUNCATED),
            ("failed", RETRIED),
            ("cancelled", RETRIED),
            ("in_progress", RETRIED),
            ("queued", RETRIED),
            (None, ANSWERED),
        )
    ]
    told = response(said("4"), status="failed", error={"code": "rate_limit_exceeded", "message": "Slow down"})
    found = [
        (body["status"], (await outcome(protocol, body))[0], right)
        for protocol, body, right in [*incomplete, *statuses, (RESPONSES, told, RETRIED)]
    ]
    assert failing(found) == []


async def test_a_response_that_was_cut_or_withheld_needs_no_text(outcome):
    for protocol, body, right in (
        (CHAT, chat(without_text(), "length"), TRUNCATED),
        (CHAT, chat(without_text(), "model_length"), TRUNCATED),
        (CHAT, chat(without_text(), "SAFETY"), FILTERED),
        (CHAT, chat({"role": "assistant", "content": ""}, "stop"), EMPTY),
        (TEXT, text("", "length"), TRUNCATED),
        (TEXT, text("", "content_filter"), FILTERED),
        (MESSAGES, message(stop_reason="refusal"), FILTERED),
        (MESSAGES, message(stop_reason="max_tokens"), TRUNCATED),
        (MESSAGES, message(stop_reason="end_turn"), EMPTY),
    ):
        assert (await outcome(protocol, body))[0] == right, body


async def test_an_unknown_reason_is_an_answer_and_is_told_once_and_counted(canned, caplog):
    config = ClientConfig(client_type=CHAT, api_base_url=canned.url, max_retries=0)
    async with resolve_client(config) as client:
        for reason in ("hallucinated", "hallucinated", {"type": "done"}, 7, ""):
            canned.reply(chat(finish_reason=reason))
            answer = await client.get_response([UserMessage(content="2+2?")], "m", {})
            assert (answer.message.content, answer.message.is_truncated) == ("4", False)
    told = [record.getMessage() for record in caplog.records if "unknown reason" in record.getMessage()]
    assert [line for line in told if "hallucinated" in line] == [
        "The endpoint ended responses with the unknown reason 'hallucinated'. They count as answers.",
        "2 responses ended with the unknown reason 'hallucinated'.",
    ]
    assert len(told) == 6


UPSTREAM = {"code": 502, "message": "Upstream error from Nitro"}


async def test_an_error_anywhere_in_a_response_with_status_200_is_that_error(outcome):
    choice = {"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": "The ans"}}
    cases = [
        (CHAT, chat(choices=[{**choice, "error": UPSTREAM}]), RETRIED, "Upstream error from Nitro"),
        (CHAT, chat(choices=[{**choice, "finish_reason": "stop", "error": UPSTREAM}]), RETRIED, "Upstream"),
        (CHAT, chat({**MESSAGE, "error": UPSTREAM}), RETRIED, "Upstream"),
        (CHAT, chat(error=UPSTREAM), RETRIED, "Upstream"),
        (CHAT, chat(error={"code": 401, "message": "No auth credentials found"}), REFUSED, "No auth credentials"),
        (CHAT, {"error": "model overloaded, try later", "error_type": "overloaded"}, RETRIED, "try later"),
        (
            CHAT,
            [{"error": {"code": 503, "message": "The model is overloaded", "status": "UNAVAILABLE"}}],
            RETRIED,
            "is over",
        ),
        (
            CHAT,
            {"object": "error", "message": "CUDA out of memory", "type": "internal_error", "code": 50001},
            RETRIED,
            "CUDA",
        ),
        (
            CHAT,
            {"object": "error", "message": "bad value", "type": "BadRequestError", "code": 400},
            REFUSED,
            "bad value",
        ),
        (CHAT, {"detail": "Not authenticated"}, RETRIED, "Not authenticated"),
        (
            CHAT,
            {"detail": [{"loc": ["body", "top_p"], "msg": "ensure this value", "type": "x"}]},
            RETRIED,
            "body.top_p: ensure",
        ),
        (CHAT, {"code": 500, "msg": "404 NOT_FOUND", "success": False}, RETRIED, "404 NOT_FOUND"),
        (CHAT, {"error_code": 18, "error_msg": "Open api qps request limit reached"}, RETRIED, "qps request limit"),
        (
            CHAT,
            {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
            RETRIED,
            "rate limit",
        ),
        (
            CHAT,
            {"errors": [{"message": "AiError: no capacity", "code": 3040}], "success": False},
            RETRIED,
            "no capacity",
        ),
        (CHAT, {"message": "Endpoint request timed out"}, RETRIED, "timed out"),
        (TEXT, text(error=UPSTREAM), RETRIED, "Upstream"),
        (TEXT, text(choice={"error": UPSTREAM, "finish_reason": "error"}), RETRIED, "Upstream"),
        (TEXT, {"error": "generation failed", "error_type": "generation"}, RETRIED, "generation failed"),
        (TEXT, {"object": "error", "message": "too busy", "code": 503}, RETRIED, "too busy"),
        (
            RESPONSES,
            response(error={"code": "server_error", "message": "It broke"}, status="failed"),
            RETRIED,
            "It broke",
        ),
        (
            RESPONSES,
            response(said("4"), error={"code": "invalid_prompt", "message": "no"}, status="failed"),
            REFUSED,
            "no",
        ),
        (
            RESPONSES,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            RETRIED,
            "Overloaded",
        ),
        (RESPONSES, {"detail": "Internal"}, RETRIED, "Internal"),
        (
            MESSAGES,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            RETRIED,
            "Overloaded",
        ),
        (
            MESSAGES,
            {"type": "error", "error": {"type": "permission_error", "message": "not yours"}},
            REFUSED,
            "not yours",
        ),
        (MESSAGES, {"type": "error", "error": {"type": "rate_limit_error", "message": "slower"}}, RETRIED, "slower"),
        (MESSAGES, {"message": "Bedrock is unable to process your request."}, RETRIED, "unable to process"),
    ]
    for protocol, body, right, words in cases:
        found, told = await outcome(protocol, body)
        assert (found, words in str(told)) == (right, True), (protocol, body, told)


@pytest.mark.parametrize("nothing", [None, "", {}, [], False, 0, {"code": 0, "message": ""}, {"code": None}])
async def test_an_empty_error_field_is_no_error(outcome, nothing):
    for protocol, body in (
        (CHAT, chat()),
        (TEXT, text()),
        (RESPONSES, response(said("4"))),
        (MESSAGES, message(block("4"))),
    ):
        assert await outcome(protocol, {**body, "error": nothing}) == (ANSWERED, "4")


ODD = [1757876416.56, "1757876416", None, [], {}, -3, "", True, 10**30]


async def test_a_field_that_nothing_uses_cannot_fail_a_paid_response(outcome):
    bodies = {CHAT: chat(), TEXT: text(), RESPONSES: response(said("4")), MESSAGES: message(block("4"))}
    names = ("id", "created", "created_at", "model", "object", "usage", "system_fingerprint", "service_tier")
    found = []
    for protocol, body in bodies.items():
        for name in names:
            for value in ODD:
                if not (name == "object" and value == "error"):
                    sent = {**body, name: value}
                    found.append(((protocol, name, value), await outcome(protocol, sent), (ANSWERED, "4")))
    assert failing(found) == []
    usages = [{"prompt_tokens": "many"}, {"completion_tokens": None}, {"prompt_tokens": -1, "total_tokens": 1e300}]
    assert [await outcome(CHAT, chat(usage=usage)) for usage in usages] == [(ANSWERED, "4")] * 3
    choice = {"index": "0", "finish_reason": "stop", "message": {**MESSAGE, "annotations": 3, "audio": "x"}}
    for logprobs in (3, [], {"content": "x"}, {"content": [{"token": "4"}]}, {"tokens": 1}):
        body = chat(choices=[{**choice, "logprobs": logprobs, "token_ids": [1]}], prompt_token_ids="x")
        assert await outcome(CHAT, body) == (ANSWERED, "4")
        assert await outcome(TEXT, text(choice={"logprobs": logprobs, "token_ids": 3})) == (ANSWERED, "4")


async def test_several_choices_are_no_reason_to_lose_the_first(outcome):
    choices = [
        {"index": n, "finish_reason": "stop", "message": {"role": "assistant", "content": str(4 + n)}} for n in (0, 1)
    ]
    assert await outcome(CHAT, chat(choices=choices)) == (ANSWERED, "4")


async def test_arguments_of_tools_come_as_text_object_null_or_nothing(outcome):
    for sent, read in (
        ('{"a": 1}', '{"a": 1}'),
        ({"a": "ü"}, '{"a":"ü"}'),
        ("", "{}"),
        ("  \n", "{}"),
        (None, "{}"),
        ({}, "{}"),
        ([1], "[1]"),
        ("{broken", "{broken"),
    ):
        call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": sent}}
        item = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": sent}
        right = (ANSWERED, [("add", read)])
        assert await outcome(CHAT, chat(without_text(tool_calls=[call]), "tool_calls")) == right
        assert await outcome(RESPONSES, response(item)) == right
        assert await outcome(MESSAGES, message({"type": "tool_use", "id": "c1", "name": "add", "input": sent})) == right
    old = without_text(function_call={"name": "add", "arguments": '{"a":1}'})
    assert await outcome(CHAT, chat(old, "function_call")) == (ANSWERED, [("add", '{"a":1}')])
    bare = {"function": {"name": "add"}}
    assert await outcome(CHAT, chat(without_text(tool_calls=[bare]), "stop")) == (ANSWERED, [("add", "{}")])


async def test_content_in_parts_is_a_text_and_thinking_is_reasoning(outcome, canned):
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "2+2 is"}]}
    for content in (
        [{"type": "text", "text": "4"}],
        [{"type": "text", "text": ""}, {"type": "text", "text": "4"}],
        [thinking, {"type": "text", "text": "4"}],
        [{"type": "output_text", "text": "4"}],
        ["4"],
    ):
        assert await outcome(CHAT, chat({"role": "assistant", "content": content})) == (ANSWERED, "4")


async def test_what_is_used_and_wrong_is_named_by_field_and_value(outcome):
    for protocol, body, words in (
        (CHAT, chat({"role": "assistant", "content": 4}), "choices[0].message.content is 4: expected a text"),
        (CHAT, chat(choices={"message": MESSAGE}), "choices is {'message'"),
        (CHAT, chat(choices=[]), "choices is []: expected a list with one choice"),
        (CHAT, chat(choices=[{"finish_reason": "stop"}]), "choices[0].message is None: expected an object"),
        (CHAT, chat(without_text(tool_calls=[{"function": {"name": 3}}])), "tool_calls[0].function.name is 3"),
        (CHAT, chat(without_text(tool_calls="add")), "choices[0].message.tool_calls is 'add': expected a list"),
        (TEXT, text({"a": 4}), "choices[0].text is {'a': 4}: expected a text"),
        (RESPONSES, response() | {"output": "4"}, "output is '4': expected a list"),
        (RESPONSES, response({"type": "function_call", "arguments": "{}"}), "output[0].name is None: expected a text"),
        (MESSAGES, message() | {"content": "4"}, "content is '4': expected a list of blocks"),
        (MESSAGES, message({"type": "text", "text": 4}), "content[0].text is 4: expected a text"),
        (MESSAGES, message({"type": "tool_use", "id": "c"}), "content[0].name is None: expected a text"),
    ):
        found, told = await outcome(protocol, body)
        assert (found, words in told) == (INVALID, True), told


async def test_a_response_that_is_all_reasoning_is_told_once(outcome, caplog):
    for _ in range(2):
        body = chat(without_text(reasoning_content="The answer is 4"))
        assert await outcome(CHAT, body) == (ANSWERED, None)
    assert len([record for record in caplog.records if "--reasoning-parser" in record.getMessage()]) == 1


WORDS = "the provider's own words"
SHAPES = [
    {"error": {"message": WORDS}},
    {"error": WORDS},
    {"error": [{"message": WORDS}]},
    [{"error": {"code": 400, "message": WORDS, "status": "INVALID_ARGUMENT"}}],
    {"error": {"message": {"detail": WORDS}}},
    {"error": {"message": "Provider returned error", "metadata": {"raw": WORDS}}},
    {"error": {"message": "wrapped", "metadata": {"raw": json.dumps({"error": {"message": WORDS}})}}},
    {"message": WORDS},
    {"Message": WORDS},
    {"detail": WORDS},
    {"detail": [{"loc": ["body", "model"], "msg": WORDS, "type": "value_error"}]},
    {"detail": {"error": WORDS}},
    {"errors": [{"message": WORDS}]},
    {"errors": [WORDS]},
    {"title": "Bad Request", "status": 400, "detail": WORDS},
    {"error": {"title": WORDS}},
    {"msg": WORDS, "code": 500},
    {"error_msg": WORDS},
    {"object": "error", "message": WORDS},
    {"fault": {"faultstring": "x"}, "message": WORDS},
    WORDS.encode(),
    json.dumps(WORDS).encode(),
    f"<html><head><title>{WORDS}</title><style>p {{}}</style></head><body><h1>x</h1></body></html>".encode(),
    f"<html><body><h1>{WORDS}</h1><p>nginx</p></body></html>".encode(),
    f"<p>{WORDS.replace(' ', '&nbsp;')}</p>".encode(),
]


@pytest.mark.parametrize("status", [400, 404, 503])
async def test_the_provider_s_words_reach_the_message_from_every_shape(outcome, status):
    found = [(shape, (await outcome(CHAT, shape, status))[1]) for shape in SHAPES]
    assert [(shape, told) for shape, told in found if WORDS not in told] == []
    for protocol in (TEXT, RESPONSES, MESSAGES):
        assert WORDS in (await outcome(protocol, SHAPES[1], status))[1]


async def test_long_words_are_shortened(outcome):
    _, told = await outcome(CHAT, {"error": {"message": "x" * 5000}}, 400)
    assert 400 < len(told) < 500


async def test_what_heals_is_retried_and_what_does_not_is_not(outcome):
    heals = (408, 409, 420, 424, 425, 429, 449, 498, 499, 500, 502, 503, 504, 520, 524, 529)
    found = [(status, (await outcome(CHAT, {"detail": "no"}, status))[0], RETRIED) for status in heals]
    found += [(status, (await outcome(CHAT, {"detail": "no"}, status))[0], REFUSED) for status in (400, 404, 422)]
    assert failing(found) == []


@pytest.mark.parametrize(
    "body", [b"<html><body>Bad gateway</body></html>", b"", b'{"id": "c1", "choices": [{"mes', b"[1]"]
)
async def test_a_response_that_is_damaged_is_requested_again(canned, body):
    good = json.dumps(chat()).encode()
    canned.choose = lambda *_: canned.reply(good if len(canned.requests) > 1 else body)
    async with resolve_client(ClientConfig(api_base_url=canned.url)) as client:
        answer = await client.get_response([UserMessage(content="2+2?")], "m", {})
    assert (answer.message.content, len(canned.requests)) == ("4", 2)


QUOTA = "You exceeded your current quota, please check your plan and billing details."
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}
GEMINI_LIMIT = {"code": 429, "message": QUOTA, "status": "RESOURCE_EXHAUSTED", "details": [RETRY_INFO]}


async def test_codes_say_whether_an_account_is_spent_and_phrases_only_where_no_code_does(outcome):
    for body, status, right in (
        ({"error": {"message": QUOTA, "code": "insufficient_quota"}}, 429, REFUSED),
        ({"error": {"message": QUOTA, "type": "insufficient_quota", "code": None}}, 429, REFUSED),
        ({"error": {"message": QUOTA}}, 429, REFUSED),
        ({"error": GEMINI_LIMIT}, 429, RETRIED),
        ([{"error": GEMINI_LIMIT}], 429, RETRIED),
        ({"error": {**GEMINI_LIMIT, "details": []}}, 429, RETRIED),
        ({"error": {"message": QUOTA, "code": "rate_limit_exceeded"}}, 429, RETRIED),
        ({"error": {"message": f"{QUOTA} Please retry in 20s."}}, 429, RETRIED),
        ({"error": {"message": "Your credit balance is too low", "type": "invalid_request_error"}}, 400, REFUSED),
        ({"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}}, 402, REFUSED),
        ({"error": {"code": "1113", "message": "overdue"}}, 429, REFUSED),
        ({"error": {"code": "1302", "message": "too fast"}}, 429, RETRIED),
    ):
        assert (await outcome(CHAT, body, status))[0] == right, body
    assert (await outcome(CHAT, {"error": {"message": QUOTA}}, 429, retry_after="1"))[0] == RETRIED


def told_to_wait(body=None, **headers):
    """Returns the seconds that a refusal asks a client to wait."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return classify(
        status_error(HttpResponse("http://any", 429, names, json.dumps(body or {}).encode()))
    ).retry_after_seconds


def test_the_wait_that_a_refusal_asks_for_is_read_from_every_form():
    for seconds, body, headers in (
        (1, {"error": GEMINI_LIMIT}, {}),
        (34.5, {"error": {"details": [{"retryDelay": "34.5s"}]}}, {}),
        (7, {"error": {"details": [{"retryDelay": {"seconds": 7}}]}}, {}),
        (3, {"retry_after": 3}, {}),
        (3, {"error": {"retry_after": "3"}}, {}),
        (1.2, {"error": {"message": "Rate limit reached. Please try again in 1.2s."}}, {}),
        (0.02, {"error": {"message": "Please try again in 20ms."}}, {}),
        (366, {"error": {"message": "Please try again in 6m6s."}}, {}),
        (5, {"error": {"code": "429", "message": "Please retry after 5 seconds."}}, {}),
        (2, None, {"retry_after": "2"}),
        (1.5, None, {"retry_after_ms": "1500"}),
        (60, None, {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "1m0s"}),
        (9, None, {"x_ratelimit_remaining_tokens_minute": "0", "x_ratelimit_reset_tokens_minute": "9"}),
        (30, None, {"ratelimit_remaining": "0", "ratelimit_reset": "30"}),
        (30, None, {"ratelimitbysize_remaining": "0.0", "ratelimitbysize_reset": "30"}),
        (4, {"error": {"details": [RETRY_INFO]}}, {"retry_after": "4"}),
        (None, {"error": {"message": "Slow down, try fewer requests"}}, {}),
        (None, {"error": {"message": "Please retry 5 messages later"}}, {}),
        (None, None, {"x_ratelimit_remaining_requests": "5", "x_ratelimit_reset_requests": "1m0s"}),
    ):
        assert told_to_wait(body, **headers) == seconds, (body, headers)


async def test_a_server_that_always_has_nothing_left_and_refuses_nothing_slows_nothing(canned):
    limits = {
        "x_ratelimit_limit_tokens": "1000",
        "x_ratelimit_remaining_tokens": "0",
        "x_ratelimit_reset_tokens": "15s",
    }
    canned.reply(chat(), **limits)
    async with resolve_client(ClientConfig(api_base_url=canned.url)) as client:
        async with asyncio.timeout(10):
            for _ in range(20):
                await client.get_response([UserMessage(content="2+2?")], "m", {})
    assert len(canned.requests) == 20


async def ask_with_limit(canned):
    async with resolve_client(ClientConfig(api_base_url=canned.url, max_retries=0)) as client:
        for _ in range(2):
            await client.get_response([UserMessage(content="2+2?")], "m", {"max_tokens": 10})
    return [{name: body[name] for name in body if "tokens" in name} for _, _, body in canned.requests]


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_that_refuses_one_name_of_the_limit_gets_the_other(canned, status):
    def choose(_, body):
        said = "Extra inputs are not permitted: max_completion_tokens"
        refused = {"error": {"message": said}}
        canned.reply(*((refused, status) if "max_completion_tokens" in body else (chat(),)))

    canned.choose = choose
    other = {"max_tokens": 10}
    assert await ask_with_limit(canned) == [{"max_completion_tokens": 10}, other, other]


async def test_requests_at_once_find_the_name_of_the_limit_and_a_wrong_value_changes_no_name(canned):
    def refuse(name):
        return {"error": {"message": f"Unsupported parameter: {name}"}}, 400

    asked = [UserMessage(content="2+2?")]
    canned.choose = lambda _, body: canned.reply(
        *(refuse("max_completion_tokens") if "max_completion_tokens" in body else (chat(),))
    )
    async with resolve_client(ClientConfig(api_base_url=canned.url, max_retries=0)) as client:
        answers = await asyncio.gather(*(client.get_response(asked, "m", {"max_tokens": 10}) for _ in range(8)))
        assert [answer.message.content for answer in answers] == ["4"] * 8
        canned.choose = lambda _, body: canned.reply(*refuse("max_completion_tokens or max_tokens"))
        with pytest.raises(errors.ModelError, match="Unsupported parameter"):
            await client.get_response(asked, "m", {"max_tokens": 10})
        canned.choose = lambda *_: canned.reply(chat())
        await client.get_response(asked, "m", {"max_tokens": 10})
    assert canned.requests[-1][2]["max_tokens"] == 10


async def test_a_server_that_ignores_one_name_of_the_limit_gets_the_other_after_one_warning(canned, caplog):
    canned.choose = lambda _, body: canned.reply(
        chat(usage={"completion_tokens": 10 if "max_tokens" in body else 10_011, "prompt_tokens": 5})
    )
    assert await ask_with_limit(canned) == [{"max_completion_tokens": 10}, {"max_tokens": 10}]
    [said] = [record.getMessage() for record in caplog.records if "ignores" in record.getMessage()]
    assert "max_completion_tokens=10: a response has 10,011 tokens" in said

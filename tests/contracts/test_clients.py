"""What the client of every protocol does, over HTTP against the local model server.

The server turns each protocol's request into the same chat messages before the model sees them. So "what the model
heard" can be compared with what was said, and is the same for all.
"""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import get_args

import pytest

from nightjar.clients import ClientConfig, ClientType, ReplicaClient, resolve_client
from nightjar.clients.protocols import PROTOCOLS
from nightjar.core.messages import AssistantMessage, SystemMessage, Tool, ToolCall, ToolMessage, UserMessage
from nightjar.errors import InvalidModelResponseError, ModelError, OverlongPromptError
from nightjar.model_server import Answer, Faults, FixedAnswer, ModelServer, Script, tool_call

ASKED = [UserMessage(content="What is two plus two?")]
ADD = Tool(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
PIXEL = "data:image/png;base64,aGVsbG8="


@dataclass(frozen=True)
class Protocol:
    """How a client is made, and what its protocol has; class and route are those of the table of protocols."""

    client_type: str
    library: str = "openai"
    limit: str = "max_completion_tokens"
    """What its requests call the most tokens of an answer."""
    has_tools: bool = True
    has_token_ids: bool = True
    replicas: int = 1
    usage: tuple = (5, 3)
    """Tokens of "What is two plus two?" and of "Four, I think.": a word is a token of the server's model."""

    @property
    def sdk(self):
        return import_module(self.library)

    @property
    def kind(self):
        protocol = PROTOCOLS[self.client_type]
        client = getattr(import_module(f"nightjar.clients.{protocol.module}"), protocol.client)
        return ReplicaClient if self.replicas > 1 else client

    @property
    def path(self):
        return f"/v1{PROTOCOLS[self.client_type].route}"


CHAT = Protocol("openai_chat_completions")
# It asks for token ids; the marks around and after a message are tokens, too.
TOKEN = Protocol("openai_chat_completions_token", usage=(11, 4))
TEXT = Protocol("openai_completions", limit="max_tokens", has_tools=False)
RESPONSES = Protocol("openai_responses", limit="max_output_tokens", has_token_ids=False)
MESSAGES = Protocol("anthropic_messages", "anthropic", limit="max_tokens", has_token_ids=False)
REPLICAS = Protocol("openai_chat_completions", replicas=2)

ALL = [CHAT, TOKEN, TEXT, RESPONSES, MESSAGES, REPLICAS]


def parametrized(protocols):
    ids = [f"{protocol.client_type}-{protocol.replicas}" for protocol in protocols]
    return pytest.mark.parametrize("protocol", protocols, ids=ids)


every_client = parametrized(ALL)
clients_with_tools = parametrized([one for one in ALL if one.has_tools])
clients_with_token_ids = parametrized([one for one in ALL if one.has_token_ids])


def client_for(protocol, url, **fields):
    one = {"api_base_url": url}
    where = one if protocol.replicas == 1 else {"endpoint_configs": [one] * protocol.replicas}
    fields = {"timeout": 10.0, "max_retries": 0, **where, **fields}
    return resolve_client(ClientConfig(client_type=protocol.client_type, **fields))


class Exchange:
    """A server, a client that asks it, and what both saw: each list of messages that the model heard."""

    def __init__(self, turns, **server_fields):
        self.heard, self._answerer = [], Script(turns) if isinstance(turns, list) else FixedAnswer(turns)
        self.server = ModelServer(self, keep_requests=100, **server_fields)

    def answer(self, messages):
        self.heard.append([dict(message) for message in messages])
        return self._answerer.answer(messages)

    async def ask(self, prompt=ASKED, sampling_args=None, tools=None, **kwargs):
        return await self.client.get_response(prompt, "m", sampling_args or {"max_tokens": 50}, tools, **kwargs)

    def sent(self):
        """Returns the last request: path, headers, body."""
        return self.server.requests[-1]


@asynccontextmanager
async def exchange(protocol, turns="Four, I think.", client=None, **server_fields):
    talk = Exchange(turns, **server_fields)
    with talk.server as server:
        async with client_for(protocol, server.base_url, **(client or {})) as talk.client:
            yield talk


def text_in(message):
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_every_protocol_has_a_place_in_this_contract():
    assert {protocol.client_type for protocol in ALL} == set(PROTOCOLS) == set(get_args(ClientType))


@every_client
async def test_an_answer_has_text_model_usage_and_how_it_ended_and_its_request_the_protocol_s_limit(protocol):
    async with exchange(protocol) as talk:
        response = await talk.ask()
        cut = (await talk.ask(sampling_args={"max_tokens": 2})).message
        assert talk.sent().body[protocol.limit] == 2
        await talk.ask(sampling_args={"max_completion_tokens": 8})
    path, _, body = talk.sent()
    message, usage = response.message, response.usage
    assert (type(talk.client), path) == (protocol.kind, protocol.path)
    assert (message.content, message.finish_reason, message.is_truncated) == ("Four, I think.", "stop", False)
    assert (response.model, bool(response.id), response.created > 0) == ("m", True, True)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens) == (*protocol.usage, 0)
    assert usage.total_tokens == sum(protocol.usage)
    assert (cut.content, cut.finish_reason, cut.is_truncated) == ("Four, I", "length", True)
    limits = {name for name in body if name in {"max_tokens", "max_completion_tokens", "max_output_tokens"}}
    assert (body[protocol.limit], limits) == (8, {protocol.limit})


@clients_with_tools
async def test_reasoning_with_and_without_room_for_an_answer(protocol):
    said = Answer(question="", text="Four.", reasoning="Two and two.")
    async with exchange(protocol, [said]) as talk:
        response = await talk.ask()
        cut = (await talk.ask(sampling_args={"max_tokens": 2})).message
    assert (response.message.reasoning_content, response.message.content) == ("Two and two.", "Four.")
    assert response.usage.reasoning_tokens == 3
    assert (cut.reasoning_content, cut.content or "", cut.is_truncated) == ("Two and", "", True)


@clients_with_tools
async def test_tools_are_offered_where_there_are_some_and_called(protocol):
    async with exchange(protocol, [[tool_call("add", a=1, b=2), tool_call("add", a=3)]]) as talk:
        message = (await talk.ask(tools=[ADD])).message
        [offered] = talk.sent().body["tools"]
        await talk.ask(tools=[])
        assert "tools" not in talk.sent().body
    offered = offered.get("function", offered)
    assert ADD.parameters in (offered.get("parameters"), offered.get("input_schema"))
    assert (message.finish_reason, message.content or "", message.is_truncated) == ("tool_calls", "", False)
    said = [(call.name, call.arguments) for call in message.tool_calls]
    assert said == [("add", '{"a":1,"b":2}'), ("add", '{"a":3}')]
    assert len({call.id for call in message.tool_calls} - {""}) == 2


@clients_with_token_ids
async def test_token_ids_that_the_server_sends(protocol):
    asked_for = {"logprobs": 1 if protocol is TEXT else True, "extra_body": {"return_token_ids": True}}
    async with exchange(protocol) as talk:
        tokens = (await talk.ask(sampling_args={"max_tokens": 50, **asked_for})).message.tokens
    assert len(tokens.prompt_ids) == len(tokens.prompt_mask) > 0
    assert len(tokens.completion_ids) == len(tokens.completion_logprobs) >= 3
    assert (set(tokens.prompt_mask), set(tokens.completion_mask)) == ({0}, {1})


@clients_with_tools
async def test_the_model_hears_roles_texts_calls_results_and_images(protocol):
    images = [{"type": "image_url", "image_url": {"url": url}} for url in ("https://example.com/a.png", PIXEL)]
    call, other, draw = (ToolCall(id=f"call_{n}", name="add", arguments='{"a":1}') for n in (1, 2, 3))
    prompt = [
        SystemMessage(content="Be brief."),
        UserMessage(content="1 + 1?"),
        AssistantMessage(content="I add.", tool_calls=[call, other]),
        ToolMessage(tool_call_id="call_1", content="2"),
        ToolMessage(tool_call_id="call_2", content=[{"type": "text", "text": "two"}]),
        UserMessage(content="Sure?"),
        AssistantMessage(content="Yes."),
        UserMessage(content=[{"type": "text", "text": "Which?"}, *images]),
        AssistantMessage(content=None, tool_calls=[draw]),
        ToolMessage(tool_call_id="call_3", content=[{"type": "text", "text": "Here:"}, *images]),
    ]
    async with exchange(protocol) as talk:
        await talk.ask(prompt, tools=[ADD])
    heard = talk.heard[0]
    assert [message["role"] for message in heard] == [message.role for message in prompt]
    texts = ["Be brief.", "1 + 1?", "I add.", "2", "two", "Sure?", "Yes."]
    assert [text_in(message) for message in heard[:7]] == texts
    assert [call["function"] for call in heard[2]["tool_calls"]] == [{"name": "add", "arguments": '{"a":1}'}] * 2
    assert [message.get("tool_call_id") for message in heard[3:5]] == ["call_1", "call_2"]
    assert [part["type"] for part in heard[7]["content"]] == ["text", "image_url", "image_url"]
    assert [part["image_url"]["url"] for part in heard[7]["content"][1:]] == ["https://example.com/a.png", PIXEL]
    assert heard[9]["content"] == [{"type": "text", "text": "Here:"}, *images]


@clients_with_tools
async def test_a_second_turn_has_what_was_said_in_the_first(protocol):
    first = Answer(question="", text="", tool_calls=(tool_call("add", a=1, b=2),), reasoning="A sum.")
    async with exchange(protocol, [first, "Three."]) as talk:
        said = (await talk.ask(tools=[ADD])).message
        fields = said.model_dump(exclude={"finish_reason", "is_truncated", "tokens"}, exclude_none=True)
        result = ToolMessage(tool_call_id=said.tool_calls[0].id, content="3")
        for turn in (said, AssistantMessage.model_validate(fields)):
            answer = await talk.ask([*ASKED, turn, result], tools=[ADD])
            assert answer.message.content == "Three."
            heard = talk.heard[-1][1]
            assert heard["tool_calls"][0]["function"]["arguments"] == '{"a":1,"b":2}'
            assert heard["reasoning_content"] == "A sum.", "reasoning goes back to the model"


@every_client
async def test_arguments_and_headers_of_all_origins_are_sent_and_none_is_not(protocol, make_state):
    from_state = {"X-Example": "example_id", "X-Session": "session", "X-Other": "missing"}
    client = {"extra_headers": {"X-Team": "t"}, "extra_headers_from_state": from_state}
    sampling_args = {"max_tokens": 9, "temperature": 0.0, "min_p": 0.1, "top_p": None, "extra_body": {"top_k": 3},
                     "extra_headers": {"X-A": "1", "X-B": "1"}}  # fmt: skip
    before = repr(sampling_args)
    async with exchange(protocol, client=client) as talk:
        state = make_state(example_id=7, session="s1")
        await talk.ask(sampling_args=sampling_args, extra_headers={"X-B": "2"}, state=state)
    _, headers, body = talk.sent()
    assert (body["temperature"], body["min_p"], body["top_k"]) == (0.0, 0.1, 3)
    assert {"top_p", "extra_body", "extra_headers", "state"}.isdisjoint(body)
    assert repr(sampling_args) == before
    expected = {"X-Team": "t", "X-A": "1", "X-B": "2", "X-Example": "7", "X-Session": "s1", "X-Other": None}
    assert {name: headers.get(name) for name in expected} == expected


@every_client
async def test_credentials_are_sent_and_their_refusal_is_raised_as_the_sdk_raises_it(protocol, monkeypatch):
    monkeypatch.setenv("TEST_KEY", "sk-1")
    async with exchange(protocol, client={"api_key_var": "TEST_KEY"}, require_key="sk-1") as talk:
        assert (await talk.ask()).message.content == "Four, I think."
    async with exchange(protocol, require_key="sk-1") as talk:
        with pytest.raises(protocol.sdk.AuthenticationError) as caught:
            await talk.ask()
    assert caught.value.status_code == 401


STATUSES = [
    ({"only_model": "other"}, "NotFoundError", 404, "The model 'm' does not exist"),
    ({"faults": Faults(rate_429=1, retry_after_seconds=7)}, "RateLimitError", 429, "Rate limit reached"),
    ({"faults": Faults(rate_500=1)}, "InternalServerError", 500, "The server had an error"),
    ({"faults": Faults(rate_overloaded=1)}, "InternalServerError", 503, "Overloaded"),
]


@every_client
async def test_a_status_is_a_model_error_after_one_request_to_each_replica(protocol):
    for server, name, status, message in STATUSES:
        async with exchange(protocol, **server) as talk:
            with pytest.raises(ModelError, match=f"Model 'm': .*{message}") as caught:
                await talk.ask()
            assert len(talk.server.requests) == protocol.replicas, "Nightjar retries, the SDK does not"
        cause = caught.value.__cause__
        expected = 529 if (protocol, status) == (MESSAGES, 503) else status
        assert (isinstance(cause, getattr(protocol.sdk, name)), cause.status_code) == (True, expected)
        assert cause.response.headers.get("retry-after") == ("7" if status == 429 else None)


@every_client
async def test_an_answer_that_does_not_arrive_is_a_model_error_with_the_sdk_s_cause(protocol):
    for faults, seconds, cause in (
        (Faults(rate_dropped=1), 60.0, "APIConnectionError"),
        (Faults(latency_ms=60_000), 0.1, "APITimeoutError"),
        (Faults(rate_slow=1, slow_seconds=60), 0.1, "APITimeoutError"),
    ):
        async with exchange(protocol, client={"timeout": seconds}, faults=faults) as talk:
            with pytest.raises(ModelError) as caught:
                await talk.ask()
        assert type(caught.value.__cause__) is getattr(protocol.sdk, cause), cause
    async with client_for(protocol, talk.server.base_url) as client:  # nobody is there any more
        with pytest.raises(ModelError, match=talk.server.base_url) as caught:
            await client.get_response(ASKED, "m", {"max_tokens": 9})
    assert type(caught.value.__cause__) is protocol.sdk.APIConnectionError


UNUSABLE = [({"max_context_tokens": 4}, OverlongPromptError), ({"faults": Faults(rate_malformed=1)},
            InvalidModelResponseError)]  # fmt: skip


@every_client
async def test_a_prompt_that_is_too_long_and_a_body_that_is_no_json(protocol):
    for fields, error in UNUSABLE:
        async with exchange(protocol, **fields) as talk:
            with pytest.raises(error):
                await talk.ask()


def sdk_client(protocol, server):
    """Makes an SDK client of the user; requests to it use its ``create``."""
    options = {"api_key": "k", "max_retries": 0, "_strict_response_validation": True}
    if protocol is MESSAGES:
        return protocol.sdk.AsyncAnthropic(base_url=server.root_url, **options)
    return protocol.sdk.AsyncOpenAI(base_url=server.base_url, **options)


@parametrized([CHAT, TOKEN, TEXT, RESPONSES, MESSAGES])
async def test_an_sdk_client_of_the_user_gives_the_same_answers_arguments_and_failures(protocol):
    arguments = {"max_tokens": 9, "temperature": 0.5, "min_p": 0.1, "extra_body": {"top_k": 3}}
    with ModelServer(FixedAnswer("Four."), keep_requests=2) as server:
        for client in (protocol.kind(sdk_client(protocol, server)), client_for(protocol, server.base_url)):
            async with client:
                response = await client.get_response(ASKED, "m", arguments, extra_headers={"X-S": "1"})
                assert response.message.content == "Four."
        theirs, mine = server.requests
    assert theirs.body == mine.body
    assert theirs.headers["X-S"] == mine.headers["X-S"] == "1"
    async with resolve_client(sdk_client(protocol, server)) as client:
        assert client.config is None
        assert protocol is TOKEN or type(client) is (MESSAGES if protocol is MESSAGES else CHAT).kind
    for fields, error in UNUSABLE if protocol is not TOKEN else ():
        with ModelServer(FixedAnswer("Four."), **fields) as server:
            async with protocol.kind(sdk_client(protocol, server)) as client:
                with pytest.raises(error):
                    await client.get_response(ASKED, "m", {"max_tokens": 9})

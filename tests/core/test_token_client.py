"""The client of vLLM with token ids: the ids that it sends as the prompt, and when it sends messages instead.

The local server makes token ids as a chat template does. So the ids of a prompt can be compared with those that its
``/tokenize`` gives for the whole conversation.
"""

from contextlib import AsyncExitStack

import pytest

from nightjar.clients import ClientConfig, OpenAIChatCompletionsTokenClient
from nightjar.core.messages import AssistantMessage, SystemMessage, Tool, ToolMessage, UserMessage
from nightjar.core.rollout.state import new_state
from nightjar.model_server import ModelServer, Script, tool_call

PLAIN, BY_TOKENS = "/v1/chat/completions", "/v1/chat/completions/tokens"
ADD = Tool(name="add", description="Adds.", parameters={"type": "object"})
SURE = [UserMessage(content="Sure?")]
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}


class Rollout:
    """A rollout of an environment: each turn is a step of the trajectory, with its token ids."""

    def __init__(self, client, server, prompt, tools=None):
        self.client, self.server, self.tools = client, server, tools
        self.state = new_state({"prompt": prompt, "example_id": 0}, model="m")
        self.messages = prompt

    async def turn(self, *environment_says, **sampling_args):
        """Requests the model's next turn; returns the route of the request."""
        self.messages = [*self.messages, *environment_says]
        sampling_args = {"max_tokens": 50, **sampling_args}
        answer = await self.client.get_response(self.messages, "m", sampling_args, self.tools, state=self.state)
        message = answer.message
        said = AssistantMessage(content=message.content, tool_calls=message.tool_calls)
        ids = {"tokens": message.tokens.model_dump(), "is_truncated": message.is_truncated}
        self.state["trajectory"].append({"prompt": self.messages, "completion": [said], "response": answer, **ids})
        self.messages = [*self.messages, said]
        return self.sent().path

    def sent(self):
        return [request for request in self.server.requests if request.path != "/tokenize"][-1]

    async def ids_of(self, messages):
        """Returns the ids of a conversation, as the server tokenizes it whole."""
        native, _ = await self.client.to_native_prompt(messages)
        return await self.client.tokenize(native, await self.client.to_native_tools(self.tools), "m")


@pytest.fixture
async def rollout():
    async with AsyncExitStack() as ending:

        def start(turns, prompt=None, tools=None, **config):
            server = ending.enter_context(ModelServer(Script(turns), keep_requests=1000))
            config = ClientConfig(api_base_url=server.base_url, max_retries=0, **config)
            client = OpenAIChatCompletionsTokenClient(config)
            ending.push_async_callback(client.close)
            return Rollout(client, server, prompt or [UserMessage(content="2+2?")], tools)

        yield start


async def test_token_ids_are_those_of_the_turns_before_and_the_environment_s_response(rollout):
    prompt = [SystemMessage(content="Be brief."), UserMessage(content="2+2?")]
    talk = rollout(["Four it is", "Yes, four", "Bye"], prompt)
    assert await talk.turn() == PLAIN, "nothing is known yet"
    assert await talk.turn(UserMessage(content="Are you sure?")) == BY_TOKENS
    before = talk.messages[:-1]
    assert talk.sent().body["tokens"] == await talk.ids_of(before)
    assert await talk.turn(UserMessage(content="Good bye")) == BY_TOKENS
    assert talk.sent().body["tokens"] == await talk.ids_of(talk.messages[:-1])
    assert len(talk.sent().body["messages"]) == 6, "the messages go along"


async def test_token_ids_begin_with_the_very_ids_of_the_turn_before_also_after_tools(rollout):
    talk = rollout(["Four it is", "Yes"])
    await talk.turn()
    step = talk.state["trajectory"][0]["tokens"]
    step["completion_ids"][0] = 1  # the model sampled other tokens than its text is tokenized to
    await talk.turn(UserMessage(content="Sure?"))
    assert talk.sent().body["tokens"][: len(step["prompt_ids"]) + 1] == [*step["prompt_ids"], 1]
    calls = [tool_call("add", a=1), tool_call("add", a=2)]
    talk = rollout([calls, "Three"], tools=[ADD])
    await talk.turn()
    results = [ToolMessage(tool_call_id=call.id, content="a result") for call in talk.messages[-1].tool_calls]
    assert await talk.turn(*results, UserMessage(content="And now?")) == BY_TOKENS
    assert talk.sent().body["tokens"] == await talk.ids_of(talk.messages[:-1])


async def test_requests_have_the_arguments_and_headers_of_any_request_also_of_a_client_of_the_user_s_own(rollout):
    talk = rollout(["Four", "Yes"], extra_headers_from_state={"X-Example": "example_id"})
    await talk.turn()
    await talk.turn(UserMessage(content="Sure?"), temperature=0.5, extra_body={"top_k": 3})
    _, headers, body = talk.sent()
    assert (body["temperature"], body["top_k"], body["max_completion_tokens"]) == (0.5, 3, 50)
    assert (body["logprobs"], body["return_token_ids"], headers["X-Example"]) == (True, True, "0")
    talk = rollout(["Four", "Yes"])
    talk.client = OpenAIChatCompletionsTokenClient(talk.client.client.with_options(max_retries=0))
    await talk.turn()
    assert await talk.turn(UserMessage(content="Sure?")) == BY_TOKENS
    await talk.client.close()


def tokenizer(whole, start):
    """Returns a function that gives these ids of the whole conversation and of its start."""

    async def tokenize(messages, tools, model, extra_kwargs=None):
        ids = start if extra_kwargs else whole
        if ids is None:
            raise ValueError("no tokenizer")
        return ids

    return tokenize


def tokenize_with(whole, start):
    return lambda talk: setattr(talk.client, "tokenize", tokenizer(whole, start))


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (lambda talk: talk.state["trajectory"][0].update(tokens=None), SURE),
        (lambda talk: setattr(talk, "messages", [UserMessage(content="3+3?"), talk.messages[1]]), SURE),
        (lambda talk: None, [UserMessage(content=[PIXEL])]),
        (lambda talk: None, [*SURE, AssistantMessage(content="I mean five."), UserMessage(content="Hm")]),
        (tokenize_with(None, None), SURE),
        (tokenize_with([9, 9, 9, 5, 6], [1, 2]), SURE),
        (tokenize_with([1, 2, 5, 6], [1, 2]), SURE),
    ],
    ids=[
        *("without ids", "in another conversation", "with an image", "with words of the environment for the model"),
        *("without a tokenizer", "with another start", "with another end token"),
    ],
)
async def test_messages_are_sent_if_token_ids_cannot_continue(rollout, caplog, before, says):
    talk = rollout(["Four", "Yes"] if len(says) == 1 else ["Four", "unused", "Yes"])
    await talk.turn()
    before(talk)
    assert await talk.turn(*says) == PLAIN
    assert says[0].content == [PIXEL] or "sent as messages" in caplog.text


async def test_messages_are_sent_after_an_answer_that_the_server_cut_or_without_a_state(rollout):
    talk = rollout(["Four it is", "Yes"])
    answer = await talk.client.get_response(talk.messages, "m", {})
    assert (talk.sent().path, answer.message.content) == (PLAIN, "Four it is")
    talk = rollout(["Four it is", "Yes"])
    await talk.turn(max_tokens=1)
    assert await talk.turn(UserMessage(content="Go on")) == PLAIN


def said(*texts):
    roles = [UserMessage, AssistantMessage]
    return [roles[position % 2](content=text) for position, text in enumerate(texts)]


def step(prompt, completion, prompt_ids, completion_ids):
    tokens = {"prompt_ids": prompt_ids, "completion_ids": completion_ids}
    return {"prompt": said(*prompt), "completion": [AssistantMessage(content=completion)], "tokens": tokens}


async def test_the_continued_turn_has_the_longest_common_start_and_shares_its_end_token():
    """In these ids a turn ends with 7, and the template writes a line break (8) after it."""
    one, two = step("a", "b", [1], [2, 7]), step("abc", "d", [1, 2, 7, 8, 3], [4, 7])
    no_content = [*said("a"), AssistantMessage(content=None), UserMessage(content="c")]
    async with OpenAIChatCompletionsTokenClient(ClientConfig(api_base_url="http://localhost:1/v1")) as client:
        for steps, messages, start, whole, expected in (
            ([one, two], said(*"abcde"), [99, 7, 8], [99, 7, 8, 5], [1, 2, 7, 8, 3, 4, 7, 8, 5]),
            ([one], said(*"abc"), [99, 7, 8], [99, 7, 8, 5], [1, 2, 7, 8, 5]),
            # an end token that also begins the next turn
            ([one], said(*"abc"), [99, 6, 7, 8], [99, 6, 7, 8, 5], [1, 2, 7, 8, 5]),
            ([one], said(*"abc"), [7], [7, 7, 5], [1, 2, 7, 5]),
            # no content in place of empty content
            ([step("a", "", [1], [7])], no_content, [7, 8], [7, 8, 5], [1, 7, 8, 5]),
        ):
            client.tokenize = tokenizer(whole, start)
            prompt, _ = await client.to_native_prompt(messages)
            assert await client.get_prompt_ids({"model": "m", "trajectory": steps}, prompt, None) == expected

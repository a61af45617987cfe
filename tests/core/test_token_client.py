"""The client that asks vLLM with token ids: what it sends as the prompt, and when it asks with messages after all.

The local server makes token ids as a chat template does. So the ids of a prompt can be compared with those that its
``/tokenize`` gives for the whole conversation.
"""

import pytest

from nightjar.clients import ClientConfig, OpenAIChatCompletionsTokenClient
from nightjar.core.messages import AssistantMessage, SystemMessage, Tool, ToolMessage, UserMessage
from nightjar.core.rollout.state import new_state
from nightjar.model_server import ModelServer, Script, tool_call

PLAIN, BY_TOKENS = "/v1/chat/completions", "/v1/chat/completions/tokens"
ADD = Tool(name="add", description="Adds.", parameters={"type": "object"})
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}


class Rollout:
    """A rollout as an environment drives it: each turn is a step of the trajectory, with its token ids."""

    def __init__(self, client, server, prompt, tools=None):
        self.client, self.server, self.tools = client, server, tools
        self.state = new_state({"prompt": prompt, "example_id": 0}, model="m")
        self.messages = prompt

    async def turn(self, *environment_says, **sampling_args):
        """Asks for the model's next turn; returns where it was asked."""
        self.messages = [*self.messages, *environment_says]
        response = await self.client.get_response(
            self.messages, "m", {"max_tokens": 50, **sampling_args}, self.tools, state=self.state
        )
        message = response.message
        said = AssistantMessage(content=message.content, tool_calls=message.tool_calls)
        step = {
            "prompt": self.messages,
            "completion": [said],
            "response": response,
            "tokens": message.tokens.model_dump(),
            "is_truncated": message.is_truncated,
        }
        self.state["trajectory"].append(step)
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
    """Starts rollouts; closes their clients and ends their servers."""
    ending = []

    def start(turns, prompt=None, tools=None, **config):
        server = ModelServer(Script(turns), keep_requests=1000)
        server.__enter__()
        client = OpenAIChatCompletionsTokenClient(ClientConfig(api_base_url=server.base_url, max_retries=0, **config))
        ending.append((server, client))
        return Rollout(client, server, prompt or [UserMessage(content="2+2?")], tools)

    yield start
    for server, client in ending:
        await client.close()
        server.__exit__(None, None, None)


class TestPromptsOfTokenIds:
    async def test_are_the_turns_before_and_what_the_environment_said(self, rollout):
        talk = rollout(
            ["Four it is", "Yes, four", "Bye"], [SystemMessage(content="Be brief."), UserMessage(content="2+2?")]
        )
        assert await talk.turn() == PLAIN, "nothing is known yet"
        assert await talk.turn(UserMessage(content="Are you sure?")) == BY_TOKENS
        before = talk.messages[:-1]
        assert talk.sent().body["tokens"] == await talk.ids_of(before)
        assert await talk.turn(UserMessage(content="Good bye")) == BY_TOKENS
        assert talk.sent().body["tokens"] == await talk.ids_of(talk.messages[:-1])
        assert len(talk.sent().body["messages"]) == 6, "the messages go along"

    async def test_begin_with_the_very_ids_of_the_turn_before(self, rollout):
        talk = rollout(["Four it is", "Yes"])
        await talk.turn()
        step = talk.state["trajectory"][0]["tokens"]
        step["completion_ids"][0] = 1  # the model sampled other tokens than its text is tokenized to
        await talk.turn(UserMessage(content="Sure?"))
        assert talk.sent().body["tokens"][: len(step["prompt_ids"]) + 1] == [*step["prompt_ids"], 1]

    async def test_after_tools(self, rollout):
        calls = [tool_call("add", a=1), tool_call("add", a=2)]
        talk = rollout([calls, "Three"], tools=[ADD])
        await talk.turn()
        results = [
            ToolMessage(tool_call_id=call.id, content=f"result {number}")
            for number, call in enumerate(talk.messages[-1].tool_calls)
        ]
        assert await talk.turn(*results, UserMessage(content="And now?")) == BY_TOKENS
        assert talk.sent().body["tokens"] == await talk.ids_of(talk.messages[:-1])

    async def test_an_sdk_client_of_the_user_s_own_does_as_well(self, rollout):
        talk = rollout(["Four", "Yes"])
        talk.client = OpenAIChatCompletionsTokenClient(talk.client.client.with_options(max_retries=0))
        await talk.turn()
        assert await talk.turn(UserMessage(content="Sure?")) == BY_TOKENS
        await talk.client.close()

    async def test_arguments_and_headers_are_those_of_any_request(self, rollout):
        talk = rollout(["Four", "Yes"], extra_headers_from_state={"X-Example": "example_id"})
        await talk.turn()
        await talk.turn(UserMessage(content="Sure?"), temperature=0.5, extra_body={"top_k": 3})
        _, headers, body = talk.sent()
        assert (body["temperature"], body["top_k"], body["max_completion_tokens"]) == (0.5, 3, 50)
        assert (body["logprobs"], body["return_token_ids"], headers["X-Example"]) == (True, True, "0")


class TestAskedWithMessagesAfterAll:
    async def test_without_a_state(self, rollout):
        talk = rollout(["Four"])
        response = await talk.client.get_response(talk.messages, "m", {})
        assert (talk.sent().path, response.message.content) == (PLAIN, "Four")

    async def test_after_an_answer_that_was_cut(self, rollout):
        talk = rollout(["Four it is", "Yes"])
        await talk.turn(max_tokens=1)
        assert await talk.turn(UserMessage(content="Go on")) == PLAIN, "it has no mark of an end"

    async def test_where_the_conversation_is_another_one(self, rollout, caplog):
        talk = rollout(["Four", "Yes"])
        await talk.turn()
        talk.messages = [UserMessage(content="3+3?"), talk.messages[1]]
        assert await talk.turn(UserMessage(content="Sure?")) == PLAIN
        assert "sent as messages" in caplog.text

    async def test_where_the_environment_spoke_for_the_model(self, rollout):
        talk = rollout(["Four", "never said", "Yes"])
        await talk.turn()
        said = AssistantMessage(content="I mean five.")
        assert await talk.turn(UserMessage(content="Sure?"), said, UserMessage(content="Hm")) == PLAIN

    async def test_with_an_image(self, rollout):
        talk = rollout(["Four", "Yes"])
        await talk.turn()
        assert await talk.turn(UserMessage(content=[PIXEL])) == PLAIN

    async def test_where_the_steps_have_no_ids(self, rollout):
        talk = rollout(["Four", "Yes"])
        await talk.turn()
        talk.state["trajectory"][0]["tokens"] = None
        assert await talk.turn(UserMessage(content="Sure?")) == PLAIN

    async def test_where_tokenizing_fails(self, rollout):
        talk = rollout(["Four", "Yes"])
        await talk.turn()

        async def fail(*_, **__):
            raise ValueError("no tokenizer")

        talk.client.tokenize = fail
        assert await talk.turn(UserMessage(content="Sure?")) == PLAIN

    @pytest.mark.parametrize(
        ("whole", "start"),
        [([9, 9, 9, 5, 6], [1, 2]), ([1, 2, 5, 6], [1, 2])],
        ids=["another beginning", "another mark of an end"],
    )
    async def test_where_the_ids_do_not_fit_together(self, rollout, whole, start):
        talk = rollout(["Four", "Yes"])
        await talk.turn()

        async def tokenize(messages, tools, model, extra_kwargs=None):
            return start if extra_kwargs else whole

        talk.client.tokenize = tokenize
        assert await talk.turn(UserMessage(content="Sure?")) == PLAIN


class TestTheTurnThatIsGoneOnFrom:
    """Made by hand: a turn ends with the id 7, which the template puts a line break (8) after."""

    def state(self, *steps):
        return {
            "model": "m",
            "trajectory": [dict(zip(("prompt", "completion", "tokens"), step, strict=True)) for step in steps],
        }

    def said(self, *texts):
        roles = [UserMessage, AssistantMessage]
        return [roles[position % 2](content=text) for position, text in enumerate(texts)]

    async def ids(self, state, texts, start, whole):
        client = OpenAIChatCompletionsTokenClient(ClientConfig(api_base_url="http://localhost:1/v1"))

        async def tokenize(messages, tools, model, extra_kwargs=None):
            return start if extra_kwargs else whole

        client.tokenize = tokenize
        async with client:
            prompt, _ = await client.to_native_prompt(self.said(*texts))
            return await client.get_prompt_ids(state, prompt, None)

    async def test_is_the_one_with_the_longest_start_in_common(self):
        turns = [
            (self.said("a"), [AssistantMessage(content="b")], {"prompt_ids": [1], "completion_ids": [2, 7]}),
            (
                self.said("a", "b", "c"),
                [AssistantMessage(content="d")],
                {"prompt_ids": [1, 2, 7, 8, 3], "completion_ids": [4, 7]},
            ),
        ]
        found = await self.ids(self.state(*turns), "abcde", start=[99, 7, 8], whole=[99, 7, 8, 5])
        assert found == [1, 2, 7, 8, 3, 4, 7, 8, 5]
        assert await self.ids(self.state(*turns[:1]), "abc", start=[99, 7, 8], whole=[99, 7, 8, 5]) == [1, 2, 7, 8, 5]

    async def test_a_mark_that_ends_one_turn_and_begins_the_next_is_there_once(self):
        turn = (self.said("a"), [AssistantMessage(content="b")], {"prompt_ids": [1], "completion_ids": [2, 7]})
        found = await self.ids(self.state(turn), "abc", start=[99, 6, 7, 8], whole=[99, 6, 7, 8, 5])
        assert found == [1, 2, 7, 8, 5]
        found = await self.ids(self.state(turn), "abc", start=[7], whole=[7, 7, 5])
        assert found == [1, 2, 7, 5]

    async def test_no_content_and_empty_content_are_the_same(self):
        turn = (self.said("a"), [AssistantMessage(content="")], {"prompt_ids": [1], "completion_ids": [7]})
        client_says = self.state(turn)
        client = OpenAIChatCompletionsTokenClient(ClientConfig(api_base_url="http://localhost:1/v1"))

        async def tokenize(messages, tools, model, extra_kwargs=None):
            return [7, 8] if extra_kwargs else [7, 8, 5]

        client.tokenize = tokenize
        async with client:
            prompt, _ = await client.to_native_prompt(
                [*self.said("a"), AssistantMessage(content=None), UserMessage(content="c")]
            )
            assert await client.get_prompt_ids(client_says, prompt, None) == [1, 7, 8, 5]

"""The client of text completions: one text in, what follows it out."""

import pytest

from nightjar.clients import ClientConfig, OpenAICompletionsClient
from nightjar.core.messages import AssistantMessage, SystemMessage, TextMessage, Tool, UserMessage
from nightjar.errors import ConfigError, EmptyModelResponseError, InvalidModelResponseError

ASKED = [TextMessage(content="2+2=")]


def completion(text="4", finish_reason="stop", choice=None, **fields):
    choices = [{"index": 0, "text": text, "finish_reason": finish_reason, "logprobs": None, **(choice or {})}]
    return {"id": "c1", "object": "text_completion", "created": 17, "model": "served", "choices": choices, **fields}


@pytest.fixture
async def client(canned):
    async with OpenAICompletionsClient(ClientConfig(api_base_url=canned.url, max_retries=0)) as client:
        yield client


@pytest.fixture
def ask(canned, client):
    """Asks the canned server, which answers with the body given."""

    async def ask(body, *, prompt=ASKED, **sampling_args):
        canned.reply(body)
        return await client.get_response(prompt, "m", sampling_args)

    return ask


async def test_the_texts_of_all_messages_are_one_prompt(ask, canned):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    prompt = [SystemMessage(content="s"), UserMessage(content=parts), AssistantMessage(content=None), *ASKED]
    await ask(completion(), prompt=prompt, max_tokens=9, stop=["\n"])
    path, _, body = canned.requests[-1]
    assert path == "/v1/completions"
    assert body == {"model": "m", "prompt": "s\n\none two\n\n\n\n2+2=", "max_tokens": 9, "stop": ["\n"]}


async def test_an_answer(ask):
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    response = await ask(completion(" 4", usage=usage))
    assert (response.id, response.created, response.model, response.usage.total_tokens) == ("c1", 17, "served", 12)
    assert (response.message.content, response.message.finish_reason, response.message.tool_calls) == (
        " 4",
        "stop",
        None,
    )


@pytest.mark.parametrize(("reason", "is_truncated"), [("stop", False), ("length", True), ("content_filter", False)])
async def test_how_it_ended(ask, reason, is_truncated):
    message = (await ask(completion(finish_reason=reason))).message
    assert (message.finish_reason, message.is_truncated) == (
        None if reason == "content_filter" else reason,
        is_truncated,
    )


async def test_token_ids(ask):
    choice = {"prompt_token_ids": [1, 2], "token_ids": [3], "logprobs": {"token_logprobs": [-0.5], "tokens": ["4"]}}
    tokens = (await ask(completion(choice=choice))).message.tokens
    assert (tokens.prompt_ids, tokens.prompt_mask) == ([1, 2], [0, 0])
    assert (tokens.completion_ids, tokens.completion_mask, tokens.completion_logprobs) == ([3], [1], [-0.5])


async def test_log_probabilities(ask, canned):
    told = {"tokens": ["2+2=", "4"], "text_offset": [0, 4], "token_logprobs": [None, -0.5], "top_logprobs": None}
    response = await ask(completion("2+2=4", choice={"logprobs": told}), echo=True, logprobs=1)
    assert (canned.requests[-1][2]["echo"], canned.requests[-1][2]["logprobs"]) == (True, 1)
    assert (response.logprobs.text_offset, response.logprobs.token_logprobs) == ([0, 4], [None, -0.5])
    in_another_form = {"content": [{"token": "4", "logprob": -0.5}]}
    assert (await ask(completion(choice={"logprobs": in_another_form}))).logprobs is None


async def test_nothing_at_all(ask):
    with pytest.raises(EmptyModelResponseError, match="no text"):
        await ask(completion(""))
    assert (await ask(completion("", "length"))).message.content == "", "no room for more is an answer"


@pytest.mark.parametrize("body", [completion(choices=[]), {"id": "c1"}, b"<html>", {"error": {"message": "busy"}}])
async def test_another_shape_than_the_protocol_s(ask, body):
    with pytest.raises(InvalidModelResponseError):
        await ask(body)


async def test_tools_are_refused(client):
    with pytest.raises(ConfigError, match="no tools, found 'add'"):
        await client.to_native_tool(Tool(name="add", description="", parameters={}))
    with pytest.raises(ConfigError, match="no tools"):
        await client.get_native_response("2+2=", "m", {}, [None])

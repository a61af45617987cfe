"""The model server's routes for token ids, as vLLM has them, seen through the official client."""

import functools

import pytest
from late import late

from nightjar.model_server import Answer, FixedAnswer, ModelServer, Script, tool_call

openai = late("openai")
QUESTION = {"role": "user", "content": "What is one plus two?"}
ADD = {"type": "function", "function": {"name": "add", "parameters": {}}}
WITH_IDS = {"extra_body": {"return_token_ids": True}, "logprobs": True}


@functools.cache
def tokenized():
    class Tokenized(openai.BaseModel):
        count: int
        max_model_len: int
        tokens: list[int]
        token_strs: list[str] | None = None

    return Tokenized


@pytest.fixture
async def client_of():
    how = {"api_key": "any", "max_retries": 0, "_strict_response_validation": True}
    clients = []
    yield lambda server: clients.append(openai.AsyncOpenAI(base_url=server.url, **how)) or clients[-1]
    for client in clients:
        await client.close()


async def tokenize(client, **body):
    root = client.with_options(base_url=str(client.base_url).removesuffix("/v1/"))
    return await root.post("/tokenize", body={"model": "m", **body}, cast_to=tokenized())


async def continue_from(client, tokens, **body):
    body = {"model": "m", "return_token_ids": True, "logprobs": True, "tokens": tokens, **body}
    return await client.post("/chat/completions/tokens", body=body, cast_to=openai.types.chat.ChatCompletion)


async def test_ids_and_logprobs(client_of):
    with ModelServer(FixedAnswer("It is three.")) as server:
        client = client_of(server)
        completion = await client.chat.completions.create(model="m", messages=[QUESTION], **WITH_IDS)
        prompt = await tokenize(client, messages=[QUESTION])
    choice = completion.choices[0]
    assert completion.prompt_token_ids == prompt.tokens
    assert [entry.token for entry in choice.logprobs.content] == ["It", " is", " three.", "<|im_end|>"]
    assert len(choice.token_ids) == 4
    assert all(-1 < entry.logprob <= 0 for entry in choice.logprobs.content)
    assert bytes(choice.logprobs.content[1].bytes) == b" is"
    assert completion.usage.prompt_tokens == len(prompt.tokens)
    assert completion.usage.completion_tokens == 4


async def test_a_cut_answer_has_no_mark_at_its_end_nor_one_without_ids(client_of):
    with ModelServer(FixedAnswer("It is three.")) as server:
        client = client_of(server)
        create = functools.partial(client.chat.completions.create, model="m", messages=[QUESTION], **WITH_IDS)
        cut, exact, whole = [(await create(max_tokens=limit)).choices[0] for limit in (2, 3, 4)]
        without = await create(extra_body=None)
    assert cut.token_ids == whole.token_ids[:2]
    assert exact.token_ids == whole.token_ids[:3]
    assert (cut.finish_reason, exact.finish_reason, whole.finish_reason) == ("length", "length", "stop")
    assert [entry.token for entry in without.choices[0].logprobs.content] == ["It", " is", " three."]
    assert not hasattr(without, "prompt_token_ids")


async def test_a_conversation_is_tokenized_with_and_without_tools(client_of):
    with ModelServer(FixedAnswer("yes"), max_context_tokens=50) as server:
        whole = await tokenize(client_of(server), messages=[QUESTION], return_token_strs=True)
        bare = await tokenize(client_of(server), messages=[QUESTION], add_generation_prompt=False)
    assert "".join(whole.token_strs) == ("<|im_start|>user\nWhat is one plus two?<|im_end|>\n<|im_start|>assistant\n")
    assert whole.count == len(whole.tokens) == len(whole.token_strs)
    assert whole.max_model_len == 50
    assert bare.tokens == whole.tokens[:-2]
    with ModelServer(FixedAnswer("yes")) as server:
        client = client_of(server)
        without = await tokenize(client, messages=[QUESTION])
        offered = await tokenize(client, messages=[QUESTION], tools=[ADD])
    assert offered.tokens[-without.count :] == without.tokens
    assert offered.count > without.count


async def test_to_tokenize_a_text_is_no_request_to_the_model(client_of):
    with ModelServer(FixedAnswer("yes"), keep_requests=1) as server:
        tokenized = await tokenize(client_of(server), prompt="one two", return_token_strs=True)
        assert (server.stats().received, server.requests[0].path) == (0, "/tokenize")
    assert tokenized.token_strs == ["one", " two"]


async def test_to_tokenize_without_messages_text_or_key_is_refused(client_of):
    with ModelServer(FixedAnswer("yes")) as server, pytest.raises(openai.BadRequestError) as caught:
        await tokenize(client_of(server))
    assert caught.value.param == "messages"
    with ModelServer(FixedAnswer("yes"), require_key="x") as server, pytest.raises(openai.AuthenticationError):
        await tokenize(client_of(server), prompt="one")


async def test_tokens_of_one_turn_begin_the_next(client_of):
    """What a client stitches together is what the server makes of the whole conversation."""
    calls = Answer("q", "", reasoning="Add them.", tool_calls=(tool_call("add", a=1, b=2),))
    with ModelServer(Script([calls, "The sum is 3."])) as server:
        client = client_of(server)
        first = await client.chat.completions.create(model="m", messages=[QUESTION], **WITH_IDS)
        said = first.choices[0].message
        result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "3"}
        messages = [QUESTION, said.model_dump(), result]
        so_far = first.prompt_token_ids + first.choices[0].token_ids
        whole = (await tokenize(client, messages=messages)).tokens
        second = await continue_from(client, whole, messages=messages)
    assert whole[: len(so_far)] == so_far
    assert second.prompt_token_ids == whole
    assert second.usage.prompt_tokens == len(whole)
    assert second.choices[0].message.content == "The sum is 3."
    assert len(second.choices[0].token_ids) == len(second.choices[0].logprobs.content) == 5


async def test_given_tokens_are_the_prompt(client_of):
    with ModelServer(FixedAnswer("yes"), max_context_tokens=20) as server:
        client = client_of(server)
        completion = await continue_from(client, [3, 1, 4], messages=[QUESTION])
        with pytest.raises(openai.BadRequestError, match="20 tokens") as caught:
            await continue_from(client, [7] * 21, messages=[QUESTION])
    assert completion.prompt_token_ids == [3, 1, 4]
    assert caught.value.code == "context_length_exceeded"

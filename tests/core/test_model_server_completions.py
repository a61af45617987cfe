"""The model server in OpenAI's legacy text completions, seen through the official client."""

import openai
import pytest

from nightjar.model_server import FixedAnswer, ModelServer


async def ask(server, prompt="Once upon a time", **options):
    is_strict = not options.get("echo")  # the first token has no probability, for which the SDK's type has no room
    client = openai.AsyncOpenAI(
        base_url=server.base_url, api_key="any", max_retries=0, _strict_response_validation=is_strict
    )
    async with client:
        return await client.completions.create(model="m", prompt=prompt, **options)


@pytest.mark.parametrize("prompt", ["Once upon a time", ["Once upon a time"]])
async def test_text(prompt):
    with ModelServer(FixedAnswer(" there was a king")) as server:
        completion = await ask(server, prompt)
        questions = server.stats().questions
    choice = completion.choices[0]
    assert (choice.text, choice.finish_reason, choice.logprobs) == (" there was a king", "stop", None)
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (4, 4)
    assert questions == {"Once upon a time": 1}


async def test_max_tokens_cuts_the_answer():
    with ModelServer(FixedAnswer(" there was a king")) as server:
        choice = (await ask(server, max_tokens=2)).choices[0]
    assert (choice.text, choice.finish_reason) == (" there was", "length")


async def test_logprobs():
    with ModelServer(FixedAnswer("one  two")) as server:
        logprobs = (await ask(server, logprobs=1)).choices[0].logprobs
    assert logprobs.tokens == ["one", "  two"]
    assert logprobs.text_offset == [0, 3]
    assert all(-1 < value <= 0 for value in logprobs.token_logprobs)
    assert [dict(top) for top in logprobs.top_logprobs] == [
        {token: value} for token, value in zip(logprobs.tokens, logprobs.token_logprobs, strict=True)
    ]


async def test_echo():
    with ModelServer(FixedAnswer(" a king")) as server:
        choice, again = [(await ask(server, echo=True, logprobs=1, max_tokens=1)).choices[0] for _ in range(2)]
        other = (await ask(server, "Twice upon a time", echo=True, logprobs=1, max_tokens=1)).choices[0]
        unasked = (await ask(server, echo=True)).choices[0]
    assert choice.text == "Once upon a time a"
    assert choice.logprobs.tokens == ["Once", " upon", " a", " time", " a"]
    assert choice.logprobs.text_offset == [0, 4, 9, 11, 16]
    first, *values = choice.logprobs.token_logprobs
    assert first is choice.logprobs.top_logprobs[0] is None
    assert values == again.logprobs.token_logprobs[1:]
    assert values[:-1] != other.logprobs.token_logprobs[1:-1], "by all that stands before"
    tops = [max(top.values()) for top in choice.logprobs.top_logprobs[1:]]
    assert all(top == value if value >= -1 else top > value for top, value in zip(tops, values, strict=True))
    assert (unasked.text, unasked.logprobs) == ("Once upon a time a king", None)


async def test_token_ids():
    with ModelServer(FixedAnswer(" a time")) as server:
        completion = await ask(server, logprobs=0, extra_body={"return_token_ids": True})
        cut = await ask(server, max_tokens=2, extra_body={"return_token_ids": True})
    choice = completion.choices[0]
    assert len(choice.prompt_token_ids) == completion.usage.prompt_tokens == 4
    assert len(choice.token_ids) == completion.usage.completion_tokens == 3  # with the mark at the end
    assert len(choice.logprobs.token_logprobs) == 3
    assert choice.token_ids[:2] == choice.prompt_token_ids[2:]  # the same words
    assert cut.choices[0].token_ids == choice.token_ids[:2]
    assert cut.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "options", "param"),
    [
        ([1, 2, 3], {}, "prompt"),
        (["one", "two"], {}, "prompt"),
        ("one", {"n": 2}, "n"),
        ("one", {"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_what_the_server_cannot_do(prompt, options, param):
    with ModelServer(FixedAnswer("yes")) as server, pytest.raises(openai.BadRequestError) as caught:
        await ask(server, prompt, **options)
    assert caught.value.param == param

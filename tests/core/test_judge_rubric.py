"""JudgeRubric: another model says whether an answer is right. The judge is a model server on loopback."""

import asyncio
import time

import pytest

from nightjar.clients import ClientConfig, resolve_client
from nightjar.core.messages import AssistantMessage, SystemMessage, UserMessage
from nightjar.environments.parsers import MaybeThinkParser
from nightjar.environments.rubrics import JudgeRubric
from nightjar.errors import MissingKeyError, ModelError, ScoringError
from nightjar.model_server import Answer, Faults, FixedAnswer, ModelServer, Script

ASKED = [SystemMessage(content="Be brief."), UserMessage(content="Who?"), AssistantMessage(content="Whom?"),
         UserMessage(content=[{"type": "text", "text": "Who wrote"}, {"type": "text", "text": "Emma?"}])]  # fmt: skip


async def right(judge, prompt, completion, answer, state):
    return float("yes" in (await judge(prompt, completion, answer, state)).lower())


@pytest.fixture
def judged(make_state):
    def make(text="Jane Austen"):
        columns = {"prompt": ASKED, "answer": "Austen"}
        return make_state(columns=columns, completion=[AssistantMessage(content=text)])

    return make


@pytest.fixture
def score(judged):
    async def score(rubric, *funcs, text="Jane Austen"):
        for func in funcs:
            rubric.add_reward_func(func, weight=0.0 if rubric.funcs else 1.0)
        state = judged(text)
        await rubric.score_rollout(state)
        await rubric.teardown()
        return state

    return score


@pytest.fixture
async def make_rubric():
    made = []

    def make(server, **kwargs):
        rubric = JudgeRubric(judge_client=ClientConfig(api_base_url=server.base_url), judge_model="wise", **kwargs)
        rubric.add_reward_func(right)
        rubric.retry_seconds = 0.001
        made.append(rubric)
        return rubric

    yield make
    for rubric in made:
        await rubric.teardown()


async def test_the_question_has_the_last_user_message_and_sampling_arguments_of_the_protocol(score, make_rubric):
    sampling = {"max_tokens": 7, "temperature": 0.0, "top_p": None}
    how = {"judge_prompt": "{question} | {answer} | {response}", "judge_sampling_args": sampling}
    with ModelServer(FixedAnswer("Yes."), keep_requests=1) as server:
        rubric = make_rubric(server, parser=MaybeThinkParser(), **how)
        state = await score(rubric, text="<think>hm</think> Jane Austen")
        body = server.requests[0].body
    assert (state["error"], state["reward"]) == (None, 1.0)
    assert body == {
        "model": "wise", "max_completion_tokens": 7, "temperature": 0.0,
        "messages": [{"role": "user", "content": "Who wrote Emma? | Austen | Jane Austen"}],
    }  # fmt: skip


async def test_the_judge_may_be_asked_about_a_text(make_rubric):
    with ModelServer(FixedAnswer("no")) as server:
        rubric = make_rubric(server, judge_prompt="{question}")
        assert await rubric.judge("Who?", "Austen", "Austen") == "no"
        assert server.stats().questions == {"Who?": 1}


async def test_a_reward_function_may_pass_on_all_that_it_is_given(score, make_rubric):
    async def passing_on(prompt, completion, answer, state, **kwargs):
        return float(await rubric.judge(prompt, completion, answer, state, **kwargs) == "yes")

    with ModelServer(FixedAnswer("yes"), keep_requests=1) as server:
        rubric = make_rubric(server)
        state = await score(rubric, passing_on)
        text = server.requests[0].body["messages"][0]["content"]
    assert all(part in text for part in ("Who wrote Emma?", "Austen", "Jane Austen", '"yes" or "no"'))
    assert (state["error"], state["metrics"]) == (None, {"right": 1.0, "passing_on": 1.0})


@pytest.mark.parametrize("kind", ["AsyncOpenAI", "OpenAI"])
async def test_the_client_may_be_one_of_openai_sync_or_async(score, kind):
    import openai

    with ModelServer(FixedAnswer("yes"), keep_requests=1) as server:
        client = getattr(openai, kind)(base_url=server.base_url, api_key="any")
        state = await score(JudgeRubric(judge_client=client, judge_sampling_args={"max_tokens": 7}), right)
        assert (state["reward"], server.requests[0].body["max_completion_tokens"]) == (1.0, 7)
        closing = client.close()
        await closing if kind == "AsyncOpenAI" else None


async def test_a_nightjar_client_is_left_open(score):
    with ModelServer(FixedAnswer("yes")) as server:
        async with resolve_client(ClientConfig(api_base_url=server.base_url)) as client:
            for _ in range(2):
                assert (await score(JudgeRubric(judge_client=client), right))["reward"] == 1.0


async def test_openai_is_the_default_and_its_client_is_given_to_reward_functions(score, monkeypatch):
    async def ask(judge_client, judge_model):
        asked = [{"role": "user", "content": "?"}]
        reply = await judge_client.chat.completions.create(model=judge_model, messages=asked)
        return float(reply.choices[0].message.content)

    with ModelServer(FixedAnswer("0.5"), require_key="sk-test") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        state = await score(JudgeRubric(), ask)
    assert (state["reward"], state["error"]) == (0.5, None)


async def test_the_key_is_needed_when_the_judge_is_asked_and_not_before(score, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    state = await score(JudgeRubric(), right)
    assert isinstance(state["error"].__cause__.__cause__, MissingKeyError)
    assert "'OPENAI_API_KEY' not set" in str(state["error"])


async def test_the_same_question_is_asked_once(score, make_rubric):
    async def twice(judge, prompt, completion, answer, state):
        asked = [judge(prompt, completion, answer, state) for _ in range(3)]
        return float(len(set(await asyncio.gather(*asked))))

    with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=30)) as server:
        state = await score(make_rubric(server), twice)
        assert server.stats().answered == 1
    assert (state["metrics"], list(state["judge_response"].values())) == ({"right": 1.0, "twice": 1.0}, ["yes"])


async def test_another_rollout_asks_the_judge_again(judged, make_rubric):
    with ModelServer(FixedAnswer("yes")) as server:
        states = [judged(), judged(), judged("Brontë")]
        await make_rubric(server).score_group(states)
        assert server.stats().answered == 3


async def test_another_value_under_the_name_of_the_cache_is_ignored(score, make_rubric):
    async def noting(judge, prompt, completion, answer, state):
        state["judge_response"] = await judge(prompt, completion, answer, state)
        return float(await judge("Who else?", completion, answer, state) == "yes")

    with ModelServer(FixedAnswer("yes it is")) as server:
        state = await score(make_rubric(server, judge_prompt="{question}"), noting)
        assert server.stats().questions == {"Who wrote Emma?": 1, "Who else?": 1}
    assert (state["error"], state["metrics"]) == (None, {"right": 1.0, "noting": 0.0})
    assert state["judge_response"] == {"Who else?": "yes it is"}
    assert state["judge_usage"] == {"input_tokens": 5, "output_tokens": 6}


async def test_temporary_errors_of_the_judge_are_retried(judged, make_rubric):
    with ModelServer(FixedAnswer("yes"), faults=Faults(rate_429=0.2, rate_500=0.1, rate_malformed=0.1)) as server:
        states = [judged(f"answer {number}") for number in range(20)]
        rubric = make_rubric(server)
        rubric.max_retries = 20
        await rubric.score_group(states)
        assert server.stats().received > 22
    assert [state["error"] for state in states] == [None] * 20


async def test_permanent_errors_of_the_judge_are_the_error_of_the_rollout(score, make_rubric):
    with ModelServer(FixedAnswer("yes"), only_model="another") as server:
        state = await score(make_rubric(server))
        assert server.stats().received == 1
    assert (type(state["error"]), type(state["error"].__cause__)) == (ScoringError, ModelError)
    assert str(state["error"]).startswith("Reward function 'right': Judge model 'wise': ")
    assert state["reward"] is None


async def test_a_judge_that_only_thinks_has_said_nothing(score, make_rubric):
    with ModelServer(Script([Answer(question="q", text="", reasoning="yes, surely")])) as server:
        state = await score(make_rubric(server))
    assert "it said nothing" in str(state["error"])


@pytest.mark.slow
async def test_attempts_are_bounded_and_wait_as_long_as_the_judge_asks(judged, make_rubric):
    with ModelServer(FixedAnswer("yes"), faults=Faults(rate_429=1, retry_after_seconds=1)) as server:
        rubric = make_rubric(server)
        rubric.max_retries = 1
        start = time.monotonic()
        await rubric.score_rollout(state := judged())
        assert time.monotonic() - start >= 1.0
        assert server.stats().received == 2
    assert isinstance(state["error"], ScoringError)

"""JudgeRubric: another model says whether an answer is right. The judge is a model server on loopback."""

import asyncio
import time

import openai
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
    """Makes a generated rollout of a conversation."""

    def make(text="Jane Austen"):
        columns = {"prompt": ASKED, "answer": "Austen"}
        return make_state(columns=columns, completion=[AssistantMessage(content=text)])

    return make


@pytest.fixture
async def make_rubric():
    """Makes rubrics that ask a server, and tears them down."""
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


class TestQuestion:
    TEMPLATE = "{question} | {answer} | {response}"

    async def asked(self, judged, make_rubric, **kwargs):
        with ModelServer(FixedAnswer("Yes."), keep_requests=1) as server:
            state = judged("<think>hm</think> Jane Austen")
            await make_rubric(server, judge_prompt=self.TEMPLATE, **kwargs).score_rollout(state)
            assert (state["error"], state["reward"]) == (None, 1.0)
            return server.requests[0].body

    async def test_it_is_the_last_user_message(self, judged, make_rubric):
        body = await self.asked(judged, make_rubric, parser=MaybeThinkParser())
        assert body["messages"] == [{"role": "user", "content": "Who wrote Emma? | Austen | Jane Austen"}]

    async def test_sampling_arguments_are_those_of_the_protocol(self, judged, make_rubric):
        sampling = {"max_tokens": 7, "temperature": 0.0, "top_p": None}
        body = await self.asked(judged, make_rubric, judge_sampling_args=sampling)
        del body["messages"]
        assert body == {"model": "wise", "max_completion_tokens": 7, "temperature": 0.0}

    async def test_a_prompt_may_be_a_text(self, make_rubric):
        with ModelServer(FixedAnswer("no")) as server:
            rubric = make_rubric(server, judge_prompt="{question}")
            assert await rubric.judge("Who?", "Austen", "Austen") == "no"
            assert server.stats().questions == {"Who?": 1}

    async def test_a_reward_function_may_pass_on_all_that_it_is_given(self, judged, make_rubric):
        async def passing_on(prompt, completion, answer, state, **kwargs):
            return float(await rubric.judge(prompt, completion, answer, state, **kwargs) == "yes")

        with ModelServer(FixedAnswer("yes"), keep_requests=1) as server:
            rubric, state = make_rubric(server), judged()
            rubric.add_metric(passing_on)
            await rubric.score_rollout(state)
            text = server.requests[0].body["messages"][0]["content"]
        assert all(part in text for part in ("Who wrote Emma?", "Austen", "Jane Austen", '"yes" or "no"'))
        assert (state["error"], state["metrics"]) == (None, {"right": 1.0, "passing_on": 1.0})


class TestClients:
    @pytest.mark.parametrize("kind", [openai.AsyncOpenAI, openai.OpenAI])
    async def test_an_openai_client_sync_or_async(self, judged, kind):
        with ModelServer(FixedAnswer("yes"), keep_requests=1) as server:
            rubric = JudgeRubric(
                judge_client=kind(base_url=server.base_url, api_key="any"), judge_sampling_args={"max_tokens": 7}
            )
            rubric.add_reward_func(right)
            state = judged()
            await rubric.score_rollout(state)
            assert (state["reward"], server.requests[0].body["max_completion_tokens"]) == (1.0, 7)
            closing = rubric.judge_client.close()
            await closing if kind is openai.AsyncOpenAI else None

    async def test_a_nightjar_client_is_left_open(self, judged):
        with ModelServer(FixedAnswer("yes")) as server:
            client = resolve_client(ClientConfig(api_base_url=server.base_url))
            for _ in range(2):
                rubric = JudgeRubric(judge_client=client)
                rubric.add_reward_func(right)
                state = judged()
                await rubric.score_rollout(state)
                await rubric.teardown()
                assert state["reward"] == 1.0
            await client.close()

    async def test_openai_is_the_default_and_its_client_is_given_to_reward_functions(self, judged, monkeypatch):
        async def ask(judge_client, judge_model):
            reply = await judge_client.chat.completions.create(
                model=judge_model, messages=[{"role": "user", "content": "?"}]
            )
            return float(reply.choices[0].message.content)

        with ModelServer(FixedAnswer("0.5"), require_key="sk-test") as server:
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            rubric = JudgeRubric()
            rubric.add_reward_func(ask)
            state = judged()
            await rubric.score_rollout(state)
            await rubric.teardown()
        assert (state["reward"], state["error"]) == (0.5, None)

    async def test_the_key_is_needed_when_the_judge_is_asked_and_not_before(self, judged, monkeypatch):
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
        rubric = JudgeRubric()
        rubric.add_reward_func(right)
        state = judged()
        await rubric.score_rollout(state)
        assert isinstance(state["error"].__cause__.__cause__, MissingKeyError)
        assert "'OPENAI_API_KEY' not set" in str(state["error"])


class TestCache:
    async def test_the_same_question_is_asked_once(self, judged, make_rubric):
        async def twice(judge, prompt, completion, answer, state):
            asked = [judge(prompt, completion, answer, state) for _ in range(3)]
            return float(len(set(await asyncio.gather(*asked))))

        with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=30)) as server:
            rubric, state = make_rubric(server), judged()
            rubric.add_metric(twice)
            await rubric.score_rollout(state)
            assert server.stats().answered == 1
        assert (state["metrics"], list(state["judge_response"].values())) == ({"right": 1.0, "twice": 1.0}, ["yes"])

    async def test_another_rollout_is_another_question(self, judged, make_rubric):
        with ModelServer(FixedAnswer("yes")) as server:
            states = [judged(), judged(), judged("Brontë")]
            await make_rubric(server).score_group(states)
            assert server.stats().answered == 3

    async def test_another_value_under_the_name_of_the_cache_is_ignored(self, judged, make_rubric):
        async def noting(judge, prompt, completion, answer, state):
            state["judge_response"] = await judge(prompt, completion, answer, state)
            return float(await judge("Who else?", completion, answer, state) == "yes")

        with ModelServer(FixedAnswer("yes")) as server:
            rubric, state = make_rubric(server, judge_prompt="{question}"), judged()
            rubric.add_metric(noting)
            await rubric.score_rollout(state)
            assert server.stats().questions == {"Who wrote Emma?": 1, "Who else?": 1}
        assert (state["error"], state["metrics"]) == (None, {"right": 1.0, "noting": 1.0})
        assert state["judge_response"] == {"Who else?": "yes"}

    async def test_its_tokens_are_counted(self, judged, make_rubric):
        with ModelServer(FixedAnswer("yes it is")) as server:
            state = judged()
            await make_rubric(server, judge_prompt="one two three").score_rollout(state)
            client = openai.AsyncOpenAI(base_url=server.base_url, api_key="any")
            messages = [{"role": "user", "content": "one two three"}]
            usage = (await client.chat.completions.create(model="m", messages=messages)).usage
            await client.close()
        assert state["judge_usage"] == {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}


class TestFailures:
    async def test_temporary_errors_are_retried(self, judged, make_rubric):
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_429=0.2, rate_500=0.1, rate_malformed=0.1)) as server:
            states = [judged(f"answer {number}") for number in range(20)]
            rubric = make_rubric(server)
            rubric.max_retries = 20
            await rubric.score_group(states)
            assert server.stats().received > 22
        assert [state["error"] for state in states] == [None] * 20

    async def test_permanent_errors_are_the_error_of_the_rollout(self, judged, make_rubric):
        with ModelServer(FixedAnswer("yes"), only_model="another") as server:
            state = judged()
            await make_rubric(server).score_rollout(state)
            assert server.stats().received == 1
        assert (type(state["error"]), type(state["error"].__cause__)) == (ScoringError, ModelError)
        assert str(state["error"]).startswith("Reward function 'right': Judge model 'wise': ")
        assert state["reward"] is None

    async def test_attempts_are_bounded(self, judged, make_rubric):
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_500=1)) as server:
            rubric, state = make_rubric(server), judged()
            rubric.max_retries = 2
            await rubric.score_rollout(state)
            assert server.stats().received == 3
        assert isinstance(state["error"], ScoringError)

    async def test_a_judge_that_only_thinks_has_said_nothing(self, judged, make_rubric):
        with ModelServer(Script([Answer(question="q", text="", reasoning="yes, surely")])) as server:
            rubric, state = make_rubric(server), judged()
            await rubric.score_rollout(state)
        assert "it said nothing" in str(state["error"])

    @pytest.mark.slow
    async def test_retry_after_is_respected(self, judged, make_rubric):
        with ModelServer(FixedAnswer("yes"), faults=Faults(rate_429=1, retry_after_seconds=1)) as server:
            rubric = make_rubric(server)
            rubric.max_retries = 1
            start = time.monotonic()
            await rubric.score_rollout(judged())
            assert 1.0 <= time.monotonic() - start < 5.0

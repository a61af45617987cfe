"""``sys.exit()``, cancelled subtasks and odd states in user code cost their rollout, never the run."""

import asyncio
import sys

import pytest

from nightjar.core.messages import UserMessage
from nightjar.environments import MultiTurnEnv, SingleTurnEnv
from nightjar.environments.rubrics import Rubric

QUESTIONS = [{"question": str(number), "answer": str(number)} for number in range(40)]


async def evaluate(env, client, **how):
    async with asyncio.timeout(20):
        return (await env.evaluate(client, "m", max_concurrent=2, **how))["outputs"]


def exiting(completion, answer):
    if answer == "3":
        sys.exit(0)
    return 1.0


async def exiting_async(completion, answer):
    return exiting(completion, answer)


async def waits_for_a_cancelled_task(completion, answer):
    if answer == "3":
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
    return 1.0


@pytest.mark.parametrize("reward", [exiting, exiting_async, waits_for_a_cancelled_task])
async def test_in_a_reward_function(scripted_client, reward):
    rows = await evaluate(SingleTurnEnv(dataset=QUESTIONS, rubric=Rubric(funcs=[reward])), scripted_client("x"))
    assert [row["example_id"] for row in rows if row["error"]] == [3]
    assert len(rows) == 40


async def leave(state):
    sys.exit(0)


async def wait_for_a_cancelled_task(state):
    await waits_for_a_cancelled_task(None, "3")


async def break_the_trajectory(state):
    state["trajectory"] = ["a step"]


@pytest.mark.parametrize("deed", [leave, wait_for_a_cancelled_task, break_the_trajectory])
async def test_in_an_environment(scripted_client, deed):
    class Broken(SingleTurnEnv):
        async def setup_state(self, state):
            await deed(state)

    rows = await evaluate(
        Broken(dataset=QUESTIONS, rubric=Rubric(funcs=[lambda completion: 1.0])), scripted_client("x")
    )
    assert len(rows) == 40
    assert all(row["error"] and row["reward"] is None for row in rows)


@pytest.mark.slow
async def test_a_cancelled_rollout_is_cleaned_up(scripted_client):
    cleaned, begun = [], asyncio.Semaphore(0)

    class Resource(MultiTurnEnv):
        async def env_response(self, messages, state, **kwargs):
            return [UserMessage(content="go on")]

        async def setup_state(self, state):
            begun.release()
            await asyncio.sleep(60)

        async def cleanup(self, state):
            cleaned.append(state["example_id"])

    running = asyncio.ensure_future(evaluate(Resource(dataset=QUESTIONS), scripted_client("x")))
    for _ in range(2):
        await begun.acquire()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(cleaned) == [0, 1]

"""Connections belong to an event loop: a client serves any number of loops, and leaves nothing open in any."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from waiting import until

from nightjar.clients import ClientConfig, resolve_client
from nightjar.core.calling.loops import PerLoop
from nightjar.environments import SingleTurnEnv
from nightjar.environments.rubrics import JudgeRubric, Rubric
from nightjar.model_server import Faults, FixedAnswer, ModelServer

SOCKETS = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(not SOCKETS.is_dir(), reason="counts the sockets that Linux lists in /proc")


@pytest.fixture(scope="module")
def server():
    with ModelServer(FixedAnswer("yes")) as running:
        yield running


def open_sockets():
    found = 0
    for each in SOCKETS.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += str(each.readlink()).startswith("socket:")
    return found


def assert_closed(sockets_before):
    """Waits until no more sockets are open than before: the server hears a moment later that one was closed."""
    until(lambda: open_sockets() <= sockets_before)


def judged_env(judge_client=None):
    """Makes an environment of five questions; without a judge's client they have no reward."""

    async def right(judge, prompt, completion, answer, state):
        return float("yes" in await judge(prompt, completion, answer, state))

    rubric = JudgeRubric(judge_client=judge_client) if judge_client else Rubric()
    if judge_client:
        rubric.add_reward_func(right)
    return SingleTurnEnv(dataset=[{"question": f"{number}+2?", "answer": "4"} for number in range(5)], rubric=rubric)


def client_of(kind, url):
    """Returns a client as a user may give it."""
    if kind == "configuration":
        return ClientConfig(api_base_url=url)
    if kind == "client":
        return resolve_client(ClientConfig(api_base_url=url))
    sdk = import_module(kind.removeprefix("Async").lower())  # 1 s, for a slow test alone
    url = url.removesuffix("/v1") if kind == "AsyncAnthropic" else url
    return getattr(sdk, kind)(base_url=url, api_key="any", max_retries=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "judge"),
    [("configuration", "client"), ("client", "configuration"), ("AsyncOpenAI", "AsyncOpenAI"),
     ("AsyncAnthropic", "client")],
)  # fmt: skip
def test_evaluate_sync_leaves_no_connection_open(server, kind, judge):
    client, env = client_of(kind, server.base_url), judged_env(client_of(judge, server.base_url))
    before = open_sockets()
    for _ in range(3):
        outputs = env.evaluate_sync(client, "m", sampling_args={"max_tokens": 9})["outputs"]
        assert [(row["reward"], row["error"]) for row in outputs] == [(1.0, None)] * 5
        assert_closed(before)


async def test_a_client_stays_open_in_its_loop_also_beside_evaluate_sync(server):
    env = judged_env()
    async with resolve_client(ClientConfig(api_base_url=server.base_url)) as client:
        await env.evaluate(client, "m")
        outside = env.evaluate_sync(client, "m")["outputs"]
        again = (await env.evaluate(client, "m"))["outputs"]
    assert [row["error"] for row in outside + again] == [None] * 10


def test_a_client_is_used_by_the_loops_of_several_threads():
    with ModelServer(FixedAnswer("yes"), faults=Faults(latency_ms=2)) as server:
        client, env, before = resolve_client(ClientConfig(api_base_url=server.base_url)), judged_env(), open_sockets()

        def ask(_):
            return [row["error"] for row in env.evaluate_sync(client, "m", rollouts_per_example=10)["outputs"]]

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, range(4))) == [[None] * 50] * 4
        assert_closed(before)


def noting():
    """Makes numbers, and notes those that are closed."""
    closed, numbers = [], iter(range(100))

    async def close(number):
        closed.append(number)

    return PerLoop(lambda: next(numbers), close), closed


def test_each_loop_has_its_own_value_until_it_ends_or_closes_it_and_one_closed_abruptly_is_forgotten():
    numbers, closed = noting()

    async def anew():
        return await numbers.get(), await numbers.get(), await numbers.close(), await numbers.get()

    assert [asyncio.run(anew()), asyncio.run(anew())] == [(0, 0, None, 1), (2, 2, None, 3)]
    loop = asyncio.new_event_loop()
    loop.run_until_complete(numbers.get())
    loop.close()
    assert asyncio.run(numbers.get()) == 5
    assert closed == [0, 1, 2, 3, 5]


async def test_another_running_loop_closes_its_own_value():
    numbers, closed = noting()
    loop, made = asyncio.get_running_loop(), asyncio.Event()

    async def elsewhere():
        await numbers.get()
        loop.call_soon_threadsafe(made.set)
        while not closed:  # noqa: ASYNC110 - what it waits for belongs to no loop
            await asyncio.sleep(0.001)

    thread = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await made.wait()
    await numbers.close()
    await asyncio.wait_for(thread, 60)
    assert closed == [0]

"""How fast an endpoint is asked: against simulated endpoints in virtual time, and what response headers say."""

import asyncio
import math
import random
import selectors
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest

from nightjar.clients import ClientConfig, pace, resolve_client
from nightjar.clients.failures import Failure, retry_after, seconds_until_more
from nightjar.clients.pace import Pace, pace_of
from nightjar.clients.retries import wait_seconds
from nightjar.core.calling.limits import Places
from nightjar.core.messages import UserMessage
from nightjar.errors import ModelError
from nightjar.model_server import Faults, FixedAnswer, ModelServer

LATENCY_SECONDS = (0.05, 0.1)
BROKEN = Failure("oops", is_retryable=True, is_repeatable=True)


def too_many(retry_after_seconds=None):
    return Failure(
        "slow down", is_retryable=True, is_repeatable=True, is_overload=True, retry_after_seconds=retry_after_seconds
    )


class _Selector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout=None):
        self.now += max(0.0, timeout or 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer."""

    def __init__(self):
        self._jumping = _Selector()
        super().__init__(self._jumping)

    def time(self):
        return self._jumping.now


def run(work):
    """Runs a coroutine in virtual time, and returns its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


@dataclass
class Endpoint:
    """A simulated endpoint: refuses a share of requests, more than so many a second or at once, or queues them.

    ``quota`` tokens a minute are announced in headers; a request costs 200 to 600, counted at its start or its end.
    """

    share: float = 0.0
    retry_after_seconds: float | None = None
    per_second: float = math.inf
    slow_between: tuple[float, float] = (0.0, 0.0)
    concurrent: float = math.inf
    queue: int = 0
    quota: float = 0.0
    is_counted_at_end: bool = False
    sent: int = 0
    in_flight: int = 0
    answered_at: list = field(default_factory=list)

    def __post_init__(self):
        self.random = random.Random(1)
        self.tokens, self.filled_at = self.per_second, 0.0
        self.served = asyncio.Semaphore(self.queue or 10**6)
        self.quota_left, self.counted_at = self.quota, 0.0

    async def answer_within_quota(self, asked):
        """Counts the tokens of a request, and announces the rest in the headers of its response."""
        cost = self.random.randint(200, 600)
        at_start, at_end = (1, cost) if self.is_counted_at_end else (cost, 0)
        is_refused = self.quota and not self.spend(at_start)
        failure = too_many() if is_refused else await self.answer()
        self.sent += bool(is_refused)
        if self.quota:
            self.spend(0 if is_refused else at_end)
            left = {"x-ratelimit-limit-tokens": self.quota, "x-ratelimit-remaining-tokens": max(0, self.quota_left)}
            asked.heard({name: f"{value:.0f}" for name, value in left.items()})
        return failure

    def spend(self, tokens):
        now = asyncio.get_running_loop().time()
        self.quota_left = min(self.quota, self.quota_left + (now - self.counted_at) * self.quota / 60)
        self.counted_at = now
        is_enough = self.quota_left >= tokens
        self.quota_left -= tokens * is_enough
        return is_enough

    async def answer(self):
        """Returns None for an answer, else the failure."""
        self.sent += 1
        if not self.has_token() or self.in_flight >= self.concurrent or self.random.random() < self.share:
            return too_many(self.retry_after_seconds)
        self.in_flight += 1
        async with self.served:
            await asyncio.sleep(self.random.uniform(*LATENCY_SECONDS))
        self.in_flight -= 1
        self.answered_at.append(asyncio.get_running_loop().time())
        return None

    def has_token(self):
        if self.per_second == math.inf:
            return True
        now = asyncio.get_running_loop().time()
        rate = self.per_second / (2 if self.slow_between[0] < now < self.slow_between[1] else 1)
        self.tokens = min(rate, self.tokens + (now - self.filled_at) * rate)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


async def evaluate(endpoint, count, at_once):
    """Sends requests as the engine does: one that waits for a retry gives its place to another."""
    asked, places = Pace(), Places(at_once)
    asked.allow(at_once)
    loop = asyncio.get_running_loop()

    async def rollout():
        async with places:
            tries = 0
            while True:
                tries += 1
                async with asked.request() as sample:
                    started_at = loop.time()
                    if failure := await endpoint.answer_within_quota(asked):
                        asked.failed(sample, failure)
                if failure is None:
                    asked.answered(sample, loop.time() - started_at)
                    return
                async with places.given_back():
                    await asyncio.sleep(wait_seconds(tries, failure, [asked]))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(rollout())
    return asked, loop.time()


@pytest.fixture
def simulate(monkeypatch):
    """Returns the endpoint, its pace and the seconds that some requests took, in virtual time."""

    def simulated(count, at_once, **kind):
        async def work():
            monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
            endpoint = Endpoint(**kind)
            return endpoint, *await evaluate(endpoint, count, at_once)

        random.seed(1)
        return run(work())

    return simulated


async def failed(*failures):
    """Sends a request for each failure, and returns the pace."""
    asked = Pace()
    asked.allow(4)
    for failure in failures:
        async with asked.request() as sample:
            asked.failed(sample, failure)
    return asked


@pytest.mark.parametrize(
    ("count", "at_once", "kind", "ideal_seconds", "longest"),
    [
        # 0.075 s a request, so at_once / 0.075 a second
        (600, 8, {"share": 0.05}, 600 / 107, 1.3),
        (1319, 64, {"share": 0.05}, 1319 / 853, 1.3),
        (1319, 32, {"share": 0.2}, 1319 / 427, 1.3),
        (1319, 64, {"per_second": 50}, 1269 / 50, 1.1),
        pytest.param(1319, 64, {"concurrent": 16}, 1319 / 213, 1.3, marks=pytest.mark.slow),
        (1319, 64, {"queue": 16}, 1319 / 213, 1.05),  # without refusals there is no limit
        (1319, 64, {"per_second": 50, "share": 0.05}, 1319 / 47.5, 1.2),
    ],
)
def test_the_run_takes_little_longer_than_the_endpoint_allows(simulate, count, at_once, kind, ideal_seconds, longest):
    endpoint, asked, seconds = simulate(count, at_once, **kind)
    assert len(endpoint.answered_at) == count
    assert "queue" not in kind or (asked.rate, asked.changes, endpoint.sent) == (math.inf, [], count)
    assert seconds < longest * ideal_seconds
    assert endpoint.sent < 1.1 * count / (1 - kind.get("share", 0))


def test_refusals_that_do_not_depend_on_the_rate_become_noise(simulate):
    _, asked, _ = simulate(3000, 64, share=0.1)
    assert asked.noise == pytest.approx(0.1, abs=0.05)
    assert (asked.rate, asked.places.ceiling) == (math.inf, 64)


def test_a_wait_that_is_asked_for_delays_its_request_only(simulate):
    _, _, seconds = simulate(400, 16, share=0.2, retry_after_seconds=1)
    # 400 requests at 16 / 0.075 a second, then the longest chain of refusals: 0.2^4 * 400 < 1
    assert 1 < seconds < 400 / 213 + 4 * 1.5 + 1


@pytest.mark.slow
def test_a_limit_that_halves_and_recovers_is_followed_within_15_seconds(simulate):
    endpoint, _, _ = simulate(11_000, 64, per_second=100, slow_between=(20, 80))

    def per_second(first, last):
        return sum(first <= moment < last for moment in endpoint.answered_at) / (last - first)

    assert per_second(35, 80) > 45
    assert per_second(95, 120) > 90
    assert endpoint.sent < 1.05 * 11_000


@pytest.mark.parametrize("is_counted_at_end", [False, True], ids=["at the start", "at the end"])
@pytest.mark.parametrize("quota", [20_000, 300_000])
def test_a_quota_of_tokens_that_headers_announce_is_used_without_refusals(simulate, quota, is_counted_at_end):
    endpoint, _, seconds = simulate(1500, 64, quota=quota, is_counted_at_end=is_counted_at_end)
    at_least = (1500 * 400 - quota) / (quota / 60)
    assert seconds < at_least / 0.9
    assert endpoint.sent < 1.02 * 1500


def test_an_endpoint_that_refuses_everything_is_asked_less_and_less(monkeypatch):
    async def work():
        monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
        return await failed(*[too_many()] * 60)

    assert run(work()).rate <= 1


def test_one_refusal_and_other_failures_change_nothing():
    asked = run(failed(too_many(), *[BROKEN] * 50))
    assert (asked.refused, asked.rate, asked.changes) == (1, math.inf, [])


async def test_all_clients_of_an_endpoint_share_its_pace():
    assert pace_of(("http://a/v1", 1)) is not pace_of(("http://b/v1", 1))
    with ModelServer(FixedAnswer("4"), faults=Faults(latency_ms=30)) as server:
        config = ClientConfig(api_base_url=server.base_url, max_concurrent=3)
        clients = [resolve_client(config) for _ in range(2)]
        asked = [client.get_response([UserMessage(content="2+2?")], "m", {}) for client in clients * 10]
        await asyncio.gather(*asked)
        assert (server.stats().answered, server.stats().peak_in_flight) == (20, 3)
        for client in clients:
            await client.close()


async def test_an_endpoint_without_quota_gets_no_request_before_the_reset(canned):
    answer = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}}]}
    limit = {"x_ratelimit_reset_requests": "200ms"}
    canned.choose = lambda *_: canned.reply(answer, x_ratelimit_remaining_requests=str(left.pop()), **limit)
    left = [0, 0, 0, 1]
    async with resolve_client(ClientConfig(api_base_url=canned.url)) as client:
        started = time.monotonic()
        for _ in range(4):
            await client.get_response([UserMessage(content="2+2?")], "m", {})
        assert time.monotonic() - started >= 0.4


async def test_an_account_without_credit_fails_at_once(canned):
    said = "You exceeded your current quota, please check your plan and billing details."
    canned.reply({"error": {"message": said, "code": "insufficient_quota"}}, status=429)
    async with resolve_client(ClientConfig(api_base_url=canned.url)) as client:
        with pytest.raises(ModelError, match="exceeded your current quota"):
            await client.get_response([UserMessage(content="2+2?")], "m", {})
    assert len(canned.requests) == 1


def test_headers_have_durations():
    durations = {"2": 2.0, "0.25": 0.25, "1m30s": 90.0, "20ms": 0.02, "1h0m0s": 3600.0, "6m0.5s": 360.5, "": None}
    assert {text: retry_after({"retry-after": text}) for text in durations} == durations
    spent = {"x-ratelimit-remaining": "0"}
    assert {text: seconds_until_more(spent | {"x-ratelimit-reset": text}) for text in durations} == durations


def test_headers_have_moments():
    moment = datetime.now(UTC) + timedelta(seconds=100_000)
    for text in (format_datetime(moment, usegmt=True), moment.isoformat(), str(moment.timestamp())):
        assert retry_after({"retry-after": text}) == pytest.approx(100_000, abs=100)
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(moment.timestamp() * 1000))}
    assert seconds_until_more(headers) == pytest.approx(100_000, abs=100)


def test_the_precedence_of_headers():
    assert retry_after({"retry-after-ms": "1500", "retry-after": "2"}) == 1.5
    spent = {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "9"}
    assert retry_after(spent) == 9
    assert seconds_until_more({"x-ratelimit-remaining-tokens": "10", "x-ratelimit-reset-tokens": "6s"}) is None

"""The pace of requests to an endpoint, and the headers that change it."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from nightjar.clients import ClientConfig, resolve_client
from nightjar.clients.failures import Failure, retry_after, seconds_until_more
from nightjar.clients.pace import Pace, pace_of
from nightjar.core.messages import UserMessage
from nightjar.errors import ModelError
from nightjar.model_server import Faults, FixedAnswer, ModelServer

TOO_MANY = Failure("slow down", is_retryable=True, is_repeatable=True, is_overload=True)
BROKEN = Failure("oops", is_retryable=True, is_repeatable=True)


async def send(pace, count, failure=None):
    """Has so many requests in flight at once, and answers them all."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(one(pace, failure))


async def one(pace, failure):
    async with pace.request():
        await asyncio.sleep(0)
        if failure is not None:
            pace.failed(failure)
    if failure is None:
        pace.answered()


class TestPace:
    async def test_without_refusals_there_is_no_limit(self):
        pace = Pace()
        await send(pace, 1000)
        await send(pace, 5, BROKEN)
        assert (pace.rate, pace.places.ceiling, pace.changes) == (float("inf"), float("inf"), [])

    async def test_if_some_are_refused_it_slows_down_and_then_speeds_up_again(self):
        pace = Pace()
        await send(pace, 40)
        await one(pace, TOO_MANY)
        # 40 of 41 accepted, in what counts as a second: 0.95 * 40 = 38
        assert pace.rate == pytest.approx(38, rel=0.01)
        assert pace.refused == 1
        pace._rate_since -= 10
        # 38 * (1 + 0.02 * 10 + 0.003 * 10^3) = 159.6
        assert pace.rate == pytest.approx(159.6, rel=0.01)
        pace._rate_since -= 60
        assert pace.rate == float("inf")

    async def test_requests_are_spread_out(self):
        pace = Pace()
        await send(pace, 21)
        await one(pace, TOO_MANY)
        started = time.monotonic()
        await send(pace, 5)
        assert time.monotonic() - started >= 4 / 25

    async def test_if_all_are_refused_only_as_many_as_are_in_flight_are_allowed(self):
        pace = Pace()
        pace.allow(32)
        hold = asyncio.Event()

        async def long():
            async with pace.request():
                await hold.wait()
            pace.answered()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(long())
            while pace.places.in_use < 3:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0)
            pace._window_since, pace._sent = time.monotonic() - 1.5, 0
            await one(pace, TOO_MANY)
            assert pace.places.ceiling == 3
            hold.set()
        assert pace.places.ceiling == pytest.approx(3 + 1 / 3 + 1 / (3 + 1 / 3) + 1 / 3.633, rel=0.01)

    async def test_all_clients_of_an_endpoint_share_it(self):
        assert pace_of(("http://a/v1", 1)) is not pace_of(("http://b/v1", 1))
        with ModelServer(FixedAnswer("4"), faults=Faults(latency_ms=30)) as server:
            config = ClientConfig(api_base_url=server.base_url, max_concurrent=3)
            clients = [resolve_client(config) for _ in range(2)]
            asked = [client.get_response([UserMessage(content="2+2?")], "m", {}) for client in clients * 10]
            await asyncio.gather(*asked)
            assert (server.stats().answered, server.stats().peak_in_flight) == (20, 3)
            for client in clients:
                await client.close()

    async def test_an_endpoint_without_quota_gets_no_request_before_the_reset(self, canned):
        answer = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}}]}
        canned.reply(answer, x_ratelimit_remaining_requests="0", x_ratelimit_reset_requests="200ms")
        async with resolve_client(ClientConfig(api_base_url=canned.url)) as client:
            started = time.monotonic()
            for _ in range(3):
                await client.get_response([UserMessage(content="2+2?")], "m", {})
            assert time.monotonic() - started >= 0.4

    async def test_an_account_without_credit_fails_at_once(self, canned):
        said = "You exceeded your current quota, please check your plan and billing details."
        canned.reply({"error": {"message": said, "code": "insufficient_quota"}}, status=429)
        async with resolve_client(ClientConfig(api_base_url=canned.url)) as client:
            with pytest.raises(ModelError, match="exceeded your current quota"):
                await client.get_response([UserMessage(content="2+2?")], "m", {})
        assert len(canned.requests) == 1


class TestHeaders:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("2", 2.0),
            ("0.25", 0.25),
            ("1m30s", 90.0),
            ("20ms", 0.02),
            ("1h0m0s", 3600.0),
            ("6m0.5s", 360.5),
            ("", None),
        ],
    )
    def test_durations(self, text, seconds):
        assert retry_after({"retry-after": text}) == seconds
        assert seconds_until_more({"x-ratelimit-remaining": "0", "x-ratelimit-reset": text}) == seconds

    def test_moments(self):
        moment = datetime.now(UTC) + timedelta(seconds=100)
        for text in (format_datetime(moment, usegmt=True), moment.isoformat(), str(moment.timestamp())):
            assert retry_after({"retry-after": text}) == pytest.approx(100, abs=2)
        headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(moment.timestamp() * 1000))}
        assert seconds_until_more(headers) == pytest.approx(100, abs=2)

    def test_precedence(self):
        assert retry_after({"retry-after-ms": "1500", "retry-after": "2"}) == 1.5
        spent = {"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "9"}
        assert retry_after(spent) == 9
        assert seconds_until_more({"x-ratelimit-remaining-tokens": "10", "x-ratelimit-reset-tokens": "6s"}) is None

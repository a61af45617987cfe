"""Decides when requests are sent to an endpoint.

Endpoints refuse requests (429, 503, 529) for three reasons: too many requests per second, too many requests at once, or
neither (for instance, gateways that share quotas with strangers). Only the first two are a reason to slow down, and a
refusal does not tell its reason. AIMD and CUBIC (RFC 9438), the AWS SDKs' adaptive retries and Netflix's concurrency
limits take every refusal for congestion, and so collapse if refusals are random, as TCP does under random loss.
Google's client-side throttling (SRE book, chapter 21) keeps the rate, but never finds a limit.

Therefore a refusal is an alarm, and an experiment finds the reason. Fewer requests are sent, and a sequential
probability ratio test (Wald, 1945) decides whether the share of refusals falls. If the share falls, there is a limit:
the reduced rate stays and grows slowly, later faster, like CUBIC. If the share does not fall, a second experiment at a
much lower rate excludes a limit that was hidden by a burst. Then the refusals count as noise, and the former rate
returns. For a minute, this share of noise is remembered, and only a larger share of refusals is an alarm.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from multidict import CIMultiDict

from nightjar.clients.failures import Failure, left_of, seconds_until_more
from nightjar.clients.token_quota import TokenQuota, announced_quota
from nightjar.core.calling.limits import Places

Endpoint: TypeAlias = tuple[str, int]
"""The base URL of an endpoint, and the hash of the key."""

_FIRST_CUT = 0.95
"""In the first experiment, the number of requests sent for each request that was accepted before."""
_SECOND_CUT = 0.85
_LOWEST_RATE = 0.2
_LONGEST_EXPERIMENT_SECONDS = 5.0
_SAMPLE_SECONDS = 5.0
_NOISE_SECONDS = 60.0
_FORGOTTEN_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 60.0
_LONGEST_QUOTA_SECONDS = 1.0
_MOST_CHANGES = 200
_STARTING = 64
"""The number of requests that are sent before the first alarm if no request was answered yet."""

_LEAST_NOISE = 0.003
"""The share of refusals up to which no experiment starts."""
_ALARM, _ALARM_WITH_NOISE = 3.2, 5.0
"""Evidence, in nats, that the share has tripled: three refusals in a row, or five if noise is known."""
_CALM = -2.0
"""Evidence, in nats, that ends a sample without an alarm."""
_NOISE_SHARE, _LIMIT_SHARE = 0.6, 0.1
"""The share of refusals in an experiment, relative to the share before, if noise or a limit is the reason.

The share before is overestimated, because an experiment begins when many requests were refused by chance.
"""
_LIMIT_FOUND, _NOISE_FOUND = 4.6, -3.0
"""Evidence for a limit, in nats, with error rates of 1 % and 5 %."""
_MOST_REFUSED = 8
"""The number of refusals after which a share above one half cannot be noise."""
_LEAST_EXPECTED = 2.0
"""The number of refusals that noise must have caused before the noise is accepted as the reason."""


@dataclass(slots=True)
class Sample:
    """Requests that were sent with the same limits. ``peak`` is the largest number in flight at any response."""

    since: float
    peak: float = 0.0
    sent: int = 0
    refused: int = 0


class _Limits(NamedTuple):
    """Requests in flight, requests per second, and the time since which both grow (None if they do not grow)."""

    in_flight: float = math.inf
    rate: float = math.inf
    grow_since: float | None = None

    def grown(self, now: float) -> _Limits:
        """Returns the current limits: 3 % more after 1 second, 50 % more after 5 seconds, 4 times after 10 seconds."""
        if self.grow_since is None:
            return self
        seconds = now - self.grow_since
        if seconds > _FORGOTTEN_SECONDS:
            return _Limits()
        growth = 1 + 0.02 * seconds + 0.003 * seconds**3
        return _Limits(self.in_flight * growth, self.rate * growth, now)


@dataclass(slots=True)
class _Experiment:
    """A trial of lower limits.

    ``sent`` and ``refused`` count earlier requests. If refusals are noise, the share of refusals does not change.
    """

    before: _Limits
    sent: int
    refused: int
    is_second: bool = False

    @property
    def share(self) -> float:
        """The share of refusals before, without the bias of counting until a request is refused."""
        return max(self.refused - 1, 1) / max(self.sent, 1)

    @property
    def highest_share(self) -> float:
        return (self.refused + 2) / max(self.sent, 1)


class _Meter:
    """Counts accepted requests in the last second."""

    def __init__(self) -> None:
        self._second = 0
        self._now = 0
        self._before = 0

    def add(self, count: int, now: float) -> None:
        if (second := int(now)) != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._now, self._second = 0, second
        self._now += count

    def rate(self, now: float) -> float:
        self.add(0, now)
        return self._now + self._before * (1 - now % 1)


class Pace:
    """How fast requests are sent to an endpoint.

    ``places`` limits the requests in flight. ``refused`` counts the requests that the endpoint refused as too many.
    ``noise`` is the share of refusals that does not depend on the rate. ``changes`` is the history of the limits. Each
    entry has the seconds since the first request, the largest number of requests in flight, and the largest number of
    requests per second. None means no limit.
    """

    def __init__(self) -> None:
        self.places = Places(0)
        self.refused = 0
        self.noise = 0.0
        self.changes: list[tuple[float, int | None, float | None]] = []
        self.latency_seconds: float | None = None
        self._ceiling = math.inf
        self._limits = _Limits()
        self._in_flight = 0
        self._recently_refused = 0.0
        self._began_at = time.monotonic()
        self._next_at = 0.0
        self._gate = asyncio.Lock()
        self._meter = _Meter()
        self._noise_until = 0.0
        self._sample = Sample(self._began_at)
        self._experiment: _Experiment | None = None
        self._quota: TokenQuota | None = None
        self._moving: set[str] = set()

    def allow(self, ceiling: float) -> None:
        """Limits the requests in flight. The largest limit of all callers is used."""
        self._ceiling = ceiling if self._ceiling == math.inf else max(self._ceiling, ceiling)
        self.places.set_ceiling(self._ceiling)

    @property
    def rate(self) -> float:
        """Requests per second that may be sent now."""
        return self._limits.grown(time.monotonic()).rate

    @property
    def is_healthy(self) -> bool:
        """Whether the endpoint answers and accepts most requests."""
        return self.latency_seconds is not None and self._recently_refused < 0.5  # noqa: PLR2004 - most

    def request(self) -> _Request:
        """Waits until a request may be sent. The request is in flight during the block, and belongs to the sample."""
        return _Request(self)

    async def _begin(self) -> Sample:
        await self.places.acquire()
        try:
            if self._limits.rate < math.inf or self._next_at or self._quota:
                await self._turn()
        except BaseException:
            self.places.release()
            raise
        sample, now = self._sample, time.monotonic()
        if not sample.sent:
            sample.since = now
        sample.sent += 1
        self._meter.add(1, now)
        self._in_flight += 1
        return sample

    def _end_request(self) -> None:
        self._in_flight -= 1
        self.places.release()

    def answered(self, sample: Sample, seconds: float) -> None:
        """Records a successful response and its latency. The request is no longer in flight."""
        known = self.latency_seconds
        self.latency_seconds = seconds if known is None else 0.9 * known + 0.1 * seconds
        self._recently_refused *= 0.95
        sample.peak = max(sample.peak, self._in_flight + 1)
        if self._limits.in_flight < self._ceiling:
            self._limit_in_flight()
        if sample is self._sample:
            self._judge()

    def failed(self, sample: Sample, failure: Failure) -> None:
        """Records a failure. The request is still in flight."""
        if not failure.is_overload:
            return
        self.refused += 1
        sample.refused += 1
        self._recently_refused = 0.95 * self._recently_refused + 0.05
        self._meter.add(-1, time.monotonic())
        if sample is self._sample:
            self._judge()
        elif self._experiment:
            self._hold_in_flight()

    def heard(self, headers: Mapping[str, Any]) -> None:
        """Reads the headers of a response, so that no request is sent before the endpoint accepts more requests."""
        if not _tell_limits(tuple(headers)):
            return
        headers = self._believable(headers)
        if seconds := seconds_until_more(headers):
            self._next_at = max(self._next_at, time.monotonic() + min(seconds, _LONGEST_PAUSE_SECONDS))
        if announced := announced_quota(headers):
            limit, remaining = announced
            if self._quota is None or self._quota.limit != limit:
                self._quota = TokenQuota(limit)
            self._quota.heard(remaining, max(0, self._in_flight - 1), time.monotonic())

    def _believable(self, headers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Leaves out what has always been 0 while nothing was refused: some servers always send 0."""
        left = {name: left_of(headers[name]) for name in headers if "remaining" in name.lower()}
        self._moving.update(name for name, amount in left.items() if amount)
        fixed = {name for name, amount in left.items() if not amount and name not in self._moving}
        if self.refused or not fixed:
            return headers
        return CIMultiDict((name, value) for name, value in headers.items() if name not in fixed)

    async def _turn(self) -> None:
        async with self._gate:  # one request waits for its time, the others for the gate, so a new rate holds at once
            while (now := time.monotonic()) < self._next_at:  # noqa: ASYNC110 - headers may move it
                await asyncio.sleep(self._next_at - now)
            while self._quota and (seconds := self._quota.seconds_until_free(time.monotonic())):  # noqa: ASYNC110 - a report may change it
                await asyncio.sleep(min(seconds, _LONGEST_QUOTA_SECONDS))
            self._next_at = now + 1 / self.rate

    def _judge(self) -> None:
        now = time.monotonic()
        if self._experiment is None:
            self._watch(self._sample, now)
        else:
            self._weigh(self._experiment, self._sample, now)

    def _watch(self, sample: Sample, now: float) -> None:
        """Starts an experiment if more requests are refused than the known noise explains."""
        if self.latency_seconds is None and sample.sent < min(self._ceiling, _STARTING):
            return
        evidence = math.log(3) * sample.refused - 2 * max(self.noise, _LEAST_NOISE) * sample.sent
        if evidence > (_ALARM_WITH_NOISE if self.noise else _ALARM):
            self._try_fewer(sample, now)
        elif evidence < _CALM or now - sample.since > _SAMPLE_SECONDS:
            self._sample = Sample(now, 0.9 * sample.peak)
            if now > self._noise_until:
                self.noise = 0.0

    def _weigh(self, experiment: _Experiment, sample: Sample, now: float) -> None:
        """Ends an experiment as soon as the evidence suffices."""
        expected = experiment.share * sample.sent
        evidence = (_NOISE_SHARE - _LIMIT_SHARE) * expected - math.log(_NOISE_SHARE / _LIMIT_SHARE) * sample.refused
        is_late = now - sample.since > _LONGEST_EXPERIMENT_SECONDS
        has_more = sample.refused > 2 * experiment.highest_share * sample.sent + 3
        is_most = sample.refused > sample.sent / 2 and (is_late or sample.refused > _MOST_REFUSED)
        if has_more or is_most:
            self._try_fewer(sample, now)
        elif evidence > _LIMIT_FOUND or (is_late and evidence > 0):
            self._end(self._limits._replace(grow_since=now), now)
        elif is_late or (evidence < _NOISE_FOUND and expected >= _LEAST_EXPECTED and self._is_seen(sample, now)):
            experiment.sent += sample.sent
            experiment.refused += sample.refused
            if experiment.is_second:
                self.noise, self._noise_until = experiment.refused / experiment.sent, now + _NOISE_SECONDS
                self._end(experiment.before, now)
            else:
                experiment.is_second = True
                self._cut_rate(sample, now, _SECOND_CUT)
                self._start_sample(sample, now)

    def _is_seen(self, sample: Sample, now: float) -> bool:
        """Whether requests of the sample had enough time to be answered."""
        return now - sample.since >= (self.latency_seconds or 1)

    def _try_fewer(self, sample: Sample, now: float) -> None:
        is_first = self._experiment is None
        before = self._limits.grown(now)
        self._experiment = _Experiment(before, sample.sent, sample.refused)
        self._limits = before._replace(grow_since=None)
        self._hold_in_flight()
        if sample.sent <= sample.refused and self._in_flight <= 1:
            self._limits = self._limits._replace(rate=max(_LOWEST_RATE, min(before.rate, 2.0) / 2))
        elif not is_first or now - sample.since >= 0.5:  # noqa: PLR2004 - a shorter sample says little about rates
            self._cut_rate(sample, now, _FIRST_CUT)
        self._start_sample(sample, now)

    def _cut_rate(self, sample: Sample, now: float, part: float) -> None:
        accepted, seconds = sample.sent - sample.refused, now - sample.since
        measured = self._meter.rate(now)
        if seconds >= 1:
            measured = min(measured, accepted / seconds)
        elif accepted >= 20 or self._is_seen(sample, now):  # noqa: PLR2004 - enough to count
            measured = accepted / seconds
        self._limits = self._limits._replace(rate=min(self._limits.rate, max(_LOWEST_RATE, part * measured)))

    def _hold_in_flight(self) -> None:
        """Limits the requests in flight to one less than now, or to 90 % of their recent peak if that is more.

        Never raises the limit.
        """
        accepted = max(self._in_flight - 1, 0.9 * self._sample.peak)
        if accepted >= 1:
            self._limits = self._limits._replace(in_flight=min(self._limits.in_flight, self.places.ceiling, accepted))
            self._limit_in_flight()

    def _limit_in_flight(self) -> None:
        self.places.set_ceiling(min(self._ceiling, self._limits.grown(time.monotonic()).in_flight))

    def _end(self, limits: _Limits, now: float) -> None:
        self._experiment, self._limits = None, limits
        self._limit_in_flight()
        self._start_sample(self._sample, now)

    def _start_sample(self, sample: Sample, now: float) -> None:
        self._sample = Sample(now, 0.9 * sample.peak)
        at_once = None if self.places.ceiling == math.inf else int(self.places.ceiling)
        rate = None if self._limits.rate == math.inf else round(self._limits.rate, 2)
        self.changes.append((round(now - self._began_at, 1), at_once, rate))
        if len(self.changes) > _MOST_CHANGES:
            del self.changes[1::2]


class _Request:
    """A context manager, because a generator would cost each request some microseconds."""

    __slots__ = ("_pace",)

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def __aenter__(self) -> Sample:
        return await self._pace._begin()  # noqa: SLF001 - a part of Pace

    async def __aexit__(self, *_: object) -> None:
        self._pace._end_request()  # noqa: SLF001 - a part of Pace


@lru_cache(maxsize=256)
def _tell_limits(names: tuple[str, ...]) -> bool:
    return any("remaining" in name.lower() for name in names)


_paces: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[Endpoint, Pace]] = WeakKeyDictionary()


def pace_of(endpoint: Endpoint) -> Pace:
    """Returns the pace of an endpoint, which all its clients in the running event loop share."""
    known = _paces.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return known.setdefault(endpoint, Pace())

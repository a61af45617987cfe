"""The engine, driven by hand-written rollouts and a recorder that keeps what it is given."""

import asyncio
import time

import pytest

from nightjar.engine import Engine, EngineOptions, Group, RetryPolicy
from nightjar.environments.rubrics import Rubric
from nightjar.errors import InfraError, ModelError, RunAbortedError, RunDirectoryError, ScoringError


class FakeRollouts:
    """Answers with the outcome that ``outcomes`` has for (example_id, rollout_index), in turn; else succeeds."""

    def __init__(self, make_state, outcomes=None):
        self.make_state, self.outcomes, self.started, self.gate = make_state, outcomes or {}, [], None
        self.in_flight = self.most_in_flight = 0

    def input(self, example_id, rollout_index):
        return {"prompt": [], "example_id": example_id, "rollout_index": rollout_index}

    async def new_state(self, rollout_input):
        return self.make_state(rollout_input["example_id"], rollout_input["rollout_index"])

    async def attempt(self, rollout_input):
        key = rollout_input["example_id"], rollout_input["rollout_index"]
        self.started.append(key)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (self.gate.wait() if self.gate else asyncio.sleep(0))
        finally:
            self.in_flight -= 1
        outcome = next(iter(self.outcomes.get(key, [])), None)
        self.outcomes[key] = self.outcomes.get(key, [])[1:]
        if outcome and not isinstance(outcome, ModelError | InfraError):
            raise outcome
        state = await self.new_state(rollout_input)
        state.update(error=outcome, completion=[])
        return state


class FakeRecorder:
    """Keeps what is finished, as (example_id, rollout_index, error)."""

    def __init__(self):
        self.attempts, self.groups, self.restored, self.states = [], [], [], []
        self.failure = None

    def check_writable(self):
        if self.failure:
            raise self.failure

    def attempted(self, state):
        self.attempts.append((*key(state), state["error"]))

    def scored(self, states):
        self.states.extend(states)
        self.groups.append([key(state) for state in states])

    def restore(self, state):
        self.restored.append(key(state))
        state["completion"] = ["restored"]
        return state


def key(state):
    return state["example_id"], state["input"]["rollout_index"]


@pytest.fixture
def recorder():
    return FakeRecorder()


@pytest.fixture
def engine_of(make_state, recorder):
    def make(outcomes=None, rubric=None, **options):
        rollouts, rubric = FakeRollouts(make_state, outcomes), rubric or Rubric([lambda state: 1.0])
        options = EngineOptions(**options)
        return Engine(rollouts=rollouts, rubric=rubric, recorder=recorder, options=options), rollouts

    return make


def groups(count, size=1):
    return [Group(number, tuple(range(size))) for number in range(count)]


async def run(engine, wanted):
    queue = asyncio.Queue()
    async with asyncio.timeout(60):
        await asyncio.gather(engine.generate(wanted, queue), engine.score(queue))


async def settled():
    """Lets everything go on that can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_every_rollout_is_attempted_recorded_and_scored(engine_of, recorder):
    engine, rollouts = engine_of({(2, 0): [ValueError("v")]}, Rubric([lambda state: state["example_id"]]))
    await run(engine, groups(3, 2))
    keys = [(example, index) for example in range(3) for index in range(2)]
    assert rollouts.started == keys
    assert sorted(key[:2] for key in recorder.attempts) == keys
    assert sorted(key for group in recorder.groups for key in group) == keys
    progress = engine.progress
    assert (progress.generated, progress.scored, progress.failed) == (6, 5, 1)
    assert (progress.reward_sum, progress.avg_reward) == (4.0, 0.8)


async def test_a_shard_starts_before_earlier_ones_end_and_generation_waits_for_slow_scoring(engine_of):
    engine, rollouts = engine_of(max_generating=4)
    rollouts.gate = asyncio.Event()
    tasks = [asyncio.create_task(engine.generate([Group(n, (0,))], asyncio.Queue())) for n in range(3)]
    await settled()
    assert rollouts.in_flight == 3
    rollouts.gate.set()
    await asyncio.gather(*tasks)
    engine, rollouts = engine_of(max_generating=2)
    other = asyncio.create_task(engine.score(others := asyncio.Queue()))
    generating = asyncio.create_task(engine.generate(groups(50), queue := asyncio.Queue()))
    await settled()
    assert len(rollouts.started) == 8, "four groups for each place"
    others.put_nowait(None)
    await asyncio.gather(generating, engine.score(queue), other)
    assert len(rollouts.started) == 50
    for is_interleaved in (True, False):
        engine, rollouts = engine_of(max_generating=2, is_interleaved=is_interleaved)
        await asyncio.wait_for(engine.generate(groups(50), queue := asyncio.Queue()), 60)
        assert len(rollouts.started) == 50
        await asyncio.wait_for(engine.score(queue), 60)


async def test_generation_and_scoring_stay_below_their_limits_which_a_rate_limit_lowers(engine_of):
    now = most = 0

    async def reward(state):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return 1.0

    engine, _ = engine_of(rubric=Rubric([reward]), max_scoring=2)
    await run(engine, groups(10))
    assert most == 2
    overloaded = ModelError("slow down")
    overloaded.status_code = 429
    engine, rollouts = engine_of({(number, 0): [overloaded] for number in range(8)}, max_generating=8)
    await run(engine, groups(8))
    rollouts.most_in_flight = 0
    await run(engine, groups(3))
    assert rollouts.most_in_flight < 4


async def test_every_attempt_is_recorded_and_only_the_failed_rollout_is_retried(engine_of, recorder):
    error = InfraError("sandbox gone")
    engine, rollouts = engine_of({(0, 1): [error, error]}, retry=RetryPolicy(max_retries=2, initial_seconds=0.0))
    await run(engine, groups(1, 3))
    assert sorted(rollouts.started) == [(0, 0), (0, 1), (0, 1), (0, 1), (0, 2)]
    assert [found for _, index, found in recorder.attempts if index == 1] == [error, error, None]
    assert (engine.progress.retries, engine.progress.scored, engine.progress.failed) == (2, 3, 0)


async def test_a_rubric_that_raises_costs_its_group(engine_of, recorder):
    class Broken(Rubric):
        async def score_group(self, states):
            if states[0]["example_id"] == 0:
                raise LookupError("no such word")
            await super().score_group(states)

    engine, _ = engine_of(rubric=Broken([lambda state: 1.0]))
    await run(engine, groups(2))
    failed, scored = sorted(recorder.states, key=key)
    assert (type(failed["error"]), failed["reward"], scored["reward"]) == (ScoringError, None, 1.0)


async def test_refused_credentials_stop_the_run_and_the_rest_can_be_generated_later(engine_of, recorder):
    refused = Exception("Incorrect API key")
    refused.status_code = 401
    engine, rollouts = engine_of({(number, 0): [refused] for number in range(5)}, max_generating=1)
    queue = asyncio.Queue()
    scoring = asyncio.ensure_future(engine.score(queue))
    for shard in (groups(12), [Group(50, (0,))]):
        with pytest.raises(RunAbortedError, match="Incorrect API key"):
            await engine.generate(shard, queue)
    assert len(rollouts.started) <= 6
    engine.forget_failures()
    async with asyncio.timeout(60):
        await engine.generate(groups(50)[12:], queue)  # no place in the backlog was lost
        await scoring
    assert len(recorder.groups) == 5 + 38


async def test_a_recorder_that_cannot_write_stops_the_run_and_no_rollout_starts_afterwards(engine_of, recorder):
    """The lines of attempts that end together are written together. Each of them frees a place."""

    def attempted(state):
        raise RunDirectoryError("Cannot write: No space left on device")

    def fail():
        recorder.failure = RunDirectoryError("Cannot write: No space left on device")

    for recorder.attempted in (attempted, lambda _: asyncio.get_running_loop().call_soon(fail)):
        engine, rollouts = engine_of(max_generating=4)
        rollouts.gate = asyncio.Event()
        generating = asyncio.create_task(engine.generate(groups(12), asyncio.Queue()))
        await settled()
        rollouts.gate.set()
        with pytest.raises(RunDirectoryError, match="No space left"):
            await generating
        assert len(rollouts.started) == 4


async def test_restored_rollouts_are_scored_with_new_ones_and_without_a_request(engine_of, recorder):
    def reward(states):
        time.sleep(0.01)
        seen.extend(state["completion"] for state in states)
        return [1.0] * len(states)

    for example, new, restored in ((3, (), (0, 1)), (4, (1,), (0, 2))):
        seen, indexes = [], sorted([*new, *restored])
        engine, rollouts = engine_of(rubric=Rubric([reward]))
        await run(engine, [Group(example, new, restored)])
        assert rollouts.started == [(example, n) for n in new]
        assert [key for key in recorder.restored if key[0] == example] == [(example, n) for n in restored]
        assert seen == [["restored"] if n in restored else [] for n in indexes]
        assert recorder.groups[-1] == [(example, n) for n in indexes]
    assert recorder.states[0]["timing"]["scoring_ms"] >= 10

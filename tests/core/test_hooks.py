"""Hooks of environments: sync or async, with the arguments they name, within their time; their faults stay theirs."""

import asyncio
import functools
import itertools
import sys
import threading
import time
import types
from contextlib import suppress

import pytest
from drawing import drawn

from nightjar.core.calling.decorators import cleanup, decorated_methods, stop, teardown
from nightjar.core.messages import UserMessage
from nightjar.core.rollout.state import State
from nightjar.environments import MultiTurnEnv, SingleTurnEnv, tear_down
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ConfigError, InfraError, ModelError

DATASET = [{"question": "2+2?", "answer": "4"}]


class Talk(MultiTurnEnv):
    """Says ``go on``; ends after three turns unless told otherwise."""

    def __init__(self, **kwargs):
        super().__init__(**{"dataset": DATASET, "max_turns": 3} | kwargs)

    async def env_response(self, messages, state, **kwargs):
        return [UserMessage(content="go on")]


def as_async(hook):
    @functools.wraps(hook)
    async def hook_(*args, **kwargs):
        return hook(*args, **kwargs)

    return hook_


def hanging():
    """Returns a new hook that never returns: decorators mark the function itself."""

    async def hangs(self, *args):
        await asyncio.Event().wait()

    return hangs


def failing(error):
    def fails(self, *args):
        raise error

    return fails


def talk(kind=Talk, /, **hooks):
    return type("Hooked", (kind,), hooks)


@pytest.fixture
def play(attempt):
    """Makes one attempt at the first example, against a client with these answers; returns the state."""

    async def play(env, *answers):
        async with asyncio.timeout(60):
            return (await attempt(env, *(answers or ("a",))))[0]

    return play


@pytest.fixture
def evaluate(scripted_client):
    async def evaluate(env, *answers, **how):
        async with asyncio.timeout(60):
            return (await env.evaluate(scripted_client(*(answers or ("a",))), "m", **how))["outputs"]

    return evaluate


class Sync(Talk):
    def setup_state(self, state):
        state["log"] = ["setup"]

    def env_response(self, messages, state):
        state["log"].append("response")
        return [UserMessage(content="go on")]

    def add_trajectory_step(self, state, trajectory_step):
        trajectory_step["extras"]["number"] = len(state["trajectory"])
        state["trajectory"].append(trajectory_step)

    @stop
    def two_turns(self, state):
        return len(state["trajectory"]) == 2

    @cleanup
    def wipe(self, state):
        state["log"].append("wiped")


Async = type("Async", (Talk,), {name: as_async(hook) for name, hook in vars(Sync).items() if callable(hook)})


@pytest.mark.parametrize("kind", [Async, Sync])
async def test_every_hook_may_be_sync_or_async(play, kind):
    state = await play(kind())
    assert state["log"] == ["setup", "response", "wiped"]
    assert [step["extras"]["number"] for step in state["trajectory"]] == [0, 1]
    assert (state["stop_condition"], state["error"]) == ("two_turns", None)


async def test_whole_hooks_of_the_turn_may_be_sync(play):
    class Whole(Talk):
        def get_prompt_messages(self, state):
            return [UserMessage(content=f"question {len(state['trajectory'])}")]

        def render_completion(self, state):
            state["completion"] = [UserMessage(content=f"{len(state['trajectory'])} turns")]

        def add_model_response(self, state, prompt_messages, response):
            state["trajectory"].append({"prompt": prompt_messages, "completion": [], "is_truncated": False})

    state = await play(Whole())
    assert [step["prompt"][0].content for step in state["trajectory"]] == [f"question {n}" for n in range(3)]
    assert state["completion"] == [{"role": "user", "content": "3 turns"}]


async def test_hooks_that_block_do_not_stall_other_rollouts(evaluate):
    together = threading.Barrier(8)  # passes only when eight hooks wait in it at once

    def wait(self, *args):
        together.wait(timeout=60)

    def answer(self, messages, state):
        return wait(self) or "go on"

    marked = {"stops": stop(lambda self, state: wait(self)), "closes": cleanup(lambda self, state: wait(self))}
    env = talk(setup_state=wait, env_response=answer, **marked)(dataset=DATASET * 8, max_turns=2)
    assert [row["error"] for row in await evaluate(env)] == [None] * 8


def test_hooks_run_by_priority_and_name_with_inherited_ones_that_are_not_overridden():
    def kind(parent, **marks):
        methods = {name: mark(types.FunctionType(hook.__code__, {}, name)) for name, mark in marks.items()}
        return type("Kind", (parent,), methods)

    def hook(self, state): ...

    def names(owner, mark):
        return [method.__name__ for method in decorated_methods(owner(), f"{mark}_priority")]

    first, last = stop(priority=10), stop(priority=-1)
    parent = kind(object, zebra=stop, first=first, apple=stop, last=last, close=cleanup(priority=5), leave=teardown())
    child = kind(parent, mango=stop, apple=lambda method: method)
    assert names(parent, "stop") == ["first", "apple", "zebra", "last"]
    assert names(child, "stop") == ["first", "mango", "zebra", "last"]
    assert (names(child, "cleanup"), names(child, "teardown")) == (["close"], ["leave"])


@pytest.mark.parametrize("kind", [State, dict])
async def test_setup_state_may_return_another_state_or_a_plain_dict(play, kind):
    def setup_state(self, state):
        return kind({**state, "board": 1})

    for hook in (setup_state, as_async(setup_state)):
        state = await play(talk(setup_state=hook)(max_turns=1))
        assert (state["board"], len(state["trajectory"])) == (1, 1)


async def test_changes_of_another_state_to_its_input_are_known(play):
    def setup_state(self, state):
        copied = State({**state, "input": dict(state["input"])})
        copied["answer"] = "5"
        return copied

    state = await play(talk(setup_state=setup_state)())
    assert state.changed_input() == {"answer": "5"}


@pytest.mark.parametrize("is_async", [True, False])
async def test_hooks_get_the_arguments_that_they_name(play, is_async):
    async def given(mark, hook):
        seen = []

        @functools.wraps(hook)
        def recorded(*args, **kwargs):
            seen.append(hook(*args, **kwargs))

        env = talk(hook=mark(as_async(recorded) if is_async else recorded))()
        state = await play(env)
        await tear_down(env)
        names = {id(state): "state", id(env): "env"}
        return [names.get(id(value), value) for value in seen[0]]

    for mark, hook, expected in [
        (stop, lambda self, state: [state], ["state"]), (stop, lambda self, other_name: [other_name], ["state"]),
        (stop, lambda self, env, state: [env, state], ["env", "state"]),
        (stop, lambda self, **kwargs: sorted(kwargs), ["env", "state"]),
        (stop, lambda self, state, limit=1: [state, limit], ["state", 1]), (stop, lambda self: [], []),
        (cleanup, lambda self, resources, task, state, env: [resources, task, state], [None, None, "state"]),
        (cleanup, lambda self, other_name: [other_name], ["state"]), (cleanup, lambda self, env: [env], ["env"]),
        (cleanup, lambda self: [], []), (teardown, lambda self, env: [env], ["env"]),
        (teardown, lambda self, **kwargs: sorted(kwargs), ["env"]), (teardown, lambda self: [], []),
    ]:  # fmt: skip
        assert await given(mark, hook) == expected


async def test_arguments_of_a_cleanup_are_passed_on():
    seen = []

    class Cleaning(SingleTurnEnv):
        @cleanup(priority=200)
        async def note(self, task, resources):
            seen.append((task, resources))

    with suppress(KeyError):  # this state is not of a rollout
        await Cleaning(dataset=DATASET).cleanup(State(), task="a task", resources="a sandbox")
    assert seen == [("a task", "a sandbox")]


async def test_hooks_may_be_static_and_class_methods(play):
    class Static(Talk):
        @staticmethod
        @stop
        def one_turn(state):
            return len(state["trajectory"]) == 1

        @classmethod
        @cleanup
        def wipe(cls, state):
            state["wiped_by"] = cls.__name__

    state = await play(Static())
    assert (state["stop_condition"], state["wiped_by"]) == ("one_turn", "Static")


@pytest.mark.parametrize("name", ["a stop condition", "setup_state", "env_response", "add_model_response"])
async def test_a_hook_that_hangs_is_an_error_of_the_rollout(play, name):
    released = threading.Event()

    def hang_in_a_thread(self, *args, **kwargs):
        released.wait(60)

    for hook in (hanging(), hang_in_a_thread):
        members = {"hangs": stop(hook)} if name == "a stop condition" else {name: hook}
        state = await play(talk(**members)(hook_timeout_seconds=0.02, timeout_seconds=60))
        assert (type(state["error"]), state.get("timed_out")) == (TimeoutError, None)
        assert str(state["error"]) == f"{name} took longer than 0.02 s (hook_timeout_seconds)"
        assert (state["stop_condition"], state["is_completed"]) == ("has_error", True)
    released.set()


async def test_a_cleanup_that_hangs_does_not_keep_the_others_from_running(play):
    ran = []
    hooks = {"a": cleanup(priority=3)(hanging()), "b": cleanup(priority=1)(lambda self, state: ran.append("b"))}
    state = await play(talk(**hooks)(hook_timeout_seconds=0.5))
    assert ran == ["b"]
    assert "a clean-up took longer than 0.5 s" in str(state["error"])


@pytest.mark.parametrize(
    ("first", "told"), [(hanging(), "The teardown hangs of environment"), (failing(SystemExit(3)), "SystemExit")]
)
async def test_a_teardown_that_hangs_or_exits_does_not_keep_the_others_from_running(caplog, first, told):
    ran = []
    hooks = {"a": teardown(priority=1)(first), "b": teardown(lambda self: ran.append("b"))}
    async with asyncio.timeout(60):
        await tear_down(talk(**hooks)(hook_timeout_seconds=0.5))
    assert ran == ["b"]
    assert told in caplog.text


async def test_model_calls_are_not_hooks_and_none_is_no_limit(play):
    async def slow(prompt):
        await asyncio.sleep(0.05)
        return "a"

    for seconds in (0.02, None):
        assert (await play(Talk(hook_timeout_seconds=seconds, max_turns=1), slow))["error"] is None


async def test_a_timeout_of_the_hook_s_own_keeps_its_message(play):
    own = talk(env_response=failing(TimeoutError("the board does not answer")))
    state = await play(own(hook_timeout_seconds=5))
    assert str(state["error"]) == "the board does not answer"


async def test_other_rollouts_continue_when_a_hook_hangs(evaluate):
    async def one_hangs(self, messages, state):
        return await hanging()(self) if state["example_id"] == 1 else "go on"

    rows = await evaluate(talk(env_response=one_hangs)(dataset=DATASET * 4, hook_timeout_seconds=0.05))
    assert [row["example_id"] for row in rows if row["error"]] == [1]


async def test_at_a_timeout_the_conversation_so_far_is_scored_without_an_error(evaluate):
    released = threading.Event()
    for hook in (hanging(), lambda self, messages, state: released.wait(60)):
        rubric = Rubric(funcs=[lambda completion: float(len(completion))])
        env = talk(env_response=hook)(timeout_seconds=1, rubric=rubric)
        [row] = await evaluate(env, state_columns=["timed_out", "stop_condition"])
        assert (row["error"], row["reward"], row["stop_condition"]) == (None, 1.0, "timeout_reached")
        assert (row["timed_out"], row["is_completed"]) == (True, True)
    released.set()


async def test_a_hook_that_swallows_the_timeout_does_not_run_for_ever(play):
    async def swallow(self, messages, state):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
        return "go on"

    state = await play(talk(env_response=swallow)(timeout_seconds=0.05, max_turns=-1))
    assert (state["stop_condition"], state["error"]) == ("timeout_reached", None)


@pytest.mark.parametrize("where", ["object", "subclass", "base"])
async def test_a_hook_that_is_replaced_after_the_first_rollout_is_called(play, where):
    kind, called = talk(), []
    env = kind(max_turns=1)
    await play(env)

    def noting(name):
        usual = getattr(MultiTurnEnv, name)

        @functools.wraps(usual)
        async def noting(self, *args, **kwargs):
            called.append(name)
            return await usual(self, *args, **kwargs)

        return types.MethodType(noting, env) if where == "object" else noting

    for name in (
        "add_model_response", "add_trajectory_step", "cleanup", "get_prompt_messages", "is_completed",
        "render_completion", "render_state", "setup_state",
    ):  # fmt: skip
        called.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr({"object": env, "subclass": kind, "base": MultiTurnEnv}[where], name, noting(name))
            assert (await play(env))["error"] is None
        assert set(called) == {name}


async def test_the_clean_up_of_a_rubric_may_be_replaced(evaluate):
    env, cleaned = Talk(max_turns=1), []

    async def note(state):
        cleaned.append(state["example_id"])

    env.rubric.cleanup = note
    await evaluate(env)
    assert cleaned == [0]


class Counting(Talk):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.cleaned = []

    @cleanup
    async def count(self, state):
        self.cleaned.append(state["example_id"])


async def test_cleanup_runs_once_after_an_error_or_a_timeout(play):
    for hooks, answer, error in [
        *(({hook: failing(InfraError("broken"))}, "a", InfraError)
          for hook in ("setup_state", "env_response", "add_trajectory_step")),
        ({}, ModelError("down"), ModelError), ({"env_response": hanging()}, "a", type(None)),
    ]:  # fmt: skip
        env = talk(Counting, **hooks)(timeout_seconds=0.02 if error is type(None) else None)
        state = await play(env, answer)
        assert (env.cleaned, type(state["error"])) == ([0], error)


async def test_cleanup_runs_after_each_repeated_attempt(evaluate, no_waiting):
    env = Counting(max_turns=1)
    await evaluate(env, InfraError("broken"), InfraError("broken"), "a", max_retries=2)
    assert env.cleaned == [0, 0, 0]


@pytest.mark.parametrize("where", ["setup_state", "env_response", "a clean-up", "a hook that swallows it"])
async def test_cleanup_runs_once_after_a_cancellation(scripted_client, where):
    reached = asyncio.Event()

    async def wait(self, *args):
        reached.set()
        await asyncio.Event().wait()

    async def swallow(self, messages, state):
        reached.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.01)
        return "go on"

    members = {where: wait}
    if where == "a clean-up":
        members = {"waits": cleanup(priority=1)(wait)}
    elif where == "a hook that swallows it":
        members = {"env_response": swallow}
    env = talk(Counting, **members)(max_turns=-1 if where == "a hook that swallows it" else 3)
    running = asyncio.create_task(env.evaluate(scripted_client("a"), "m"))
    await asyncio.wait_for(reached.wait(), 60)
    running.cancel()
    await asyncio.wait([running], timeout=60)
    assert running.cancelled()
    assert env.cleaned == [0]


async def test_all_cleanups_run_although_one_raises(play):
    for raised in (OSError("disk"), SystemExit(3), MemoryError(), RecursionError()):
        for fail in (failing(raised), as_async(failing(raised))):
            env = talk(Counting, handler=cleanup(priority=1)(fail))()
            state = await play(env)
            assert env.cleaned == [0]
            assert type(raised) in {type(state["error"]), type(state["error"].__cause__)}


async def test_a_rubric_s_handlers_all_run_within_their_time_and_cost_their_rollout_alone(evaluate):
    async def hangs(self, state):
        await asyncio.sleep(10 * (state["example_id"] == 0))

    def leaves(self, state):
        if state["example_id"] == 1:
            raise SystemExit(3)

    ran = []
    handlers = {
        "hangs": cleanup(priority=2)(hangs), "leaves": cleanup(priority=1)(leaves),
        "runs": cleanup(lambda self, state: ran.append(state["example_id"])),
    }  # fmt: skip
    rubric = talk(Rubric, **handlers)(funcs=[lambda completion: 1.0])
    rubric.set_timeout_seconds(0.05)
    rows = await evaluate(SingleTurnEnv(dataset=DATASET * 3, rubric=rubric))
    assert (sorted(ran), [row["reward"] for row in rows]) == ([0, 1, 2], [None, None, 1.0])
    assert "took longer than 0.05 s" in rows[0]["error"]["message"]
    assert rows[1]["error"]["error"] == "ScoringError"


class Shy(Exception):  # noqa: N818 - user code does
    def __str__(self):
        raise RuntimeError("no")


def recurse():
    return recurse() + 1


def raise_(error):
    raise error


RAISING = {
    "MemoryError": lambda: bytearray(10**15), "RecursionError": recurse, "SystemExit": lambda: sys.exit("enough"),
    "a base exception": lambda: raise_(type("Odd", (BaseException,), {})()), "no words": lambda: raise_(Exception()),
    "no text": lambda: raise_(Shy()), "the end of a task": lambda: raise_(asyncio.CancelledError()),
}  # fmt: skip
RAISING_HOOKS = ("setup_state", "env_response", "stop", "cleanup", "reward")


@pytest.mark.parametrize(("raised", "hook"), drawn(itertools.product(RAISING, RAISING_HOOKS), 10))
async def test_whatever_a_hook_raises_costs_its_rollout_alone(evaluate, raised, hook):
    def act(self, state):
        if state["example_id"] == 2:
            RAISING[raised]()

    def answer(self, messages, state):
        return act(self, state) or "go on"

    members = {
        "env_response": {"env_response": as_async(answer)}, "setup_state": {"setup_state": as_async(act)},
        "stop": {"handler": stop(as_async(act))}, "cleanup": {"handler": cleanup(as_async(act))}, "reward": {},
    }  # fmt: skip
    rubric = Rubric(funcs=[as_async(lambda state: act(None, state) or 1.0)] if hook == "reward" else [])
    rows = await evaluate(talk(**members[hook])(dataset=DATASET * 4, rubric=rubric))
    assert [row["example_id"] for row in rows if row["error"]] == [2]
    assert rows[2]["reward"] is None
    assert "RAISING[raised]()" in rows[2]["error"]["traceback"]


@pytest.mark.parametrize("hook", ["env_response", "get_prompt_messages"])
async def test_nonsense_of_a_hook_is_named(play, hook):
    for nonsense, shown in [
        (None, "None"), (7, "7"), (object(), "<object object"),
        ({"role": "user", "content": "x"}, "{'role': 'user', 'content': 'x'}"), ([1, 2], "1"), ([None], "None"),
        (["x"], "'x'"), ([{"content": "x"}], "{'content': 'x'}"),
        ([{"role": "wizard", "content": "x"}], "wizard"), ([{"role": "user", "content": 7}], "content"),
    ]:  # fmt: skip
        error = (await play(talk(**{hook: lambda self, *args, nonsense=nonsense: nonsense})()))["error"]
        assert isinstance(error, ConfigError)
        assert shown in str(error)

    def final(self, messages, state):
        state["final_env_response"] = 7
        return []

    assert isinstance((await play(talk(env_response=final)()))["error"], ConfigError)


async def test_a_huge_text_is_a_text_and_other_huge_values_are_shown_in_part(play, evaluate):
    huge = "x" * 200_000
    state = await play(talk(env_response=lambda self, messages, state: huge)(max_turns=2))
    assert (state["error"], len(state["trajectory"])) == (None, 2)
    nonsense = [{"role": "wizard", "content": huge}]
    [row] = await evaluate(talk(env_response=lambda self, messages, state: nonsense)())
    assert len(row["error"]["message"]) < 1_000
    [row] = await evaluate(talk(env_response=failing(ValueError(huge)))())
    assert all(len(text or "") < 100_000 for text in row["error"].values())
    assert "raise error" in row["error"]["traceback"]


def delete(*names):
    def deed(state):
        for name in names:
            del state[name]

    return deed


def put(**values):
    def deed(state):
        state.update(values)

    return deed


def circle(state):
    state["info"] = info = {}
    info["info"] = info


class Unwritable:
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


DEEDS = {
    "deleted trajectory": delete("trajectory"), "deleted timing": delete("timing"), "deleted error": delete("error"),
    "deleted input": delete("input"), "deleted usage": delete("usage", "usage_tracker"),
    "deleted everything": lambda state: state.clear(), "no trajectory": put(trajectory=None),
    "a trajectory of numbers": put(trajectory=[1, 2]), "no timing": put(timing=None), "no input": put(input=None),
    "an odd prompt": lambda state: state.__setitem__("prompt", 7),
    "an odd example id": lambda state: state.__setitem__("example_id", "x"),
    "an odd error": put(error={"error": "it went wrong"}), "an odd text as error": put(error="it went wrong"),
    "an unwritable answer": lambda state: state["input"].__setitem__("answer", Unwritable()),
    "an unwritable key": put(thing=Unwritable()), "a circle": circle,
}  # fmt: skip


@pytest.mark.parametrize(("deed", "is_saved"), drawn(itertools.product(DEEDS, [True, False]), 12))
async def test_a_broken_state_costs_at_most_its_rollout(evaluate, tmp_path, deed, is_saved):
    cleaned = []

    class Careless(Talk):
        async def env_response(self, messages, state):
            if state["example_id"] == 1:
                DEEDS[deed](state)
            return "go on"

        @cleanup
        async def count(self, state):
            cleaned.append(None)

    env = Careless(dataset=[{**DATASET[0], "info": {}}] * 3, rubric=Rubric(funcs=[lambda completion: 1.0]))
    rows = await evaluate(env, results_path=tmp_path if is_saved else None, state_columns=["thing"])
    assert [row["example_id"] for row in rows] == [0, 1, 2]
    assert {row["example_id"] for row in rows if row["error"]} <= {1}
    assert [rows[0]["reward"], rows[2]["reward"]] == [1.0, 1.0]
    assert len(cleaned) == 3


async def test_time_in_hooks_is_noted(play):
    class Slow(Talk):
        def setup_state(self, state):
            time.sleep(0.01)

        async def env_response(self, messages, state):
            await asyncio.sleep(0.01)
            return "go on"

    timing = (await play(Slow()))["timing"]
    assert timing.setup.duration >= 0.01
    assert [span.duration >= 0.01 for span in timing.env.spans] == [True, True]
    assert len(timing.model.spans) == 3
    assert timing["generation_ms"] >= 30

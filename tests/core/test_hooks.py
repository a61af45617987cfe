"""Hooks of environments: sync or async, with the arguments they name, within their time; their faults stay theirs."""

import asyncio
import functools
import sys
import threading
import time
import types
from contextlib import suppress

import pytest

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


class TestSyncAndAsync:
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
    async def test_every_hook(self, play, kind):
        state = await play(kind())
        assert state["log"] == ["setup", "response", "wiped"]
        assert [step["extras"]["number"] for step in state["trajectory"]] == [0, 1]
        assert (state["stop_condition"], state["error"]) == ("two_turns", None)

    async def test_whole_hooks_of_the_turn_may_be_sync(self, play):
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

    async def test_sync_hooks_run_in_threads_and_async_ones_in_the_event_loop(self, play):
        class Where(self.Sync):
            @stop(priority=1)
            async def in_the_loop(self, state):
                state["loop"] = threading.current_thread()
                return False

            @stop(priority=1)
            def in_a_thread(self, state):
                state["thread"] = threading.current_thread()
                return False

        state = await play(Where())
        assert state["loop"] is threading.current_thread()
        assert state["thread"] is not threading.current_thread()

    async def test_hooks_that_block_do_not_stall_other_rollouts(self, evaluate):
        together = threading.Barrier(8)  # passes only when eight hooks wait in it at once

        class Blocking(Talk):
            def setup_state(self, state):
                together.wait(timeout=60)

            def env_response(self, messages, state):
                together.wait(timeout=60)
                return "go on"

            @cleanup
            def close(self, state):
                together.wait(timeout=60)

        rows = await evaluate(Blocking(dataset=DATASET * 8, max_turns=2))
        assert [row["error"] for row in rows] == [None] * 8


class TestOrder:
    def test_is_by_priority_and_name_with_inherited_methods_that_are_not_overridden(self):
        def kind(parent, **marks):
            methods = {name: mark(types.FunctionType(hook.__code__, {}, name)) for name, mark in marks.items()}
            return type("Kind", (parent,), methods)

        def hook(self, state): ...

        def names(owner, mark):
            return [method.__name__ for method in decorated_methods(owner(), f"{mark}_priority")]

        first, last = stop(priority=10), stop(priority=-1)
        parent = kind(
            object, zebra=stop, first=first, apple=stop, last=last, close=cleanup(priority=5), leave=teardown()
        )
        child = kind(parent, mango=stop, apple=lambda method: method)
        assert names(parent, "stop") == ["first", "apple", "zebra", "last"]
        assert names(child, "stop") == ["first", "mango", "zebra", "last"]
        assert (names(child, "cleanup"), names(child, "teardown")) == (["close"], ["leave"])


class TestSetupState:
    @pytest.mark.parametrize("is_async", [True, False])
    @pytest.mark.parametrize("kind", [State, dict])
    async def test_may_return_another_state_or_a_plain_dict(self, play, is_async, kind):
        def setup_state(self, state):
            return kind({**state, "board": 1})

        state = await play(talk(setup_state=as_async(setup_state) if is_async else setup_state)(max_turns=1))
        assert (state["board"], len(state["trajectory"])) == (1, 1)

    async def test_what_another_state_changed_in_its_input_is_known(self, play):
        def setup_state(self, state):
            copied = State({**state, "input": dict(state["input"])})
            copied["answer"] = "5"
            return copied

        state = await play(talk(setup_state=setup_state)())
        assert state.changed_input() == {"answer": "5"}


class TestArguments:
    """Stop conditions, cleanups and teardowns take what they name."""

    @pytest.mark.parametrize(
        ("mark", "hook", "given"),
        [
            (stop, lambda self, state: [state], ["state"]), (stop, lambda self, other_name: [other_name], ["state"]),
            (stop, lambda self, env, state: [env, state], ["env", "state"]),
            (stop, lambda self, **kwargs: sorted(kwargs), ["env", "state"]),
            (stop, lambda self, state, limit=1: [state, limit], ["state", 1]), (stop, lambda self: [], []),
            (cleanup, lambda self, resources, task, state, env: [resources, task, state], [None, None, "state"]),
            (cleanup, lambda self, other_name: [other_name], ["state"]), (cleanup, lambda self, env: [env], ["env"]),
            (cleanup, lambda self: [], []), (teardown, lambda self, env: [env], ["env"]),
            (teardown, lambda self, **kwargs: sorted(kwargs), ["env"]), (teardown, lambda self: [], []),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("is_async", [True, False])
    async def test_are_those_that_the_hook_names(self, play, mark, hook, given, is_async):
        seen = []

        @functools.wraps(hook)
        def recorded(*args, **kwargs):
            seen.append(hook(*args, **kwargs))

        env = talk(hook=mark(as_async(recorded) if is_async else recorded))()
        state = await play(env)
        await tear_down(env)
        names = {id(state): "state", id(env): "env"}
        assert [names.get(id(value), value) for value in seen[0]] == given

    async def test_of_a_cleanup_are_passed_on(self):
        seen = []

        class Cleaning(SingleTurnEnv):
            @cleanup(priority=200)
            async def note(self, task, resources):
                seen.append((task, resources))

        with suppress(KeyError):  # this state is not of a rollout
            await Cleaning(dataset=DATASET).cleanup(State(), task="a task", resources="a sandbox")
        assert seen == [("a task", "a sandbox")]

    async def test_static_and_class_methods(self, play):
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


class TestHookTimeout:
    """``hook_timeout_seconds`` bounds every call of environment code; a longer one is an error of the rollout."""

    @pytest.mark.parametrize(
        ("name", "method"),
        [
            ("a stop condition", "is_completed"), ("setup_state", "setup_state"), ("env_response", "env_response"),
            ("add_model_response", "add_model_response"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("is_async", [True, False])
    async def test_a_hook_that_hangs(self, play, name, method, is_async):
        released = threading.Event()

        def hang_in_a_thread(self, *args, **kwargs):
            released.wait(60)

        hook = hanging() if is_async else hang_in_a_thread
        members = {"hangs": stop(hook)} if name == "a stop condition" else {method: hook}
        state = await play(talk(**members)(hook_timeout_seconds=0.02))
        released.set()
        assert isinstance(state["error"], TimeoutError)
        assert str(state["error"]) == f"{name} took longer than 0.02 s (hook_timeout_seconds)"
        assert (state["stop_condition"], state["is_completed"]) == ("has_error", True)

    async def test_a_cleanup_that_hangs_does_not_keep_the_others_from_running(self, play):
        ran = []
        hooks = {"a": cleanup(priority=3)(hanging()), "b": cleanup(priority=1)(lambda self, state: ran.append("b"))}
        state = await play(talk(**hooks)(hook_timeout_seconds=0.02))
        assert ran == ["b"]
        assert "a clean-up took longer than 0.02 s" in str(state["error"])

    @pytest.mark.parametrize(
        ("first", "told"), [(hanging(), "The teardown hangs of environment"), (failing(SystemExit(3)), "SystemExit")]
    )
    async def test_a_teardown_that_hangs_or_exits_does_not_keep_the_others_from_running(self, caplog, first, told):
        ran = []
        hooks = {"a": teardown(priority=1)(first), "b": teardown(lambda self: ran.append("b"))}
        async with asyncio.timeout(60):
            await tear_down(talk(**hooks)(hook_timeout_seconds=0.02))
        assert ran == ["b"]
        assert told in caplog.text

    @pytest.mark.parametrize("seconds", [0.02, None])
    async def test_model_calls_are_not_hooks_and_none_is_no_limit(self, play, seconds):
        async def slow(prompt):
            await asyncio.sleep(0.05)
            return "a"

        assert (await play(Talk(hook_timeout_seconds=seconds, max_turns=1), slow))["error"] is None

    async def test_a_timeout_of_the_hook_s_own_keeps_its_message(self, play):
        own = talk(env_response=failing(TimeoutError("the board does not answer")))
        state = await play(own(hook_timeout_seconds=5))
        assert str(state["error"]) == "the board does not answer"

    async def test_other_rollouts_continue(self, evaluate):
        async def one_hangs(self, messages, state):
            return await hanging()(self) if state["example_id"] == 1 else "go on"

        rows = await evaluate(talk(env_response=one_hangs)(dataset=DATASET * 4, hook_timeout_seconds=0.05))
        assert [row["example_id"] for row in rows if row["error"]] == [1]


class TestRolloutTimeout:
    """``timeout_seconds`` ends a rollout without an error; what was said until then is scored."""

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_the_conversation_so_far_is_scored(self, evaluate, is_async):
        released = threading.Event()
        hook = hanging() if is_async else lambda self, messages, state: released.wait(60)
        rubric = Rubric(funcs=[lambda completion: float(len(completion))])
        env = talk(env_response=hook)(timeout_seconds=0.5, rubric=rubric)
        [row] = await evaluate(env, state_columns=["timed_out", "stop_condition"])
        released.set()
        assert (row["error"], row["reward"], row["stop_condition"]) == (None, 1.0, "timeout_reached")
        assert (row["timed_out"], row["is_completed"]) == (True, True)

    async def test_a_hook_that_swallows_the_timeout_does_not_run_for_ever(self, play):
        async def swallow(self, messages, state):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
            return "go on"

        state = await play(talk(env_response=swallow)(timeout_seconds=0.05, max_turns=-1))
        assert (state["stop_condition"], state["error"]) == ("timeout_reached", None)

    async def test_the_hook_timeout_comes_first_where_it_is_shorter(self, play):
        state = await play(talk(env_response=hanging())(timeout_seconds=5, hook_timeout_seconds=0.02))
        assert (type(state["error"]), state.get("timed_out")) == (TimeoutError, None)


class TestReplacedHooks:
    """A hook counts wherever and whenever it was replaced."""

    HOOKS = (
        "add_model_response", "add_trajectory_step", "cleanup", "get_prompt_messages", "is_completed",
        "render_completion", "render_state", "setup_state",
    )  # fmt: skip

    @pytest.mark.parametrize("name", HOOKS)
    @pytest.mark.parametrize("where", ["object", "subclass", "base"])
    async def test_after_the_first_rollout(self, play, monkeypatch, name, where):
        kind, called = talk(), []
        env = kind(max_turns=1)
        await play(env)
        usual = getattr(MultiTurnEnv, name)

        @functools.wraps(usual)
        async def noting(self, *args, **kwargs):
            called.append(name)
            return await usual(self, *args, **kwargs)

        if where == "object":
            monkeypatch.setattr(env, name, types.MethodType(noting, env))
        else:
            monkeypatch.setattr(kind if where == "subclass" else MultiTurnEnv, name, noting)
        assert (await play(env))["error"] is None
        assert set(called) == {name}

    async def test_the_clean_up_of_a_rubric(self, evaluate):
        env, cleaned = Talk(max_turns=1), []

        async def note(state):
            cleaned.append(state["example_id"])

        env.rubric.cleanup = note
        await evaluate(env)
        assert cleaned == [0]


class TestCleanup:
    """Cleanup runs once for every rollout, however that ends."""

    class Counting(Talk):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.cleaned = []

        @cleanup
        async def count(self, state):
            self.cleaned.append(state["example_id"])

    @pytest.mark.parametrize(
        ("hooks", "answer", "error"),
        [
            *(({hook: failing(InfraError("broken"))}, "a", InfraError)
              for hook in ("setup_state", "env_response", "add_trajectory_step")),
            ({}, ModelError("down"), ModelError), ({"env_response": hanging()}, "a", type(None)),
        ],
        ids=["setup_state", "env_response", "add_trajectory_step", "the model", "a timeout"],
    )  # fmt: skip
    async def test_after_an_error_or_a_timeout(self, play, hooks, answer, error):
        env = talk(self.Counting, **hooks)(timeout_seconds=0.02 if error is type(None) else None)
        state = await play(env, answer)
        assert (env.cleaned, type(state["error"])) == ([0], error)

    async def test_after_each_repeated_attempt(self, evaluate, no_waiting):
        env = self.Counting(max_turns=1)
        await evaluate(env, InfraError("broken"), InfraError("broken"), "a", max_retries=2)
        assert env.cleaned == [0, 0, 0]

    @pytest.mark.parametrize("where", ["setup_state", "env_response", "a clean-up", "a hook that swallows it"])
    async def test_after_a_cancellation(self, scripted_client, where):
        reached = asyncio.Event()

        async def wait(self, *args):
            reached.set()
            await asyncio.Event().wait()

        async def swallow(self, messages, state):
            reached.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
            return "go on"

        members, max_turns = {where: wait}, 3
        if where == "a clean-up":
            members = {"waits": cleanup(priority=1)(wait)}
        elif where == "a hook that swallows it":
            members = {"env_response": swallow}
            max_turns = -1
        env = talk(self.Counting, **members)(max_turns=max_turns)
        running = asyncio.create_task(env.evaluate(scripted_client("a"), "m"))
        await asyncio.wait_for(reached.wait(), 60)
        running.cancel()
        await asyncio.wait([running], timeout=60)
        assert running.cancelled()
        assert env.cleaned == [0]

    @pytest.mark.parametrize("raised", [OSError("disk"), SystemExit(3), MemoryError(), RecursionError()])
    @pytest.mark.parametrize("is_async", [True, False])
    async def test_all_handlers_run_although_one_raises(self, play, raised, is_async):
        fail = failing(raised)
        env = talk(self.Counting, handler=cleanup(priority=1)(as_async(fail) if is_async else fail))()
        state = await play(env)
        assert env.cleaned == [0]
        causes = {type(state["error"]), type(state["error"].__cause__)}
        assert type(raised) in causes

    async def test_a_rubric_s_handlers_all_run_within_their_time_and_cost_their_rollout_alone(self, evaluate):
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


class TestWhatItMayRaise:
    """One rollout has the error, the other three do not."""

    @pytest.mark.parametrize("deed", RAISING.values(), ids=RAISING)
    @pytest.mark.parametrize("hook", ["setup_state", "env_response", "stop", "cleanup", "reward"])
    async def test_costs_its_rollout(self, evaluate, deed, hook):
        def act(self, state):
            if state["example_id"] == 2:
                deed()

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
        assert "deed()" in rows[2]["error"]["traceback"]


class TestNonsense:
    @pytest.mark.parametrize(
        ("nonsense", "shown"),
        [
            (None, "None"), (7, "7"), (object(), "<object object"),
            ({"role": "user", "content": "x"}, "{'role': 'user', 'content': 'x'}"), ([1, 2], "1"), ([None], "None"),
            (["x"], "'x'"), ([{"content": "x"}], "{'content': 'x'}"),
            ([{"role": "wizard", "content": "x"}], "wizard"), ([{"role": "user", "content": 7}], "content"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("hook", ["env_response", "get_prompt_messages"])
    async def test_of_a_hook_is_named(self, play, hook, nonsense, shown):
        state = await play(talk(**{hook: lambda self, *args: nonsense})())
        assert isinstance(state["error"], ConfigError)
        assert shown in str(state["error"])

    async def test_a_huge_text_is_a_text_and_other_huge_values_are_shown_in_part(self, play, evaluate):
        huge = "x" * 1_000_000
        state = await play(talk(env_response=lambda self, messages, state: huge)(max_turns=2))
        assert (state["error"], len(state["trajectory"])) == (None, 2)
        nonsense = [{"role": "wizard", "content": huge}]
        [row] = await evaluate(talk(env_response=lambda self, messages, state: nonsense)())
        assert len(row["error"]["message"]) < 1_000
        [row] = await evaluate(talk(env_response=failing(ValueError(huge)))())
        assert all(len(text or "") < 100_000 for text in row["error"].values())
        assert "raise error" in row["error"]["traceback"]

    async def test_a_final_response_that_is_none(self, play):
        def final(self, messages, state):
            state["final_env_response"] = 7
            return []

        state = await play(talk(env_response=final)())
        assert isinstance(state["error"], ConfigError)


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


class TestBrokenStates:
    """Environments may ruin their state; that costs at most the rollout, which is cleaned up and recorded."""

    @pytest.mark.parametrize("is_saved", [True, False])
    @pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
    async def test_cost_one_rollout_at_most(self, evaluate, tmp_path, deed, is_saved):
        cleaned = []

        class Careless(Talk):
            async def env_response(self, messages, state):
                if state["example_id"] == 1:
                    deed(state)
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

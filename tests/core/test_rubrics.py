"""Rubric: weights, failures, advantages."""

import asyncio
import decimal
import threading

import pytest

from nightjar.core.calling.decorators import cleanup, teardown
from nightjar.environments.rubrics import Rubric, RubricGroup
from nightjar.errors import ModelError, ScoringError


def correct(completion, answer):
    return float(completion[-1].content == answer)


def length(completion):
    return len(completion[-1].content)


def shown(completion):
    return len(completion)


async def test_the_reward_is_the_weighted_sum_of_the_metrics_and_zero_without_functions(answered):
    rubric, state = Rubric([correct, length], [2.0, -0.5]), answered("4")
    rubric.add_reward_func(lambda completion: True)
    rubric.add_metric(shown)
    await rubric.score_rollout(state)
    assert state["metrics"] == {"correct": 1.0, "length": 1.0, "<lambda>": 1.0, "shown": 1.0}
    assert state["reward"] == 2.5
    state = answered()
    await Rubric().score_rollout(state)
    await Rubric([correct]).score_group([])
    assert (state["metrics"], state["reward"]) == ({}, 0.0)


async def test_a_program_may_change_the_lists_of_functions_and_weights_but_each_function_needs_a_weight(answered):
    rubric, state, again = Rubric([correct]), answered("four"), answered("four")
    rubric.funcs.append(length)
    rubric.weights.append(0.5)
    await rubric.score_rollout(state)
    assert (state["reward"], state["metrics"]) == (2.0, {"correct": 0.0, "length": 4.0})
    rubric.funcs, rubric.weights = [], []
    await rubric.score_rollout(again)
    assert (again["reward"], again["metrics"]) == (0.0, {})
    rubric = Rubric([correct])
    rubric.funcs.append(length)
    with pytest.raises(ValueError, match=r"weights \(1\) .* functions \(2\)"):
        await rubric.score_rollout(answered())
    with pytest.raises(ValueError, match=r"weights \(1\) .* functions \(2\)"):
        Rubric([correct, length], [1.0])


async def test_a_function_that_raises_or_returns_no_finite_number_costs_its_rollout_and_no_other(answered):
    def fragile(completion):
        return 1 / (len(completion[-1].content) - 1)

    states = [answered("a"), answered("abc", 1)]
    await Rubric([correct, fragile]).score_group(states)
    assert [(state["reward"], state["metrics"]) for state in states] == [
        (None, {}), (0.5, {"correct": 0.0, "fragile": 0.5}),
    ]  # fmt: skip
    error = states[0]["error"]
    assert (type(error), type(error.__cause__), states[0]["advantage"]) == (ScoringError, ZeroDivisionError, None)
    assert str(error) == "Reward function 'fragile': division by zero"
    for score in ("good", None, {"a": 1}, float("nan"), float("inf")):
        state = answered()
        await Rubric([lambda completion, score=score: score]).score_rollout(state)
        assert isinstance(state["error"], ScoringError), score


async def test_a_rollout_with_an_error_is_not_scored_and_dummy_scores_call_no_function(answered):
    called, states = [], [answered(), answered("5", 1)]
    error = states[0]["error"] = ModelError("down")
    await Rubric([called.append]).score_group(states[:1])
    assert (called, states[0]["reward"], states[0]["error"]) == ([], None, error)
    await Rubric([called.append]).dummy_score_group(states)
    assert [(state["reward"], state["metrics"]) for state in states] == [(None, {}), (0.0, {})]
    assert called == []


async def test_a_hanging_function_times_out_and_its_own_timeout_keeps_its_message(answered):
    async def hang(completion):
        await asyncio.sleep(60)

    rubric, state = Rubric([hang]), answered()
    rubric.set_timeout_seconds(0.01)
    await rubric.score_rollout(state)
    assert "took longer than 0.01 s" in str(state["error"])

    def ask_judge(completion):
        raise TimeoutError("the judge did not answer")

    state = answered()
    await Rubric([ask_judge]).score_rollout(state)
    assert str(state["error"]) == "Reward function 'ask_judge': the judge did not answer"


@pytest.mark.parametrize("blocks_in", ["the function", "the conversion of its score"])
async def test_a_blocking_function_times_out_and_no_further_function_is_called(answered, blocks_in):
    freed, left, called = threading.Event(), threading.Event(), []

    class OnAnotherDevice:
        def __float__(self):
            freed.wait(60)
            left.set()
            return 1.0

    def block(completion):
        return float(OnAnotherDevice()) if blocks_in == "the function" else OnAnotherDevice()

    rubric, state = Rubric([lambda completion: 1, block, called.append]), answered()
    rubric.set_timeout_seconds(0.05)
    await rubric.score_rollout(state)
    is_waited_for = left.is_set()
    freed.set()
    assert "Reward function 'block': took longer than 0.05 s" in str(state["error"])
    assert not is_waited_for
    assert left.wait(60)
    await asyncio.sleep(0.01)
    assert called == []


async def test_no_function_changes_the_context_variables_of_the_next_function(answered):
    def precise(completion):
        decimal.setcontext(decimal.Context(prec=50))
        return 1

    state = answered()
    await Rubric([precise, lambda completion: decimal.getcontext().prec]).score_rollout(state)
    assert state["metrics"] == {"precise": 1.0, "<lambda>": 28.0}


async def test_sync_and_async_functions_are_called_in_their_order_and_each_in_its_place(answered):
    places, main = [], threading.get_ident()

    def scorer(name, score, is_async):
        def sync(completion):
            places.append((name, threading.get_ident() == main))
            return score

        async def from_the_loop(completion):
            return sync(completion)

        func = from_the_loop if is_async else sync
        func.__name__ = name
        return func

    def gives_an_awaitable(completion):
        return asyncio.sleep(0, 3.0)

    funcs = [scorer("a", 1, False), scorer("b", 2, False), scorer("c", 4, True), scorer("d", 8, False)]
    state = answered()
    await Rubric([*funcs, gives_an_awaitable]).score_rollout(state)
    assert places == [("a", False), ("b", False), ("c", True), ("d", False)]
    assert state["metrics"] == {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0, "gives_an_awaitable": 3.0}


async def test_advantages_are_rewards_minus_the_mean_and_steps_without_one_get_it(answered):
    states = [answered("4"), answered("5", 1), answered("6", 2), answered("4", 3)]
    states[2]["error"] = ModelError("down")
    await Rubric([correct]).score_group(states)
    third = pytest.approx(1 / 3)
    assert [state["advantage"] for state in states] == [third, pytest.approx(-2 / 3), None, third]
    state = answered()
    state["trajectory"] = [{"reward": None, "advantage": None}, {"reward": 0.25, "advantage": 0.5}]
    await Rubric([correct]).score_rollout(state)
    assert state["trajectory"] == [{"reward": 1.0, "advantage": 0.0}, {"reward": 0.25, "advantage": 0.5}]


async def test_handlers_name_what_they_want_and_a_clean_up_may_be_replaced(answered):
    seen = []

    class Closing(Rubric):
        @cleanup
        def close(self, state, answer, session, level):
            seen.append((state["example_id"], answer, session, level))

        @teardown
        def leave(self, session):
            seen.append(session)

    rubric = Closing()
    rubric.add_class_object("session", "s1")
    await rubric.cleanup(answered(level=3))
    await rubric.teardown()
    assert seen == [(0, "4", "s1", 3), "s1"]
    rubric, cleaned = Rubric(), []
    group = RubricGroup([rubric])
    assert not group.has_cleanup

    async def note(state):
        cleaned.append(state["example_id"])

    rubric.cleanup = note
    assert group.has_cleanup
    await group.cleanup(answered())
    assert cleaned == [0]


async def test_an_added_handler_takes_its_place_by_priority_and_name(answered):
    order = []

    def named(name):
        def handler(*args):
            order.append(name)

        handler.__name__ = name
        return handler

    handlers = {"early": cleanup(priority=5)(named("early")), "zero": cleanup(named("zero"))}
    rubric = type("Closing", (Rubric,), handlers)()
    rubric.add_cleanup_handler(named("last_but_one"))
    rubric.add_cleanup_handler(cleanup(priority=10)(named("first")))
    await rubric.cleanup(answered())
    assert order == ["first", "early", "last_but_one", "zero"]


async def test_a_handler_that_raises_does_not_keep_the_others_from_running(answered, caplog):
    left = []

    class Leaving(Rubric):
        @teardown(priority=2)
        def a(self):
            raise OSError("first")

        @teardown(priority=1)
        def b(self):
            raise OSError("second")

        @teardown
        def c(self):
            left.append("c")

    with pytest.raises(OSError, match="first"):
        await Leaving().teardown()
    assert left == ["c"]
    assert "second" in caplog.text

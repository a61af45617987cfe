"""State: a dict that shares the input's columns, the times of a rollout, and its tokens."""

import time
from types import SimpleNamespace

import pytest

from nightjar.compat.verifiers.names import compute_context_token_metrics
from nightjar.core.messages import UserMessage
from nightjar.core.rollout.state import State, add_usage, new_state, usage_of
from nightjar.core.rollout.usage import RolloutTiming, TimeSpan, TimeSpans, context_usage


def example_state(**columns):
    return State(input={"prompt": [UserMessage(content="q")], "example_id": 7, **columns}, reward=None)


def test_a_column_is_read_from_and_written_to_the_input_if_that_has_it_and_a_missing_one_is_a_key_error():
    state = example_state(answer="4", info={"a": 1}, task="t")
    for key in ("answer", "info", "task", "example_id", "prompt"):
        assert state[key] is state.get(key) is state["input"][key]
    with_answer, without = example_state(answer="4"), example_state()
    with_answer["answer"] = without["answer"] = "5"
    assert (with_answer["input"]["answer"], without["answer"], "answer" in without["input"]) == ("5", "5", False)
    for columns, name in (({}, "answer"), ({"difficulty": 3}, "difficulty")):
        with pytest.raises(KeyError, match=name):
            example_state(**columns)[name]
    assert example_state().get("answer", "none") == "none"


def test_times_add_up_and_overhead_is_the_rest_of_generation():
    timing = RolloutTiming()
    timing.restore(1500.0)
    timing.add_scoring(time.time() - 200)
    timing.add_scoring(time.time() - 300)
    assert timing["generation_ms"] == 1500.0
    assert timing["scoring_ms"] == pytest.approx(500_000, abs=10_000)  # machines are busy
    assert timing["total_ms"] == pytest.approx(timing["generation_ms"] + timing["scoring_ms"], abs=0.002)
    timing, spans = RolloutTiming(), TimeSpans()
    timing.generation, timing.setup = TimeSpan(0.0, 10.0), TimeSpan(0.0, 1.0)
    timing.model.spans += [TimeSpan(1.0, 2.5), TimeSpan(2.5, 6.0), TimeSpan(7.0)]
    timing.env.spans.append(TimeSpan(6.0, 8.0))
    assert (timing.model.duration, timing.overhead) == (5.0, 2.0)
    with pytest.raises(KeyError), spans.measure():
        raise KeyError("x")
    assert len(spans.spans) == 1


def test_usage_cannot_be_changed_and_the_context_at_the_end_is_split_by_author(response):
    state = new_state({"prompt": [], "example_id": 0})
    add_usage(state, response("x", usage=(5, 4)))
    with pytest.raises(TypeError):
        state["usage"]["input_tokens"] = 99
    state["usage"] = {"input_tokens": 0, "output_tokens": 0}
    assert usage_of(state) == {"input_tokens": 5, "output_tokens": 4}

    class Counts:
        prompt_tokens, completion_tokens = 9, 4

        def get(self, *names):
            return None

    steps = [{"response": response("a", usage=(10, 3))}, {"response": response("b", usage=(20, 4))}]
    assert context_usage(steps) == {"final_input_tokens": 17, "final_output_tokens": 7}
    steps = [{"response": SimpleNamespace(usage=Counts())}]
    assert compute_context_token_metrics(steps) == {"final_input_tokens": 9, "final_output_tokens": 4}
    assert compute_context_token_metrics([]) == {"final_input_tokens": 0, "final_output_tokens": 0}

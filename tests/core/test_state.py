"""State: a dict that shares the input's columns, the times of a rollout, and its tokens."""

import time

import pytest

from nightjar.core.messages import UserMessage
from nightjar.core.rollout.state import State, add_usage, new_state, usage_of
from nightjar.core.rollout.usage import RolloutTiming, TimeSpan, TimeSpans, context_usage


def example_state(**columns):
    return State(input={"prompt": [UserMessage(content="q")], "example_id": 7, **columns}, reward=None)


class TestInputColumns:
    @pytest.mark.parametrize("key", ["answer", "info", "task", "example_id", "prompt"])
    def test_a_column_is_read_from_the_input(self, key):
        state = example_state(answer="4", info={"a": 1}, task="t")
        assert state[key] is state["input"][key]

    def test_a_column_is_written_to_the_input(self):
        state = example_state(answer="4")
        state["answer"] = "5"
        assert state["input"]["answer"] == "5"

    def test_a_column_that_the_input_lacks_becomes_a_key_of_the_state(self):
        state = example_state()
        state["answer"] = "5"
        assert (state["answer"], "answer" in state["input"]) == ("5", False)

    def test_get_reads_the_input_too(self):
        assert example_state(answer="4").get("answer") == "4"

    def test_get_of_a_column_that_is_nowhere_gives_the_default(self):
        assert example_state().get("answer", "none") == "none"

    def test_a_column_that_is_nowhere_is_a_key_error(self):
        with pytest.raises(KeyError, match="answer"):
            example_state()["answer"]

    def test_other_columns_of_the_dataset_are_only_in_the_input(self):
        with pytest.raises(KeyError):
            example_state(difficulty=3)["difficulty"]

    def test_any_other_key_is_the_environment_s(self):
        state = example_state()
        state["board"] = [1]
        assert (state["board"], state.get("board"), state.get("missing")) == ([1], [1], None)


class TestTiming:
    def test_starts_with_all_keys(self):
        assert set(RolloutTiming()) == {"start_time", "generation_ms", "scoring_ms", "total_ms"}

    def test_an_open_span_has_no_duration(self):
        assert TimeSpan(start=5.0).duration == 0.0

    def test_a_span_s_duration_is_in_seconds(self):
        assert TimeSpan(start=5.0, end=7.5).duration == 2.5

    def test_generation_and_scoring_add_up_in_milliseconds(self):
        timing = RolloutTiming()
        timing.restore(1500.0)
        timing.add_scoring(time.time() - 0.5)
        assert timing["generation_ms"] == 1500.0
        assert timing["scoring_ms"] == pytest.approx(500, abs=50)
        assert timing["total_ms"] == pytest.approx(timing["generation_ms"] + timing["scoring_ms"], abs=0.002)

    def test_scoring_twice_adds_both_times(self):
        timing = RolloutTiming()
        timing.add_scoring(time.time() - 0.2)
        timing.add_scoring(time.time() - 0.3)
        assert timing["scoring_ms"] == pytest.approx(500, abs=50)

    def test_end_of_generation_closes_its_span(self):
        timing = RolloutTiming()
        timing.generation.start -= 2.0
        timing.end_generation()
        assert timing["generation_ms"] == pytest.approx(2000, abs=50)


class TestSpans:
    def test_several_spans_add_up(self):
        assert TimeSpans([TimeSpan(1.0, 2.0), TimeSpan(5.0, 5.5)]).duration == 1.5

    def test_a_measured_block_is_a_span_also_where_it_raises(self):
        spans = TimeSpans()
        with pytest.raises(KeyError), spans.measure():
            raise KeyError("x")
        assert len(spans.spans) == 1

    def test_overhead_is_what_is_left_of_generation(self):
        timing = RolloutTiming()
        timing.generation = TimeSpan(0.0, 10.0)
        timing.setup = TimeSpan(0.0, 1.0)
        timing.model.spans.append(TimeSpan(1.0, 6.0))
        timing.env.spans.append(TimeSpan(6.0, 8.0))
        assert timing.overhead == 2.0


class TestUsage:
    @pytest.fixture
    def state(self):
        return new_state({"prompt": [], "example_id": 0})

    def test_is_unknown_while_the_server_names_none(self, state, response):
        add_usage(state, response("x", usage=None))
        assert (usage_of(state), state["usage"]) == (None, {"input_tokens": 0, "output_tokens": 0})

    def test_adds_up_over_calls(self, state, response):
        for usage in [(10, 3), None, (20, 4)]:
            add_usage(state, response("x", usage=usage))
        assert usage_of(state) == state["usage"] == {"input_tokens": 30, "output_tokens": 7}

    def test_an_environment_can_read_it_and_not_write_it(self, state):
        with pytest.raises(TypeError):
            state["usage"]["input_tokens"] = 99

    def test_what_an_environment_puts_in_its_place_changes_no_count(self, state, response):
        add_usage(state, response("x", usage=(5, 4)))
        state["usage"] = {"input_tokens": 0, "output_tokens": 0}
        assert usage_of(state) == {"input_tokens": 5, "output_tokens": 4}

    def test_the_context_at_the_end_is_split_by_who_wrote_it(self, response):
        steps = [{"response": response("a", usage=(10, 3))}, {"response": response("b", usage=(20, 4))}]
        assert context_usage(steps) == {"final_input_tokens": 17, "final_output_tokens": 7}

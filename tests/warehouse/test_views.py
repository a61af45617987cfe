"""The views and macros that people ask daily, against values computed by hand."""

import json
from datetime import UTC, datetime

import duckdb
import pytest

from nightjar import statistics
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import load_prices, price


def day(number):
    return f"2026-11-{number:02}T00:00:00Z"


def moment(number):
    return datetime(2026, 11, number, tzinfo=UTC)


@pytest.fixture
def house(tmp_path, run_writer):
    """Publishes runs that differ from the usual run in the given fields."""
    return House(tmp_path, run_writer)


class House:
    def __init__(self, folder, run_writer):
        self.warehouse = Warehouse(folder / "warehouse")
        self._folder, self._writer = folder, run_writer

    def publish(self, run_id, rewards=None, /, *, attempts=None, hashes=None, **metadata):
        """Publishes a run; rewards are the rewards of each example's rollouts, None for a failed one."""
        rollouts = [
            self._rollout(example_id, index, reward, (hashes or {}).get(example_id, f"hash-{example_id}"))
            for example_id, group in (rewards or {}).items()
            for index, reward in enumerate(group)
        ]
        metadata = {"started_at": day(1), "status": "completed", **metadata}
        run_dir = self._writer.write(self._folder / run_id, rollouts, attempts, run_id=run_id, **metadata)
        self.warehouse.publish(run_dir, tidies=False)  # the file for other tools is not asked

    def _rollout(self, example_id, index, reward, example_hash):
        if reward is None:
            return self._writer.failed(example_id, index, example_hash=example_hash)
        return self._writer.rollout(example_id, index, reward, example_hash=example_hash)

    def set_prices(self, *prices):
        with self.warehouse._backend.store.changing_prices() as kept:
            kept[:] = prices

    def ask(self, sql, parameters=None):
        return self.warehouse.query(sql, parameters).rows


class TestLeaderboard:
    def test_has_the_newest_finished_run_that_is_not_a_quick_run(self, house):
        house.publish("old", model="m1", started_at=day(1), avg_reward=0.9)
        house.publish("new", model="m1", started_at=day(2), avg_reward=0.5)
        house.publish("quick", model="m1", started_at=day(3), avg_reward=1.0, num_examples=1)
        house.publish("running", model="m1", started_at=day(4), avg_reward=None, status="running")
        house.publish("failed", model="m1", started_at=day(5), avg_reward=None, status="failed")
        house.publish("other", model="m2", status="incomplete", avg_reward=0.75)
        house.publish("elsewhere", model="m2", env_id="mmlu", avg_reward=None)
        columns = "env_id, model, avg_reward, stderr, scored, coverage, status, started_at, run_id"
        assert house.ask(f"SELECT {columns} FROM leaderboard") == [
            ("gsm8k", "m2", 0.75, 0.25, 3, 0.75, "incomplete", moment(1), "other"),
            ("gsm8k", "m1", 0.5, 0.25, 3, 0.75, "completed", moment(2), "new"),
            ("mmlu", "m2", None, 0.25, 3, 0.75, "completed", moment(1), "elsewhere"),
        ]

    def test_a_permanently_smaller_run_counts_after_ten_days(self, house):
        house.publish("large", started_at=day(1), num_examples=1000)
        house.publish("small", started_at=day(11), num_examples=100)
        assert house.ask("SELECT run_id, num_examples FROM leaderboard") == [("large", 1000)]
        house.publish("small again", started_at=day(12), num_examples=100)
        assert house.ask("SELECT run_id, num_examples FROM leaderboard") == [("small again", 100)]

    def test_a_partly_failed_night_does_not_replace_a_complete_one(self, house):
        house.publish("whole", started_at=day(1), coverage=1.0, num_examples=100)
        house.publish("partly failed", started_at=day(2), coverage=0.9, num_examples=100)
        house.publish("mostly failed", started_at=day(3), coverage=0.3, num_examples=100)
        assert house.ask("SELECT run_id FROM leaderboard") == [("whole",)]
        rows = house.ask("SELECT run_id, is_full, is_sound FROM finished_runs ORDER BY began")
        assert rows == [("whole", True, True), ("partly failed", True, False), ("mostly failed", False, False)]

    def test_if_all_nights_are_partly_failed_the_newest_counts(self, house):
        house.publish("whole long ago", started_at="2026-01-01T00:00:00Z", coverage=1.0)
        for night in (1, 2):
            house.publish(str(night), started_at=day(night), coverage=0.9)
        assert house.ask("SELECT run_id FROM leaderboard") == [("2",)]

    def test_a_run_without_a_start_began_when_it_was_published(self, house):
        house.publish("unknown", started_at=None, finished_at=None, published_at=day(3))
        house.publish("known", started_at=day(2))
        assert house.ask("SELECT run_id, started_at FROM leaderboard") == [("unknown", None)]


class TestHistory:
    def test_compares_a_run_with_the_one_before_of_the_same_configuration(self, house):
        house.publish("1", started_at=day(1), avg_reward=0.5)
        house.publish("3", started_at=day(3), avg_reward=0.75)
        house.publish("2", started_at=day(2), avg_reward=0.25, sampling_args={"temperature": 1.0})
        house.publish("4", started_at=day(4), avg_reward=0.5, sampling_args={"temperature": 1.0})
        house.publish("running", started_at=day(5), avg_reward=None, status="running")
        assert house.ask("SELECT run_id, avg_reward, change, configuration, started_at FROM history") == [
            ("1", 0.5, None, 1, moment(1)), ("3", 0.75, 0.25, 1, moment(3)), ("2", 0.25, None, 2, moment(2)),
            ("4", 0.5, 0.25, 2, moment(4)),
        ]  # fmt: skip

    def test_does_not_compare_runs_over_different_data(self, house):
        house.publish("1", started_at=day(1), avg_reward=0.5, dataset_fingerprint="a")
        house.publish("2", started_at=day(2), avg_reward=0.75, dataset_fingerprint="b")
        house.publish("3", started_at=day(3), avg_reward=1.0, dataset_fingerprint="b")
        assert house.ask("SELECT run_id, change FROM history") == [("1", None), ("2", None), ("3", 0.25)]

    def test_a_run_over_other_data_in_between_does_not_hide_a_change(self, house):
        house.publish("1", started_at=day(1), avg_reward=0.5)
        house.publish("quick", started_at=day(2), avg_reward=1.0, dataset_fingerprint="its first five")
        house.publish("2", started_at=day(3), avg_reward=0.75)
        assert house.ask("SELECT run_id, change FROM history") == [("1", None), ("quick", None), ("2", 0.25)]

    def test_runs_over_unknown_data_are_not_compared(self, house):
        for night in (1, 2):
            house.publish(str(night), started_at=day(night), dataset_fingerprint=None)
        assert house.ask("SELECT run_id, change FROM history") == [("1", None), ("2", None)]

    def test_a_run_without_a_start_is_ordered_by_its_publication(self, house):
        house.publish("2", started_at=None, finished_at=None, published_at=day(2), avg_reward=0.75)
        house.publish("1", started_at=day(1), avg_reward=0.5)
        assert house.ask("SELECT run_id, change FROM history") == [("1", None), ("2", 0.25)]

    @pytest.mark.parametrize(
        "different", [{"model": "m"}, {"env_id": "e"}, {"env_args": {"split": "dev"}}, {"extra_env_kwargs": None}]
    )
    def test_what_changes_results_is_another_configuration(self, house, different):
        house.publish("1", started_at=day(1))
        house.publish("2", started_at=day(2), **different)
        assert {change for (change,) in house.ask("SELECT change FROM history")} == {None}


class TestPassAtK:
    def test_agrees_with_the_statistics(self, house):
        """Correct is a reward of 0.5 or more; an example with a failed rollout does not count."""
        correct = [0, 1, 3, 5, 6]
        rewards = {number: [1.0] * c + [0.25] * (6 - c) for number, c in enumerate(correct)}
        rewards[9] = [1.0, 1.0, 1.0, 1.0, 1.0, None]
        house.publish("run", rewards, rollouts_per_example=6)
        at_k, all_k = statistics.pass_curves(correct, 6)
        rows = house.ask("SELECT k, pass_at_k, pass_all_k, examples FROM pass_at_k")
        assert [row[0] for row in rows] == [1, 2, 4]
        for k, pass_at_k, pass_all_k, examples in rows:
            assert pass_at_k == pytest.approx(at_k[k], abs=1e-12)
            assert pass_all_k == pytest.approx(all_k[k], abs=1e-12)
            assert examples == 5
        assert rows[0][1] == pytest.approx((0 + 1 / 6 + 3 / 6 + 5 / 6 + 1) / 5)

    def test_a_threshold_of_the_run_decides_what_is_correct(self, house):
        house.publish("run", {0: [0.5, 0.75]}, pass_threshold=0.75)
        assert house.ask("SELECT k, pass_at_k, pass_all_k FROM pass_at_k") == [(1, 0.5, 0.5), (2, 1.0, 0.0)]

    @pytest.mark.parametrize(
        ("n", "correct"), [(64, 1), (64, 63), (256, 3), (1024, 512), (1500, 700), (2000, 1000), (2000, 1)]
    )
    def test_holds_for_many_rollouts(self, house, n, correct):
        house.publish("run", {0: [1.0] * correct + [0.0] * (n - correct)}, rollouts_per_example=n)
        rows = house.ask("SELECT k, pass_at_k, pass_all_k FROM pass_at_k")
        at_k, all_k = statistics.pass_curves([correct], n)
        assert [k for k, *_ in rows] == list(at_k)
        for k, pass_at_k, pass_all_k in rows:
            assert pass_at_k == pytest.approx(at_k[k], rel=1e-12, abs=1e-12)
            assert pass_all_k == pytest.approx(all_k[k], rel=1e-12, abs=1e-12)

    def test_agrees_with_the_aggregates_of_a_run(self, house):
        house.publish("run", {0: [1.0, 0.0], 1: [1.0, 1.0]}, pass_at_k={"1": 0.75, "2": 1.0})
        assert house.ask(
            "SELECT bool_and(abs(p.pass_at_k - runs.pass_at_k[p.k::VARCHAR]) < 1e-9) "
            "FROM pass_at_k p JOIN runs USING (run_id)"
        ) == [(True,)]


class TestRollouts:
    def test_example_rewards_are_means_over_scored_rollouts(self, house):
        house.publish("run", {0: [1.0, 0.0], 1: [0.5, None], 2: [None, None]})
        assert house.ask("FROM example_rewards") == [
            ("run", 0, "hash-0", 0.5, 2, 0), ("run", 1, "hash-1", 0.5, 1, 1), ("run", 2, "hash-2", None, 0, 2),
        ]  # fmt: skip

    def test_metrics_have_a_row_each(self, house):
        house.publish("run", {0: [1.0], 1: [None]})
        assert house.ask("FROM metrics ORDER BY ALL") == [("run", 0, 0, "correct", 1.0), ("run", 0, 0, "length", 12.0)]

    def test_errors_have_a_row_each(self, house):
        house.publish("run", {0: [1.0], 1: [None]})
        chain, message = "ModelError -> RateLimitError", "429 Too Many Requests"
        columns = "run_id, example_id, rollout_index, phase, error, message, chain, traceback"
        row = ("run", 1, 0, "generation", "ModelError", message, chain, None)
        assert house.ask(f"SELECT {columns} FROM errors") == [row]

    def test_texts_are_stored_once_and_belong_to_their_rollouts(self, house):
        house.publish("a", {0: [1.0, 1.0], 1: [0.0]})
        house.publish("b", {5: [0.0]}, hashes={5: "hash-0"})
        assert house.ask("SELECT count(*) FROM rollouts WHERE prompt->>'$[0].content' = '2 + 2?'") == [(4,)]
        hashes = [row[0] for row in house.ask("SELECT example_hash FROM examples ORDER BY 1")]
        assert hashes == ["hash-0", "hash-1"]
        columns = "task, prompt, answer, info, tool_defs"
        assert house.ask(f"SELECT DISTINCT {columns} FROM examples") == [
            ("math", '[{"role":"user","content":"2 + 2?"}]', "4", '{"level":1}', None)
        ]


class TestRegressions:
    def test_has_examples_with_less_reward_in_the_last_of_two_comparable_runs(self, house):
        """Examples are paired by content: the dataset was reordered between the runs, and grew."""
        house.publish("before", {0: [1.0, 1.0], 1: [0.5, 0.5], 2: [0.0, 1.0]}, started_at=day(1))
        house.publish(
            "after",
            {10: [0.5, 0.0], 11: [0.5, 0.5], 12: [0.0, None], 13: [0.0, 0.0]},
            hashes={10: "hash-0", 11: "hash-1", 12: "hash-2"},
            started_at=day(2),
        )
        columns = "env_id, example_id, reward_before, reward_after, change, example_hash, run_before, run_after"
        assert house.ask(f"SELECT {columns} FROM regressions") == [
            ("gsm8k", 10, 1.0, 0.25, -0.75, "hash-0", "before", "after"),
            ("gsm8k", 12, 0.5, 0.0, -0.5, "hash-2", "before", "after"),
        ]

    def test_only_the_two_newest_finished_runs_of_a_configuration_are_compared(self, house):
        house.publish("1", {0: [1.0]}, started_at=day(1))
        house.publish("2", {0: [0.5]}, started_at=day(2))
        house.publish("3", {0: [0.5]}, started_at=day(3))
        house.publish("other", {0: [0.0]}, started_at=day(4), sampling_args={})
        house.publish("running", {0: [0.0]}, started_at=day(5), status="running")
        assert house.ask("FROM regressions") == []
        house.publish("4", {0: [0.25]}, started_at=day(6))
        assert house.ask("SELECT run_before, run_after, change FROM regressions") == [("3", "4", -0.25)]

    def test_a_quick_run_after_the_nightly_ones_hides_nothing(self, house):
        house.publish("1", {0: [1.0], 1: [1.0]}, started_at=day(1), num_examples=100)
        house.publish("2", {0: [1.0], 1: [0.0]}, started_at=day(2), num_examples=100)
        house.publish("quick", {0: [0.5]}, started_at=day(3), num_examples=1)
        assert house.ask("SELECT run_before, run_after, change FROM regressions") == [("1", "2", -1.0)]

    def test_a_dataset_that_grew_is_compared_on_the_common_examples(self, house):
        house.publish("1", {0: [1.0], 1: [1.0]}, started_at=day(1), num_examples=100)
        house.publish("quick", {0: [0.75]}, started_at=day(2), num_examples=1)
        house.publish("2", {0: [0.5], 1: [1.0], 2: [0.0]}, started_at=day(3), num_examples=101)
        house.publish("newer", {0: [0.0]}, started_at=day(4), num_examples=1)
        assert house.ask("SELECT run_before, run_after, change FROM regressions") == [("1", "2", -0.5)]

    def test_a_large_run_of_long_ago_hides_nothing(self, house):
        house.publish("large", {0: [1.0], 1: [1.0]}, started_at="2026-01-01T00:00:00Z", num_examples=100)
        house.publish("1", {0: [1.0]}, started_at=day(1), num_examples=20)
        house.publish("2", {0: [0.0]}, started_at=day(2), num_examples=20)
        assert house.ask("SELECT run_before, run_after, change FROM regressions") == [("1", "2", -1.0)]

    def test_means_that_differ_by_rounding_are_equal(self, house):
        house.publish("1", {0: [0.1, 0.1, 0.1]}, started_at=day(1))
        house.publish("2", {0: [0.1]}, started_at=day(2))
        assert house.ask("FROM regressions") == []

    def test_examples_without_a_hash_are_not_compared(self, house):
        house.publish("1", {0: [1.0], 1: [1.0]}, started_at=day(1), hashes={0: None, 1: None})
        house.publish("2", {0: [0.0], 1: [0.0]}, started_at=day(2), hashes={0: None, 1: None})
        assert house.ask("FROM regressions") == []


class TestExamples:
    def insert(self, connection, *contents):
        """Replaces what was published by contents: content_id, example_hash, task, answer."""
        connection.execute("CREATE OR REPLACE TEMP TABLE contents AS FROM segments.examples LIMIT 0")
        for content in contents:
            connection.execute(
                "INSERT INTO contents (content_id, example_hash, task, answer) VALUES (?, ?, ?, ?)", content
            )
        connection.execute("CREATE OR REPLACE VIEW segments.examples AS FROM temp.contents")

    def test_one_of_several_contents_with_the_same_hash_is_taken(self, house):
        house.publish("run", {0: [1.0]})
        with house.warehouse.connect() as connection:
            first, second = (2, "hash", "task", "answer"), (1, "hash", None, "other")
            self.insert(connection, first, second, second)
            assert connection.execute("SELECT task, answer FROM examples").fetchall() == [(None, "other")]

    def test_examples_without_a_hash_differ_by_content(self, house):
        house.publish("run", {0: [1.0]})
        with house.warehouse.connect() as connection:
            self.insert(connection, (1, None, "a", "1"), (2, None, "b", "2"), (2, None, "b", "2"), (3, "1", "c", "3"))
            found = connection.execute("SELECT example_hash, task, answer FROM examples ORDER BY ALL").fetchall()
            assert found == [("1", "c", "3"), (None, "a", "1"), (None, "b", "2")]


class TestFlips:
    def test_has_examples_that_are_fixed_and_broken(self, house):
        house.publish("a", {0: [1.0, 1.0], 1: [0.0, 0.0], 2: [1.0, 1.0], 3: [1.0], 4: [None]})
        house.publish("b", {7: [0.0, 0.25], 1: [1.0, 0.0], 2: [0.5, 1.0], 5: [0.0], 4: [1.0]}, hashes={7: "hash-0"})
        columns = "example_id, flip, correct_a, correct_b, reward_a, reward_b, example_hash"
        assert house.ask(f"SELECT {columns} FROM flips('a', 'b')") == [
            (7, "broken", 1.0, 0.0, 1.0, 0.125, "hash-0"),
            (1, "fixed", 0.0, 0.5, 0.0, 0.5, "hash-1"),
        ]
        flips = dict(house.ask("SELECT example_hash, flip FROM flips(?, ?)", ["b", "a"]))
        assert flips == {"hash-0": "fixed", "hash-1": "broken"}

    def test_a_run_does_not_differ_from_itself(self, house):
        house.publish("a", {0: [1.0]})
        assert house.ask("FROM flips('a', 'a')") == []


class TestCost:
    def attempts(self, run_writer):
        """Two attempts of 100 tokens in and 20 out, the first of which failed, and one whose tokens are unknown."""
        return [
            run_writer.attempt(0, 0, 1, error=run_writer.failure),
            run_writer.attempt(0, 0, 2),
            run_writer.attempt(0, 1, 1, token_usage=None),
        ]

    def test_counts_all_attempts_at_the_price_of_the_day(self, house, run_writer):
        later, other = price("m", "2026-11-10", 2.0, 20.0), price("other", "2026-01-01", 100.0, 100.0)
        house.set_prices(price("m", "2026-11-01", 1.0, 10.0), later, other)
        usage = {"input_tokens": 100, "output_tokens": 20}
        for number in (9, 10, 11):
            told = {"attempts": self.attempts(run_writer), "model": "m", "started_at": day(number), "usage": usage}
            house.publish(str(number), {0: [1.0]}, **told)
        rows = house.ask("SELECT run_id, attempts, input_tokens, output_tokens, cost FROM cost")
        assert rows == [
            ("11", 3, 200, 40, pytest.approx((200 * 2 + 40 * 20) / 1e6)),
            ("10", 3, 200, 40, pytest.approx((200 * 2 + 40 * 20) / 1e6)),
            ("9", 3, 200, 40, pytest.approx((200 * 1 + 40 * 10) / 1e6)),
        ]
        assert house.ask("SELECT run_id, cost FROM runs ORDER BY run_id DESC LIMIT 1") == [
            ("9", pytest.approx((100 * 1 + 20 * 10) / 1e6))
        ]

    def test_there_is_no_cost_without_a_price_or_before_the_first(self, house, run_writer):
        house.publish("run", {0: [1.0]}, attempts=self.attempts(run_writer), model="m", started_at=day(1))
        assert house.ask("SELECT cost FROM cost") == [(None,)]
        house.set_prices(price("m", "2026-11-02", 1.0, 1.0))
        assert house.ask("SELECT cost FROM cost UNION ALL SELECT cost FROM runs") == [(None,), (None,)]

    def test_a_run_without_a_start_has_the_price_at_its_end(self, house):
        usage = {"input_tokens": 1_000_000, "output_tokens": 0}
        house.publish("run", model="m", started_at=None, finished_at=day(3), usage=usage)
        house.set_prices(price("m", "2026-11-01", 1.0, 1.0), price("m", "2026-11-02", 3.0, 1.0))
        assert house.ask("SELECT cost FROM cost UNION ALL SELECT cost FROM runs") == [(3.0,), (3.0,)]

    def test_a_run_without_a_ledger_costs_what_its_record_says(self, house):
        house.set_prices(price("m", "2026-01-01", 1.0, 10.0))
        house.publish("run", {0: [1.0]}, model="m")
        assert house.ask("SELECT attempts, input_tokens, output_tokens, cost FROM cost") == [
            (None, 300, 60, pytest.approx(900 / 1e6))
        ]

    def test_the_last_of_several_prices_of_a_moment_counts(self, house):
        house.publish("run", {0: [1.0]}, model="m")
        lines = ["model,since,input,output", "m,2026-01-01,1,1", "m,2026-01-01T00:00:00Z,2,20", "n,2026-01-01,3,3"]
        (house.warehouse.folder / "prices.csv").write_text("\n".join(lines), "utf-8-sig")
        assert house.ask("SELECT model, input, output FROM prices ORDER BY 1") == [("m", 2.0, 20.0), ("n", 3.0, 3.0)]
        assert house.ask("SELECT cost FROM runs") == [(pytest.approx((300 * 2 + 60 * 20) / 1e6),)]
        assert len(load_prices(("\ufeff" + "\n".join(lines)).encode())) == 2

    def test_a_new_price_is_seen_at_once(self, house):
        house.publish("run", {0: [1.0]}, model="m")
        assert house.ask("FROM prices") == []
        house.set_prices(price("m", "2026-01-01", 1.0, 10.0))
        assert house.ask("FROM prices") == [("m", datetime(2026, 1, 1, tzinfo=UTC), 1.0, 10.0)]


class TestRetries:
    def test_counts_attempts_that_failed(self, house, run_writer):
        other = {**run_writer.failure, "error_chain_repr": "ModelError -> Timeout"}
        attempts = [
            run_writer.attempt(0, 0, 1, error=run_writer.failure, generation_ms=1500.0),
            run_writer.attempt(0, 0, 2, error=run_writer.failure, generation_ms=500.0, token_usage=None),
            run_writer.attempt(0, 0, 3),
            run_writer.attempt(0, 1, 1, error=run_writer.failure, generation_ms=1000.0),
            run_writer.attempt(0, 1, 2, error=other, generation_ms=250.0),
        ]
        house.publish("run", {0: [1.0, None]}, attempts=attempts)
        columns = "run_id, error, attempts, rollouts, seconds, input_tokens, output_tokens"
        assert house.ask(f"SELECT {columns} FROM retries") == [
            ("run", "ModelError -> RateLimitError", 3, 2, 3.0, 200, 40),
            ("run", "ModelError -> Timeout", 1, 1, 0.25, 100, 20),
        ]


def test_the_snapshot_has_the_same_views(house):
    house.set_prices(price("openai/gpt-4.1-mini", "2026-01-01", 1.0, 10.0))
    house.publish("a", {0: [1.0, 0.0], 1: [1.0, None]}, started_at=day(1))
    house.publish("b", {0: [0.0, 0.0], 1: [1.0, 1.0]}, started_at=day(2))
    house.warehouse.tidy()
    with duckdb.connect(str(house.warehouse.folder / "nightjar.duckdb"), read_only=True) as snapshot:
        snapshot.execute("SET TimeZone = 'UTC'")
        for relation in dict.fromkeys(row[0] for row in house.warehouse.catalog().rows):
            sql = f"FROM {relation} ORDER BY ALL"
            assert snapshot.execute(sql).fetchall() == house.ask(sql), relation
        assert snapshot.execute("FROM flips('a', 'b')").fetchall() == house.ask("FROM flips('a', 'b')")


def test_the_configuration_can_be_queried_by_its_fields(house):
    house.publish("run", {0: [1.0]}, env_args={"split": "dev", "seed": 7})
    [(metadata,)] = house.ask("SELECT metadata FROM runs WHERE env_args->>'split' = 'dev' AND env_args->>'seed' = '7'")
    assert json.loads(metadata)["run_id"] == "run"

"""The views and macros that people ask daily, against values computed by hand."""

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
    return House(tmp_path, run_writer)


class House:
    """Publishes runs that differ from the usual run in the given fields."""

    def __init__(self, folder, run_writer):
        self.warehouse = Warehouse(folder / "warehouse")
        self._folder, self._writer = folder, run_writer

    def publish(self, run_id, rewards=None, /, *, attempts=None, hashes=None, **metadata):
        """Publishes a run; rewards are the rewards of each example's rollouts, None for a failed one."""
        rollouts = []
        for example_id, group in (rewards or {}).items():
            fields = {"example_hash": (hashes or {}).get(example_id, f"hash-{example_id}")}
            for index, reward in enumerate(group):
                write = self._writer.failed if reward is None else self._writer.rollout
                rollouts.append(write(example_id, index, *([] if reward is None else [reward]), **fields))
        metadata = {"started_at": day(1), "status": "completed", **metadata}
        run_dir = self._writer.write(self._folder / run_id, rollouts, attempts, run_id=run_id, **metadata)
        self.warehouse.publish(run_dir, tidies=False)  # the file for other tools is not asked

    def publish_nights(self, runs):
        """Publishes runs, each of which is run_id, day, and what is told of it."""
        for run_id, night, *told in runs:
            self.publish(run_id, **{"started_at": night and day(night), **(told[0] if told else {})})

    def set_prices(self, *prices):
        with self.warehouse._backend.store.changing_prices() as kept:
            kept[:] = prices

    def ask(self, sql, parameters=None):
        return self.warehouse.query(sql, parameters).rows


UNDATED = {"finished_at": None, "published_at": day(3)}


class TestLeaderboard:
    def test_has_the_newest_finished_run_that_is_not_a_quick_run(self, house):
        house.publish_nights([
            ("old", 1, {"model": "m1", "avg_reward": 0.9}), ("new", 2, {"model": "m1", "avg_reward": 0.5}),
            ("quick", 3, {"model": "m1", "avg_reward": 1.0, "num_examples": 1}),
            ("running", 4, {"model": "m1", "avg_reward": None, "status": "running"}),
            ("failed", 5, {"model": "m1", "avg_reward": None, "status": "failed"}),
            ("other", 1, {"model": "m2", "status": "incomplete", "avg_reward": 0.75}),
            ("elsewhere", 1, {"model": "m2", "env_id": "mmlu", "avg_reward": None}),
        ])  # fmt: skip
        columns = "env_id, model, avg_reward, stderr, scored, coverage, status, started_at, run_id"
        assert house.ask(f"SELECT {columns} FROM leaderboard") == [
            ("gsm8k", "m2", 0.75, 0.25, 3, 0.75, "incomplete", moment(1), "other"),
            ("gsm8k", "m1", 0.5, 0.25, 3, 0.75, "completed", moment(2), "new"),
            ("mmlu", "m2", None, 0.25, 3, 0.75, "completed", moment(1), "elsewhere"),
        ]

    @pytest.mark.long
    @pytest.mark.parametrize(("runs", "leader"), [
        ([("large", 1, {"num_examples": 1000}), ("small", 11, {"num_examples": 100})], "large"),
        ([("large", 1, {"num_examples": 1000}), *((f"s{n}", n, {"num_examples": 100}) for n in (11, 12))], "s12"),
        ([("whole", 1, {"started_at": "2026-01-01T00:00:00Z", "coverage": 1.0}),
          *((str(night), night, {"coverage": 0.9}) for night in (1, 2))], "2"),
        ([("unknown", None, UNDATED), ("known", 2)], "unknown"),
    ], ids=["a smaller run", "smaller runs ten days later", "all recent nights partly failed", "no start"])  # fmt: skip
    def test_which_run_leads(self, house, runs, leader):
        house.publish_nights(runs)
        assert house.ask("SELECT run_id FROM leaderboard") == [(leader,)]

    def test_a_partly_failed_night_does_not_replace_a_complete_one(self, house):
        covered = {"whole": 1.0, "partly failed": 0.9, "mostly failed": 0.3}
        told = [{"coverage": coverage, "num_examples": 100} for coverage in covered.values()]
        house.publish_nights(zip(covered, (1, 2, 3), told, strict=True))
        assert house.ask("SELECT run_id FROM leaderboard") == [("whole",)]
        rows = house.ask("SELECT run_id, is_full, is_sound FROM finished_runs ORDER BY began")
        assert rows == [("whole", True, True), ("partly failed", True, False), ("mostly failed", False, False)]


class TestHistory:
    def test_compares_a_run_with_the_one_before_of_the_same_configuration(self, house):
        hot = {"sampling_args": {"temperature": 1.0}}
        house.publish_nights([
            ("1", 1, {"avg_reward": 0.5}), ("3", 3, {"avg_reward": 0.75}), ("2", 2, {"avg_reward": 0.25, **hot}),
            ("4", 4, {"avg_reward": 0.5, **hot}), ("running", 5, {"avg_reward": None, "status": "running"}),
        ])  # fmt: skip
        assert house.ask("SELECT run_id, avg_reward, change, configuration, started_at FROM history") == [
            ("1", 0.5, None, 1, moment(1)), ("3", 0.75, 0.25, 1, moment(3)), ("2", 0.25, None, 2, moment(2)),
            ("4", 0.5, 0.25, 2, moment(4)),
        ]  # fmt: skip

    @pytest.mark.long
    @pytest.mark.parametrize(("runs", "changes"), [
        ([("1", 1, {"avg_reward": 0.5, "dataset_fingerprint": "a"}),
          ("2", 2, {"avg_reward": 0.75, "dataset_fingerprint": "b"}),
          ("3", 3, {"avg_reward": 1.0, "dataset_fingerprint": "b"})], {"1": None, "2": None, "3": 0.25}),
        ([("1", 1, {"avg_reward": 0.5}), ("quick", 2, {"avg_reward": 1.0, "dataset_fingerprint": "its first five"}),
          ("2", 3, {"avg_reward": 0.75})], {"1": None, "quick": None, "2": 0.25}),
        ([(str(night), night, {"dataset_fingerprint": None}) for night in (1, 2)], {"1": None, "2": None}),
        ([("2", None, {"avg_reward": 0.75, **UNDATED}), ("1", 1, {"avg_reward": 0.5})], {"1": None, "2": 0.25}),
        *(([("1", 1), ("2", 2, different)], {"1": None, "2": None}) for different in (
            {"model": "m"}, {"env_id": "e"}, {"env_args": {"split": "dev"}}, {"extra_env_kwargs": None},
        )),
    ], ids=["other data", "other data in between", "unknown data", "without a start the publication counts",
            "model", "environment", "its arguments", "its settings"])  # fmt: skip
    def test_only_runs_of_one_configuration_over_the_same_data_are_compared(self, house, runs, changes):
        house.publish_nights(runs)
        found = house.ask("SELECT run_id, change FROM history")
        assert (dict(found), len(found)) == (changes, len(changes))


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

    @pytest.mark.long
    @pytest.mark.parametrize(("n", "correct"), [(64, 1), (64, 63), (256, 3), (1500, 700), (2000, 1000), (2000, 1)])
    def test_holds_for_many_rollouts(self, house, n, correct):
        house.publish("run", {0: [1.0] * correct + [0.0] * (n - correct)}, rollouts_per_example=n)
        rows = house.ask("SELECT k, pass_at_k, pass_all_k FROM pass_at_k")
        at_k, all_k = statistics.pass_curves([correct], n)
        assert [k for k, *_ in rows] == list(at_k)
        for k, pass_at_k, pass_all_k in rows:
            assert pass_at_k == pytest.approx(at_k[k], rel=1e-12, abs=1e-12)
            assert pass_all_k == pytest.approx(all_k[k], rel=1e-12, abs=1e-12)


class TestRollouts:
    def test_example_rewards_are_means_over_scored_rollouts(self, house):
        house.publish("run", {0: [1.0, 0.0], 1: [0.5, None], 2: [None, None]})
        assert house.ask("FROM example_rewards") == [
            ("run", 0, "hash-0", 0.5, 2, 0), ("run", 1, "hash-1", 0.5, 1, 1), ("run", 2, "hash-2", None, 0, 2),
        ]  # fmt: skip

    def test_metrics_and_errors_have_a_row_each(self, house):
        house.publish("run", {0: [1.0], 1: [None]})
        assert house.ask("FROM metrics ORDER BY ALL") == [("run", 0, 0, "correct", 1.0), ("run", 0, 0, "length", 12.0)]
        columns = "run_id, example_id, rollout_index, phase, error, message, chain, traceback"
        row = ("ModelError", "429 Too Many Requests", "ModelError -> RateLimitError", None)
        assert house.ask(f"SELECT {columns} FROM errors") == [("run", 1, 0, "generation", *row)]

    def test_texts_are_stored_once_and_belong_to_their_rollouts(self, house):
        house.publish("a", {0: [1.0, 1.0], 1: [0.0]})
        house.publish("b", {5: [0.0]}, hashes={5: "hash-0"})
        assert house.ask("SELECT count(*) FROM rollouts WHERE prompt->>'$[0].content' = '2 + 2?'") == [(4,)]
        hashes = [row[0] for row in house.ask("SELECT example_hash FROM examples ORDER BY 1")]
        assert hashes == ["hash-0", "hash-1"]
        columns = "task, prompt, answer, info, tool_defs"
        row = ("math", '[{"role":"user","content":"2 + 2?"}]', "4", '{"level":1}', None)
        assert house.ask(f"SELECT DISTINCT {columns} FROM examples") == [row]


class TestRegressions:
    def test_has_examples_with_less_reward_in_the_last_of_two_comparable_runs(self, house):
        """Examples are paired by content: the dataset was reordered between the runs, and grew."""
        house.publish("before", {0: [1.0, 1.0], 1: [0.5, 0.5], 2: [0.0, 1.0]}, started_at=day(1))
        house.publish(
            "after", {10: [0.5, 0.0], 11: [0.5, 0.5], 12: [0.0, None], 13: [0.0, 0.0]},
            hashes={10: "hash-0", 11: "hash-1", 12: "hash-2"}, started_at=day(2),
        )  # fmt: skip
        columns = "env_id, example_id, reward_before, reward_after, change, example_hash, run_before, run_after"
        assert house.ask(f"SELECT {columns} FROM regressions") == [
            ("gsm8k", 10, 1.0, 0.25, -0.75, "hash-0", "before", "after"),
            ("gsm8k", 12, 0.5, 0.0, -0.5, "hash-2", "before", "after"),
        ]

    @pytest.mark.long
    @pytest.mark.parametrize(("runs", "expected"), [
        ([({0: [1.0]}, 1), ({0: [0.5]}, 2), ({0: [0.5]}, 3), ({0: [0.0]}, 4, {"sampling_args": {}}),
          ({0: [0.0]}, 5, {"status": "running"})], []),
        ([({0: [1.0]}, 1), ({0: [0.5]}, 2), ({0: [0.5]}, 3), ({0: [0.0]}, 4, {"sampling_args": {}}),
          ({0: [0.0]}, 5, {"status": "running"}), ({0: [0.25]}, 6)], [("3", "6", -0.25)]),
        ([({0: [1.0], 1: [1.0]}, 1, {"num_examples": 100}), ({0: [1.0], 1: [0.0]}, 2, {"num_examples": 100}),
          ({0: [0.5]}, 3, {"num_examples": 1})], [("1", "2", -1.0)]),
        ([({0: [1.0], 1: [1.0]}, 1, {"num_examples": 100}), ({0: [0.75]}, 2, {"num_examples": 1}),
          ({0: [0.5], 1: [1.0], 2: [0.0]}, 3, {"num_examples": 101}), ({0: [0.0]}, 4, {"num_examples": 1})],
         [("1", "3", -0.5)]),
        ([({0: [1.0], 1: [1.0]}, 9, {"num_examples": 100, "started_at": "2026-01-01T00:00:00Z"}),
          ({0: [1.0]}, 1, {"num_examples": 20}), ({0: [0.0]}, 2, {"num_examples": 20})], [("1", "2", -1.0)]),
        ([({0: [0.1, 0.1, 0.1]}, 1), ({0: [0.1]}, 2)], []),
        ([({0: [1.0], 1: [1.0]}, 1, {"hashes": {0: None, 1: None}}),
          ({0: [0.0], 1: [0.0]}, 2, {"hashes": {0: None, 1: None}})], []),
    ], ids=["other settings, and unfinished", "the two newest", "a quick run after the nightly ones",
            "a dataset that grew", "a large run of long ago", "means that differ by rounding", "no hash"])  # fmt: skip
    def test_compares_the_two_newest_finished_runs_of_a_configuration(self, house, runs, expected):
        for rewards, night, *told in runs:
            house.publish(str(night), rewards, **{"started_at": day(night), **(told[0] if told else {})})
        assert house.ask("SELECT run_before, run_after, change FROM regressions") == expected


class TestExamples:
    @pytest.mark.parametrize(("contents", "expected"), [
        ([(2, "hash", "task", "answer"), *[(1, "hash", None, "other")] * 2], [("hash", None, "other")]),
        ([(1, None, "a", "1"), *[(2, None, "b", "2")] * 2, (3, "1", "c", "3")],
         [("1", "c", "3"), (None, "a", "1"), (None, "b", "2")]),
    ], ids=["one of several with the same hash", "without a hash they differ by content"])  # fmt: skip
    def test_are_the_different_contents(self, house, contents, expected):
        house.publish("run", {0: [1.0]})
        with house.warehouse.connect() as connection:
            connection.execute("CREATE OR REPLACE TEMP TABLE contents AS FROM segments.examples LIMIT 0")
            insert = "INSERT INTO contents (content_id, example_hash, task, answer) VALUES (?, ?, ?, ?)"
            connection.executemany(insert, contents)
            connection.execute("CREATE OR REPLACE VIEW segments.examples AS FROM temp.contents")
            found = connection.execute("SELECT example_hash, task, answer FROM examples ORDER BY ALL").fetchall()
            assert found == expected


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


class TestCost:
    def attempts(self, run_writer):
        """Two attempts of 100 tokens in and 20 out, the first of which failed, and one whose tokens are unknown."""
        unknown = run_writer.attempt(0, 1, 1, token_usage=None)
        return [run_writer.attempt(0, 0, 1, error=run_writer.failure), run_writer.attempt(0, 0, 2), unknown]

    def test_counts_all_attempts_at_the_price_of_the_day(self, house, run_writer):
        later, other = price("m", "2026-11-10", 2.0, 20.0), price("other", "2026-01-01", 100.0, 100.0)
        house.set_prices(price("m", "2026-11-01", 1.0, 10.0), later, other)
        usage = {"input_tokens": 100, "output_tokens": 20}
        for number in (9, 10, 11):
            told = {"attempts": self.attempts(run_writer), "model": "m", "started_at": day(number), "usage": usage}
            house.publish(str(number), {0: [1.0]}, **told)
        rows = house.ask("SELECT run_id, attempts, input_tokens, output_tokens, cost FROM cost")
        new, old = (pytest.approx(each / 1e6) for each in (200 * 2 + 40 * 20, 200 * 1 + 40 * 10))
        assert rows == [("11", 3, 200, 40, new), ("10", 3, 200, 40, new), ("9", 3, 200, 40, old)]
        assert house.ask("SELECT cost FROM runs WHERE run_id = '9'") == [(pytest.approx((100 * 1 + 20 * 10) / 1e6),)]

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
        [row] = house.ask("SELECT attempts, input_tokens, output_tokens, cost FROM cost")
        assert row == (None, 300, 60, pytest.approx(900 / 1e6))

    def test_the_last_of_several_prices_of_a_moment_counts(self, house):
        house.publish("run", {0: [1.0]}, model="m")
        lines = ["model,since,input,output", "m,2026-01-01,1,1", "m,2026-01-01T00:00:00Z,2,20", "n,2026-01-01,3,3"]
        (house.warehouse.folder / "prices.csv").write_text("\n".join(lines), "utf-8-sig")
        assert house.ask("SELECT model, input, output FROM prices ORDER BY 1") == [("m", 2.0, 20.0), ("n", 3.0, 3.0)]
        assert house.ask("SELECT cost FROM runs") == [(pytest.approx((300 * 2 + 60 * 20) / 1e6),)]
        assert len(load_prices(("\ufeff" + "\n".join(lines)).encode())) == 2


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

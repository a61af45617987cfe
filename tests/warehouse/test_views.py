"""The views and macros that people ask daily, against values computed by hand."""

from datetime import UTC, datetime

import pytest

from nightjar.warehouse.storage.records import load_prices, price


def day(number):
    return f"2026-11-{number:02}T00:00:00Z"


def moment(number):
    return datetime(2026, 11, number, tzinfo=UTC)


@pytest.fixture
def publish(house, run_writer):
    """Publishes a run that differs from the usual run in the given fields, on a day of the month or without a start.

    Rewards are those of each example's rollouts, None for a failed one. The runs of a case have an environment.
    """

    def publish(run_id, night=1, rewards=None, /, *, attempts=None, hashes=None, case=None, **metadata):
        rollouts = []
        for example_id, group in (rewards or {}).items():
            fields = {"example_hash": (hashes or {}).get(example_id, f"hash-{example_id}")}
            for index, reward in enumerate(group):
                write = run_writer.failed if reward is None else run_writer.rollout
                rollouts.append(write(example_id, index, *([] if reward is None else [reward]), **fields))
        told = {"started_at": night and day(night), "status": "completed", "env_id": case or "gsm8k", **metadata}
        house.publish_rows(f"{case}: {run_id}" if case else run_id, rollouts, attempts, **told)

    return publish


@pytest.fixture
def ask(house):
    return lambda sql, parameters=None: house.warehouse.query(sql, parameters).rows


UNDATED = {"finished_at": None, "published_at": day(3)}


@pytest.mark.slow
def test_the_leaderboard_has_the_newest_finished_run_that_is_complete_enough(publish, ask):
    for run_id, night, told in (
        ("old", 1, {"model": "m1", "avg_reward": 0.9}), ("new", 2, {"model": "m1", "avg_reward": 0.5}),
        ("quick", 3, {"model": "m1", "avg_reward": 1.0, "num_examples": 1}),
        ("running", 4, {"model": "m1", "avg_reward": None, "status": "running"}),
        ("failed", 5, {"model": "m1", "avg_reward": None, "status": "failed"}),
        ("other", 1, {"model": "m2", "status": "incomplete", "avg_reward": 0.75}),
        ("elsewhere", 1, {"model": "m2", "env_id": "mmlu", "avg_reward": None}),
    ):  # fmt: skip
        publish(run_id, night, **told)
    columns = "env_id, model, avg_reward, stderr, scored, coverage, status, started_at, run_id"
    assert ask(f"SELECT {columns} FROM leaderboard") == [
        ("gsm8k", "m2", 0.75, 0.25, 3, 0.75, "incomplete", moment(1), "other"),
        ("gsm8k", "m1", 0.5, 0.25, 3, 0.75, "completed", moment(2), "new"),
        ("mmlu", "m2", None, 0.25, 3, 0.75, "completed", moment(1), "elsewhere"),
    ]
    large, small = {"num_examples": 1000}, {"num_examples": 100}
    for case, runs in {
        "a smaller run": [("large", 1, large), ("small", 11, small)],
        "smaller runs ten days later": [("large", 1, large), ("s11", 11, small), ("s12", 12, small)],
        "all recent nights partly failed": [
            ("whole", 1, {"started_at": "2026-01-01T00:00:00Z", "coverage": 1.0}), ("1", 1, {"coverage": 0.9}),
            ("2", 2, {"coverage": 0.9}),
        ],
        "no start": [("unknown", None, UNDATED), ("known", 2)],
        "a complete night": [
            (share, night, {"coverage": float(share), **small}) for night, share in enumerate(("1", "0.9", "0.3"), 1)
        ],
    }.items():  # fmt: skip
        for run_id, night, *told in runs:
            publish(run_id, night, case=case, **dict(*told))
    assert set(ask("SELECT run_id FROM leaderboard WHERE env_id NOT IN ('gsm8k', 'mmlu')")) == {
        ("a smaller run: large",), ("smaller runs ten days later: s12",), ("all recent nights partly failed: 2",),
        ("no start: unknown",), ("a complete night: 1",),
    }  # fmt: skip
    rows = ask("SELECT is_full, is_sound FROM finished_runs WHERE env_id = 'a complete night' ORDER BY began")
    assert rows == [(True, True), (True, False), (False, False)]


@pytest.mark.slow
def test_history_compares_a_run_with_the_one_before_of_the_same_configuration_over_the_same_data(publish, ask):
    def rewarded(avg_reward, **told):
        return {"avg_reward": avg_reward, **told}

    hot = {"sampling_args": {"temperature": 1.0}}
    for run_id, night, told in (
        ("1", 1, rewarded(0.5)), ("3", 3, rewarded(0.75)), ("2", 2, rewarded(0.25, **hot)),
        ("4", 4, rewarded(0.5, **hot)), ("running", 5, rewarded(None, status="running")),
    ):  # fmt: skip
        publish(run_id, night, **told)
    assert ask("SELECT run_id, avg_reward, change, configuration, started_at FROM history") == [
        ("1", 0.5, None, 1, moment(1)), ("3", 0.75, 0.25, 1, moment(3)), ("2", 0.25, None, 2, moment(2)),
        ("4", 0.5, 0.25, 2, moment(4)),
    ]  # fmt: skip
    differences = {
        "model": {"model": "m"}, "environment": {"env_id": "e"}, "its arguments": {"env_args": {"split": "dev"}},
        "its settings": {"extra_env_kwargs": None},
    }  # fmt: skip
    a, b, five = ({"dataset_fingerprint": name} for name in ("a", "b", "its first five"))
    for case, runs in {
        "other data": [("1", 1, rewarded(0.5, **a)), ("2", 2, rewarded(0.75, **b)), ("3", 3, rewarded(1.0, **b))],
        "other data in between": [("1", 1, rewarded(0.5)), ("q", 2, rewarded(1.0, **five)), ("2", 3, rewarded(0.75))],
        "unknown data": [(night, night, {"dataset_fingerprint": None}) for night in (1, 2)],
        "the publication counts": [("2", None, rewarded(0.75, **UNDATED)), ("1", 1, rewarded(0.5))],
        **{name: [("1", 1), ("2", 2, different)] for name, different in differences.items()},
    }.items():  # fmt: skip
        for run_id, night, *told in runs:
            publish(run_id, night, case=case, **dict(*told))
    found = ask("SELECT run_id, change FROM history WHERE run_id LIKE '%:%'")
    changed = {("other data: 3", 0.25), ("other data in between: 2", 0.25), ("the publication counts: 2", 0.25)}
    assert (len(found), {(run_id, change) for run_id, change in found if change is not None}) == (18, changed)


@pytest.mark.long
def test_pass_at_k_agrees_with_the_statistics(publish, ask):
    """Correct is a reward of 0.5 or more; an example with a failed rollout does not count."""
    from nightjar import statistics

    cases = {"mixed": (6, [0, 1, 3, 5, 6])}
    cases |= {f"{c} of {n}": (n, [c]) for n, c in ((64, 63), (256, 3), (2000, 1000), (2000, 1))}
    for run_id, (n, correct) in cases.items():
        rewards = {number: [1.0] * c + [0.25] * (n - c) for number, c in enumerate(correct)}
        failed = {9: [1.0, 1.0, 1.0, 1.0, 1.0, None]} if run_id == "mixed" else {}
        publish(run_id, 1, rewards | failed, rollouts_per_example=n)
        at_k, all_k = statistics.pass_curves(correct, n)
        found = ask("SELECT k, pass_at_k, pass_all_k, examples FROM pass_at_k WHERE run_id = ?", [run_id])
        expected = [(k, at_k[k], all_k[k], len(correct)) for k in at_k]
        assert found == [pytest.approx(row, rel=1e-12, abs=1e-12) for row in expected], run_id
    publish("threshold", 1, {0: [0.5, 0.75]}, pass_threshold=0.75)
    rows = ask("SELECT k, pass_at_k, pass_all_k FROM pass_at_k WHERE run_id = 'threshold'")
    assert rows == [(1, 0.5, 0.5), (2, 1.0, 0.0)]
    rows = ask("SELECT k, pass_at_k FROM pass_at_k WHERE run_id = 'mixed'")
    assert ([k for k, _ in rows], rows[0][1]) == ([1, 2, 4], pytest.approx((0 + 1 / 6 + 3 / 6 + 5 / 6 + 1) / 5))


def test_example_rewards_metrics_and_errors_have_a_row_each_and_texts_are_stored_once(publish, ask):
    publish("run", 1, {0: [1.0, 0.0], 1: [0.5, None], 2: [None, None]})
    assert ask("FROM example_rewards") == [
        ("run", 0, "hash-0", 0.5, 2, 0), ("run", 1, "hash-1", 0.5, 1, 1), ("run", 2, "hash-2", None, 0, 2),
    ]  # fmt: skip
    found = ask("FROM metrics ORDER BY ALL")
    assert (found[:2], len(found)) == ([("run", 0, 0, "correct", 1.0), ("run", 0, 0, "length", 12.0)], 6)
    columns = "run_id, example_id, rollout_index, phase, error, message, chain, traceback"
    row = ("generation", "ModelError", "429 Too Many Requests", "ModelError -> RateLimitError", None)
    failed = [("run", 1, 1, *row), ("run", 2, 0, *row), ("run", 2, 1, *row)]
    assert ask(f"SELECT {columns} FROM errors ORDER BY ALL") == failed
    publish("other", 1, {5: [0.0]}, hashes={5: "hash-0"})
    assert ask("SELECT count(*) FROM rollouts WHERE prompt->>'$[0].content' = '2 + 2?'") == [(7,)]
    assert ask("SELECT example_hash FROM examples ORDER BY 1") == [("hash-0",), ("hash-1",), ("hash-2",)]
    row = ("math", '[{"role":"user","content":"2 + 2?"}]', "4", '{"level":1}', None)
    assert ask("SELECT DISTINCT task, prompt, answer, info, tool_defs FROM examples") == [row]


@pytest.mark.long
def test_regressions_are_examples_with_less_reward_in_the_last_of_two_comparable_runs(publish, ask):
    """Examples are paired by content: the dataset was reordered between the runs, and grew."""
    hashes = {10: "hash-0", 11: "hash-1", 12: "hash-2"}
    publish("before", 1, {0: [1.0, 1.0], 1: [0.5, 0.5], 2: [0.0, 1.0]})
    publish("after", 2, {10: [0.5, 0.0], 11: [0.5, 0.5], 12: [0.0, None], 13: [0.0, 0.0]}, hashes=hashes)
    columns = "env_id, example_id, reward_before, reward_after, change, example_hash, run_before, run_after"
    assert ask(f"SELECT {columns} FROM regressions") == [
        ("gsm8k", 10, 1.0, 0.25, -0.75, "hash-0", "before", "after"),
        ("gsm8k", 12, 0.5, 0.0, -0.5, "hash-2", "before", "after"),
    ]
    others = [(1, {0: [1.0]}), (2, {0: [0.5]}), (3, {0: [0.5]}), (4, {0: [0.0]}, {"sampling_args": {}}),
              (5, {0: [0.0]}, {"status": "running"})]  # fmt: skip
    right, worse, unknown = {0: [1.0], 1: [1.0]}, {0: [1.0], 1: [0.0]}, {"hashes": {0: None, 1: None}}
    one, twenty, hundred, more = ({"num_examples": number} for number in (1, 20, 100, 101))
    for case, runs in {
        "other settings, and unfinished": others,
        "the two newest": [*others, (6, {0: [0.25]})],
        "a quick run after the nightly ones": [(1, right, hundred), (2, worse, hundred), (3, {0: [0.5]}, one)],
        "a dataset that grew": [
            (1, right, hundred), (2, {0: [0.75]}, one), (3, {0: [0.5], 1: [1.0], 2: [0.0]}, more), (4, {0: [0.0]}, one),
        ],
        "a large run of long ago": [
            (9, right, {"started_at": day(1).replace("11", "01"), **hundred}), (1, {0: [1.0]}, twenty),
            (2, {0: [0.0]}, twenty),
        ],
        "means that differ by rounding": [(1, {0: [0.1, 0.1, 0.1]}), (2, {0: [0.1]})],
        "no hash": [(1, right, unknown), (2, worse, unknown)],
    }.items():  # fmt: skip
        for night, rewards, *told in runs:
            publish(night, night, rewards, case=case, **dict(*told))
    assert set(ask("SELECT run_before, run_after, change FROM regressions WHERE env_id <> 'gsm8k'")) == {
        ("the two newest: 3", "the two newest: 6", -0.25), ("a dataset that grew: 1", "a dataset that grew: 3", -0.5),
        ("a quick run after the nightly ones: 1", "a quick run after the nightly ones: 2", -1.0),
        ("a large run of long ago: 1", "a large run of long ago: 2", -1.0),
    }  # fmt: skip


def test_examples_are_the_different_contents(house, publish):
    publish("run", 1, {0: [1.0]})
    for contents, expected in (  # one of several with the same hash; without a hash they differ by content
        ([(2, "hash", "task", "answer"), *[(1, "hash", None, "other")] * 2], [("hash", None, "other")]),
        ([(1, None, "a", "1"), *[(2, None, "b", "2")] * 2, (3, "1", "c", "3")],
         [("1", "c", "3"), (None, "a", "1"), (None, "b", "2")]),
    ):  # fmt: skip
        with house.warehouse.connect() as connection:
            connection.execute("CREATE OR REPLACE TEMP TABLE contents AS FROM segments.examples LIMIT 0")
            insert = "INSERT INTO contents (content_id, example_hash, task, answer) VALUES (?, ?, ?, ?)"
            connection.executemany(insert, contents)
            connection.execute("CREATE OR REPLACE VIEW segments.examples AS FROM temp.contents")
            found = connection.execute("SELECT example_hash, task, answer FROM examples ORDER BY ALL").fetchall()
            assert found == expected


def test_flips_are_examples_that_are_fixed_and_broken(publish, ask):
    publish("a", 1, {0: [1.0, 1.0], 1: [0.0, 0.0], 2: [1.0, 1.0], 3: [1.0], 4: [None]})
    publish("b", 1, {7: [0.0, 0.25], 1: [1.0, 0.0], 2: [0.5, 1.0], 5: [0.0], 4: [1.0]}, hashes={7: "hash-0"})
    columns = "example_id, flip, correct_a, correct_b, reward_a, reward_b, example_hash"
    assert ask(f"SELECT {columns} FROM flips('a', 'b')") == [
        (7, "broken", 1.0, 0.0, 1.0, 0.125, "hash-0"),
        (1, "fixed", 0.0, 0.5, 0.0, 0.5, "hash-1"),
    ]
    flips = dict(ask("SELECT example_hash, flip FROM flips(?, ?)", ["b", "a"]))
    assert flips == {"hash-0": "fixed", "hash-1": "broken"}


def set_prices(house, *prices):
    with house.warehouse._backend.store.changing_prices() as kept:
        kept[:] = prices


def test_cost_counts_all_attempts_at_the_price_of_the_day(house, publish, ask, run_writer):
    """Each run has two attempts of 100 tokens in and 20 out, one of which failed, and one whose tokens are unknown."""
    failed = run_writer.attempt(0, 0, 1, error=run_writer.failure)
    attempts = [failed, run_writer.attempt(0, 0, 2), run_writer.attempt(0, 1, token_usage=None)]
    usage = {"input_tokens": 100, "output_tokens": 20}
    for run_id, night, model in (("9", 9, "m"), ("10", 10, "m"), ("11", 11, "m"), ("early", 1, "m"), ("x", 9, "x")):
        publish(run_id, night, {0: [1.0]}, attempts=attempts, model=model, usage=usage)
    publish("no ledger", 9, {0: [1.0]}, model="m")
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    publish("no start", None, finished_at=day(10), model="m", usage=usage)
    assert {row[0] for row in ask("SELECT cost FROM cost")} == {None}
    later, other = price("m", "2026-11-10", 2.0, 20.0), price("other", "2026-01-01", 100.0, 100.0)
    set_prices(house, price("m", "2026-11-02", 1.0, 10.0), later, other)
    new, old = (pytest.approx(each / 1e6) for each in (200 * 2 + 40 * 20, 200 * 1 + 40 * 10))
    rows = ask("SELECT run_id, attempts, input_tokens, output_tokens, cost FROM cost WHERE run_id <> 'no start'")
    assert {row[0]: row[1:] for row in rows} == {
        "11": (3, 200, 40, new), "10": (3, 200, 40, new), "9": (3, 200, 40, old), "early": (3, 200, 40, None),
        "x": (3, 200, 40, None), "no ledger": (None, 300, 60, pytest.approx(900 / 1e6)),
    }  # fmt: skip
    costs = dict(ask("SELECT run_id, cost FROM runs"))
    assert (costs["9"], costs["early"], costs["x"]) == (pytest.approx((100 * 1 + 20 * 10) / 1e6), None, None)
    assert [costs["no start"]] == [cost for [cost] in ask("SELECT cost FROM cost WHERE run_id = 'no start'")] == [2.0]


def test_the_last_of_several_prices_of_a_moment_counts(house, publish, ask):
    publish("run", 1, {0: [1.0]}, model="m")
    lines = ["model,since,input,output", "m,2026-01-01,1,1", "m,2026-01-01T00:00:00Z,2,20", "n,2026-01-01,3,3"]
    (house.warehouse.folder / "prices.csv").write_text("\n".join(lines), "utf-8-sig")
    assert ask("SELECT model, input, output FROM prices ORDER BY 1") == [("m", 2.0, 20.0), ("n", 3.0, 3.0)]
    assert ask("SELECT cost FROM runs") == [(pytest.approx((300 * 2 + 60 * 20) / 1e6),)]
    assert len(load_prices(("\ufeff" + "\n".join(lines)).encode())) == 2


def test_retries_count_attempts_that_failed(publish, ask, run_writer):
    failed, other = run_writer.failure, {**run_writer.failure, "error_chain_repr": "ModelError -> Timeout"}
    attempts = [
        run_writer.attempt(0, 0, 1, error=failed, generation_ms=1500.0),
        run_writer.attempt(0, 0, 2, error=failed, generation_ms=500.0, token_usage=None),
        run_writer.attempt(0, 0, 3),
        run_writer.attempt(0, 1, 1, error=failed, generation_ms=1000.0),
        run_writer.attempt(0, 1, 2, error=other, generation_ms=250.0),
    ]
    publish("run", 1, {0: [1.0, None]}, attempts=attempts)
    columns = "run_id, error, attempts, rollouts, seconds, input_tokens, output_tokens"
    assert ask(f"SELECT {columns} FROM retries") == [
        ("run", "ModelError -> RateLimitError", 3, 2, 3.0, 200, 40),
        ("run", "ModelError -> Timeout", 1, 1, 0.25, 100, 20),
    ]


@pytest.mark.slow
def test_the_snapshot_has_the_same_views(house, publish, ask):
    import duckdb

    set_prices(house, price("openai/gpt-4.1-mini", "2026-01-01", 1.0, 10.0))
    publish("a", 1, {0: [1.0, 0.0], 1: [1.0, None]})
    publish("b", 2, {0: [0.0, 0.0], 1: [1.0, 1.0]})
    house.warehouse.tidy()
    with duckdb.connect(str(house.warehouse.folder / "nightjar.duckdb"), read_only=True) as snapshot:
        snapshot.execute("SET TimeZone = 'UTC'")
        for relation in dict.fromkeys(row[0] for row in house.warehouse.catalog().rows):
            sql = f"FROM {relation} ORDER BY ALL"
            assert snapshot.execute(sql).fetchall() == ask(sql), relation
        assert snapshot.execute("FROM flips('a', 'b')").fetchall() == ask("FROM flips('a', 'b')")

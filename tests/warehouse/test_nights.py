"""Verdicts on nights of a suite, against what was planted in their runs."""

import shutil
from dataclasses import replace

import pytest

from nightjar import analysis
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import Night, NightEvaluation

EXAMPLES = 40


@pytest.fixture
def house(house):
    return Nightly(house)


@pytest.fixture(scope="module")
def first_night(shared_house):
    """A folder with the first night, for tests to copy."""
    Nightly(shared_house).both("2026-11-01")
    return shared_house.folder


@pytest.fixture
def begun(house, first_night):
    """A house with the first night."""
    shutil.copytree(first_night, house.warehouse.folder.parents[1], dirs_exist_ok=True)
    return house


class Nightly:
    """Publishes nights of a suite with the evaluations gsm8k and mmlu."""

    def __init__(self, house):
        self.warehouse, self._publish = house.warehouse, house.publish

    def run(self, night, env_id="gsm8k", right=36, failed=0, examples=EXAMPLES, **metadata):
        """Publishes a run of 40 examples, of which the first ``right`` are right and the last ``failed`` failed."""
        rewards = [None if n >= examples - failed else float(n < right) for n in range(examples)]
        told = {"suite": "nightly", "tags": [f"night:{night}"], "env_id": env_id,
                "started_at": f"{night}T02:00:00Z", "status": "incomplete" if failed else "completed"}  # fmt: skip
        return self._publish(metadata.pop("run_id", f"{night}-{env_id}"), rewards, **{**told, **metadata})

    def judge(self, night, *names, **changes):
        evaluations = [NightEvaluation(name, "missing", name, "m") for name in names or ("gsm8k", "mmlu")]
        judged = analysis.judge_night(
            self.warehouse, Night("nightly", night, "running", evaluations=evaluations, **changes)
        )
        self.warehouse.write_night(judged)
        return judged

    def both(self, night, **gsm8k):
        self.run(night, "mmlu", right=20)
        self.run(night, "gsm8k", **gsm8k)
        return self.judge(night)


def test_the_first_complete_night_is_accepted_and_one_completed_later_is_judged_again(house):
    judged = house.both("2026-11-01")
    assert judged.verdict == "accepted"
    assert [one.change for one in judged.evaluations] == ["new", "new"]
    assert "2 of 2 evaluations complete; nothing to compare with" in judged.line
    house.run("2026-11-02", "mmlu", right=20, failed=3)
    assert house.judge("2026-11-02", "mmlu").verdict == "incomplete"
    house.run("2026-11-02", "mmlu", right=20)
    [_, judged] = [analysis.judge_night(house.warehouse, one) for one in house.warehouse.nights()]
    assert (judged.verdict, judged.night) == ("accepted", "2026-11-02")


def test_a_few_that_change_are_chance_and_many_are_not(begun):
    assert begun.both("2026-11-02", right=33).verdict == "accepted"
    worse = begun.both("2026-11-03", right=20)
    assert worse.verdict == "worse"
    gsm8k, mmlu = worse.evaluations
    assert (gsm8k.change, mmlu.change) == ("worse", "same")
    # 36 and 33 were right before, 20 are now: 13 examples lower by 1, three that were right once by 1/2
    assert gsm8k.difference == pytest.approx(-14.5 / 40)
    # each of the 13 is the odd one of three, so the chance is about (1/3)**13
    assert gsm8k.p_worse < 0.001
    assert (
        "gsm8k worse by 0.3625 (standard error 0.0738) than on 2026-11-02 and 1 night before (40 examples)"
        in worse.line
    )


def test_the_nights_after_are_compared_with_the_last_accepted_one(begun):
    begun.both("2026-11-02", right=20)
    still = begun.both("2026-11-03", right=20)
    assert (still.verdict, still.evaluations[0].against_night) == ("worse", "2026-11-01")
    back = begun.both("2026-11-04", right=36)
    assert back.verdict == "accepted"


def test_a_night_accepted_by_hand_is_the_next_baseline(begun):
    low = begun.both("2026-11-02", right=20)
    begun.warehouse.write_night(analysis.judge_night(begun.warehouse, replace(low, is_accepted_by_hand=True)))
    assert begun.both("2026-11-03", right=20).verdict == "accepted"
    assert begun.warehouse.nights()[1].line.endswith("accepted by hand")


def test_an_improvement_is_accepted_and_reported(house):
    house.both("2026-11-01", right=20)
    better = house.both("2026-11-02")
    assert (better.verdict, better.evaluations[0].change) == ("accepted", "better")


def test_missing_rollouts_are_no_verdict_on_the_model(begun):
    begun.run("2026-11-02", "mmlu", right=20, failed=30)
    judged = begun.judge("2026-11-02")
    assert judged.verdict == "incomplete"
    assert "gsm8k has no run; mmlu lacks 30 of 40 rollouts" in judged.line


def test_a_night_is_judged_in_a_read_only_warehouse(house):
    from nightjar.evaluation.nights import judged_now

    house.run("2026-11-01", failed=3)
    night = house.judge("2026-11-01", "gsm8k")
    house.run("2026-11-01")
    (house.warehouse.folder / "nights.lock").unlink()
    (house.warehouse.folder / "nights.lock").mkdir()
    assert judged_now(house.warehouse, night).verdict == "accepted"
    assert house.warehouse.nights() == [night]


def test_a_changed_dataset_is_compared_over_the_common_examples_and_reported(begun):
    other = begun.both("2026-11-02", hashes="new")
    assert other.evaluations[0].change == "new"
    assert (other.evaluations[0].pairs, other.evaluations[0].unpaired) == (0, 80)
    assert "gsm8k has another dataset, 0 examples in common" in other.line
    grown = begun.both("2026-11-03", hashes="new", examples=50, dataset_fingerprint="grown")
    assert (grown.evaluations[0].pairs, grown.evaluations[0].unpaired) == (40, 10)


def test_the_complete_run_of_an_evaluation_counts(house):
    house.run("2026-11-01")
    house.run("2026-11-01", right=0, failed=1, run_id="again", started_at="2026-11-01T09:00:00Z")
    [one] = house.judge("2026-11-01", "gsm8k").evaluations
    assert one.run_id == "2026-11-01-gsm8k"


@pytest.mark.long
@pytest.mark.slow
def test_a_lucky_night_is_not_what_the_next_is_measured_by_alone(house):
    for day in range(1, 7):
        house.run(f"2026-11-0{day}", right=30)
        assert house.judge(f"2026-11-0{day}", "gsm8k").verdict == "accepted"
    house.run("2026-11-07", right=38)
    assert house.judge("2026-11-07", "gsm8k").verdict == "accepted"
    house.run("2026-11-08", right=30)
    usual = house.judge("2026-11-08", "gsm8k")
    assert (usual.verdict, usual.evaluations[0].against_nights) == ("accepted", 7)


def test_nights_of_other_settings_are_no_part_of_what_is_normal(begun):
    begun.both("2026-11-02", right=36, model="another")
    judged = begun.both("2026-11-03", right=36, model="another")
    assert (judged.evaluations[0].against_nights, judged.evaluations[1].against_nights) == (1, 2)


def test_a_comparison_of_two_runs_is_paired_by_example(house):
    before, after = house.run("2026-11-01", right=10, examples=10), house.run("2026-11-02", right=6, examples=10)
    paired = analysis.compare_run(house.warehouse, after, [before])
    assert (paired.pairs, paired.difference) == (10, pytest.approx(-0.4))
    # s of six 0 and four -1 is sqrt(10/9 * 0.24), over sqrt(10)
    assert paired.stderr == pytest.approx((0.24 / 9) ** 0.5)


def test_nights_are_asked_in_sql(begun):
    begun.both("2026-11-02", right=20)
    rows = begun.warehouse.query("SELECT suite, night::VARCHAR, verdict, evaluations FROM nights").rows
    assert rows == [("nightly", "2026-11-01", "accepted", 2), ("nightly", "2026-11-02", "worse", 2)]
    sql = "SELECT name, change, against_night::VARCHAR, pairs FROM night_evaluations WHERE night = '2026-11-02'"
    changes = (("gsm8k", "worse"), ("mmlu", "same"))
    assert begun.warehouse.query(sql).rows == [(*change, "2026-11-01", 40) for change in changes]


def test_nights_are_kept_by_a_warehouse_of_tables_too_and_none_where_there_is_no_warehouse(tmp_path, house):
    assert Warehouse(tmp_path / "none").nights() == []
    assert Warehouse(f"duckdb:{tmp_path}/none.db").nights() == []
    tables = Warehouse(f"duckdb:{tmp_path}/tables.db")
    night = house.both("2026-11-01")
    for one in (replace(night, verdict="running"), night):
        tables.write_night(one)
    assert tables.nights() == [night]
    assert tables.query("SELECT verdict FROM nights").rows == [("accepted",)]


def test_the_report_says_what_is_missing_and_how_to_complete_it(begun):
    from nightjar.evaluation.nights import end_night
    from nightjar.reports.nights import night_report

    run_id = begun.run("2026-11-02", "mmlu", right=20, failed=3, errors={"RateLimitError": 3})
    night = end_night(begun.warehouse, begun.judge("2026-11-02"), {"gsm8k": "Cannot read dataset 'none.jsonl'\n…"})
    assert "gsm8k has no run: Cannot read dataset 'none.jsonl' …; mmlu lacks" in night.line
    text = night_report(night, lambda flow_run_id: None)
    assert text.startswith("# nightly 2026-11-02: incomplete")
    assert f"| mmlu | 3 × RateLimitError | `nightjar eval retry {run_id}` |" in text
    again = "prefect deployment run benchmark/nightly-benchmark -p suite=nightly.toml -p night=2026-11-02"
    assert f"| gsm8k | Cannot read dataset 'none.jsonl' … | `{again}` |" in text

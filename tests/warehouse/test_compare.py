"""Two runs beside each other, against tables counted by hand, SciPy, and the mistakes of the programs before."""

import json
import math
from functools import partial
from pathlib import Path
from random import Random

import pytest

from nightjar import analysis
from nightjar.errors import ConfigError

GSM8K = Path(__file__).parents[3] / "shared/data/gsm8k"


def ends(interval):
    return interval.low, interval.high


def binary(both_right, broken, fixed, both_wrong):
    """Returns the rewards of two runs with these pairs."""
    before = [1.0] * (both_right + broken) + [0.0] * (fixed + both_wrong)
    return before, [1.0] * both_right + [0.0] * broken + [1.0] * fixed + [0.0] * both_wrong


def test_a_fall_that_turns_no_answer_wrong_or_is_the_same_everywhere_is_a_regression(house):
    after = [0.5 + 0.1 * (example % 2) for example in range(100)]
    found = house.compare([0.9] * 100, after, max_drop=0.05)
    assert found.decision == "REGRESSION"
    assert found.difference.mean == pytest.approx(-0.35)
    assert (found.broken, found.fixed) == ([], [])
    assert found.difference.p_worse == pytest.approx(1 / 10_000)
    assert found.difference.p_mcnemar is None
    found = house.compare([0.9] * 100, [0.55] * 100)
    assert found.decision == "REGRESSION"
    # 1 - 0.025 ^ (1/100) = 0.0362 may differ otherwise
    assert ends(found.difference.interval) == pytest.approx((-0.3862, -0.3138), abs=1e-4)


def test_a_small_fall_with_a_tiny_variance_is_no_regression(house):
    draw = Random(1)
    before = [draw.uniform(0.3, 0.9) for _ in range(400)]
    after = [one - 0.0012 + draw.gauss(0, 1e-4) for one in before]
    found = house.compare(before, after, max_drop=0.05)
    assert found.decision == "PASS"
    assert found.difference.effect < -5  # which is what 0.05 was compared with
    assert found.difference.p_worse < 0.001


def test_few_flips_both_ways_and_nothing_but_improvement_are_a_pass(house):
    found = house.compare(*binary(500, 12, 8, 480), max_drop=0.05)
    assert found.decision == "PASS"
    assert found.difference.mean == pytest.approx(-0.004)
    # worked by hand in tests/core/test_intervals.py
    assert found.difference.interval.low == pytest.approx(-0.0131745, abs=1e-6)
    assert found.reason == "The mean reward is lower by at most 0.0132: within the allowed drop of 0.05."
    found = house.compare(*binary(80, 0, 60, 60), max_drop=0.0)
    assert (found.decision, found.difference.mean) == ("PASS", 0.3)
    assert found.reason.startswith("The mean reward is higher by at least 0.23")


def test_five_pairs_pass_nothing(house):
    found = house.compare([1.0] * 5, [1.0] * 5, max_drop=0.05)
    assert found.decision == "INCONCLUSIVE"
    # Bonett and Price: t(4) * sqrt(2) / (5 + 2) = .5609; it shrinks as pairs are added: 5 * .5609 / .05 = 56.1
    assert found.pairs_needed == 57
    assert "identical in all 5 pairs; unseen examples may differ by up to 0.5609: more than" in found.reason
    assert house.compare([0.7] * 5, [0.7] * 5, max_drop=0.05).decision == "INCONCLUSIVE"


def test_recorded_answers_of_two_models_to_gsm8k(house):
    """6b-verification against 6b-finetuning: of 515 and 286 right, 222 are right in both."""
    from scipy import stats

    if not GSM8K.is_dir():
        pytest.skip("needs ../shared/data/gsm8k")
    sides = []
    for name in ("verification", "finetuning"):
        lines = (GSM8K / f"recorded-6b-{name}.jsonl").read_text("utf-8").splitlines()
        sides.append([float(json.loads(line)["is_correct"]) for line in lines])
    found = house.compare(*sides)
    assert (found.both_right, len(found.broken), len(found.fixed), found.both_wrong) == (222, 293, 64, 740)
    assert (found.decision, found.pairs) == ("REGRESSION", 1319)
    assert found.difference.mean == pytest.approx((286 - 515) / 1319)
    assert found.difference.p_mcnemar == pytest.approx(stats.binomtest(64, 64 + 293).pvalue)
    assert found.difference.p_worse == 1 / 10_000


def test_rollouts_are_averaged_within_an_example_first(house):
    before, after = [[1.0, 1.0, 0.0, 0.0], [1.0], [0.0, 1.0]], [[0.0], [1.0, 0.0], [1.0, 1.0, 1.0, 1.0]]
    found = house.compare(before, after)
    assert found.difference.mean == pytest.approx(-1 / 6)
    # of -1/2, -1/2, 1/2: the standard deviation is the root of 1/3, the error 1/3, and t with 2 degrees 4.302653
    assert ends(found.difference.interval) == pytest.approx((-1 / 6 - 4.302653 / 3, -1 / 6 + 4.302653 / 3))
    assert found.difference.effect == pytest.approx(-(3**0.5) / 6)
    assert found.difference.p_mcnemar is None


def test_flips_name_the_examples_and_those_of_one_run_alone_are_counted(house):
    found = house.compare([1.0, 1.0, 0.0, [0.0, 1.0]], [0.0, 1.0, 1.0, [0.0, 0.0]])
    assert [(flip.example_id, flip.baseline, flip.candidate) for flip in found.broken] == [(0, 1, 0), (3, 0.5, 0)]
    assert [(flip.example_id, flip.example_hash) for flip in found.fixed] == [(2, "hash-2")]
    assert (found.both_right, found.both_wrong) == (1, 0)
    found = house.compare([1.0] * 12, [1.0] * 10)
    assert (found.pairs, found.only_baseline, found.only_candidate) == (10, 2, 0)
    assert house.compare([1.0] * 10, [1.0] * 13).only_candidate == 3


def test_failed_rollouts_are_counted_and_bound_the_difference(house):
    found = house.compare([1.0] * 10, [1.0] * 8 + [None] * 2)
    assert (found.pairs, found.unscored, found.difference.mean) == (8, 2, 0.0)
    assert found.difference.if_failed_wrong == pytest.approx(-0.2)
    assert found.difference.if_failed_right == 0.0
    assert found.candidate.coverage == 0.8
    found = house.compare([1.0] * 400, [1.0] * 300 + [None] * 100)
    assert found.decision == "INCONCLUSIVE"
    assert "If all failed rollouts were wrong, the difference would be -0.2500: worse by up to" in found.reason
    found = house.compare([1.0] * 400, [1.0] * 399 + [None])
    assert (found.decision, found.difference.if_failed_wrong) == ("PASS", -0.0025)
    found = house.compare([[1.0, None], [0.0, 0.0]], [[1.0, None], [0.0, 0.0]])
    assert (found.pairs, found.unscored) == (2, 0)
    assert (found.difference.if_failed_wrong, found.difference.if_failed_right) == (-0.25, 0.25)
    with pytest.raises(ConfigError, match="although both have 2: too many rollouts failed"):
        house.compare([None, 1.0], [1.0, None])


def test_an_example_of_several_runs_has_the_mean_of_their_means(house):
    from nightjar.analysis.measuring import Paired, measure

    runs = {"a1": [[1.0, 0.0], 1.0, 0.0], "a2": [[1.0] * 4, None, None], "b": [0.0, 0.5, 1.0, 1.0]}
    for run_id, groups in runs.items():
        house.publish(run_id, groups)
    paired = Paired.read(house.warehouse, ["a1", "a2"], ["b"])
    # of the first example 0.5 in one and 1.0 in the other, however many rollouts; of the others one run alone
    assert paired.value_a.tolist() == [0.75, 1.0, 0.0]
    assert paired.value_b.tolist() == [0.0, 0.5, 1.0]
    assert (paired.scored_a.tolist(), paired.failed_a.tolist()) == ([6, 1, 1], [0, 1, 1])
    assert measure(paired, 0.05).mean == pytest.approx((-0.75 - 0.5 + 1.0) / 3)


BEFORE = [float(n % 3 > 0) for n in range(25)]
AFTER = [float(n % 4 > 1) for n in range(25)]
PASSAGES = [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 8, 8, 9, 9, 9]


def test_clusters_are_a_cluster_robust_regression_and_the_signs_of_a_passage_flip_together(house):
    import numpy as np
    import statsmodels.api as sm
    from scipy import stats

    differences = np.array(AFTER) - BEFORE
    how = {"cov_type": "cluster", "cov_kwds": {"groups": np.array(PASSAGES)}, "use_t": True}
    fit = sm.OLS(differences, np.ones(25)).fit(**how)
    infos = [{"passage": f"p{one}"} for one in PASSAGES]
    runs = [house.publish(name, rewards, infos=infos) for name, rewards in (("a", BEFORE), ("b", AFTER))]
    found = analysis.compare_runs(*runs, cluster="passage", warehouse=house.warehouse).difference
    assert (found.clusters, found.mean, found.p_mcnemar) == (10, pytest.approx(differences.mean()), None)
    assert found.stderr == pytest.approx(fit.bse[0])
    assert ends(found.interval) == pytest.approx(tuple(fit.conf_int()[0]))
    sums = np.zeros(10)
    np.add.at(sums, PASSAGES, np.array(AFTER) - BEFORE)
    expected = stats.permutation_test((sums,), np.sum, permutation_type="samples", alternative="less").pvalue
    assert found.p_worse == pytest.approx(expected, abs=0.015)


def test_a_decision_says_how_many_examples_are_needed_if_any_number_would_do(house):
    found = house.compare(*binary(40, 10, 8, 42), max_drop=0.05)
    assert (found.decision, found.pairs_needed) == ("INCONCLUSIVE", 1674)
    assert "about 1,674 examples would be enough" in found.reason
    found = house.compare(*binary(45, 5, 0, 50), max_drop=0.05)
    assert (found.decision, found.pairs_needed) == ("INCONCLUSIVE", None)
    runs = binary(400, 60, 30, 510)
    assert house.compare(*runs, max_drop=0.01).decision == "REGRESSION"
    assert house.compare(*runs, max_drop=0.01, alpha=0.001).decision == "INCONCLUSIVE"


def test_limits_that_make_no_sense_are_refused():
    for wanted in ({"alpha": 0}, {"alpha": 1}, {"max_drop": -0.1}):
        with pytest.raises(ConfigError, match="Expected alpha between 0 and 1 and max_drop of at least 0"):
            analysis.compare_runs("a", "b", **wanted)
    with pytest.raises(ConfigError, match="max_drop must be a number, found 'a'"):
        analysis.compare_runs("a", "b", max_drop="a")


def test_identical_runs_pass_a_limit_and_never_none_at_all(house):
    runs = binary(60, 0, 0, 40)
    found = house.compare(*runs, max_drop=0.05)
    # t(99) * sqrt(2) / (100 + 2) = .02751
    assert "identical in all 100 pairs; unseen examples may differ by up to 0.0275: within" in found.reason
    found = house.compare(*runs, max_drop=0.0)
    assert (found.decision, found.pairs_needed) == ("INCONCLUSIVE", None)
    assert found.reason.endswith("up to 0.0275: more than the allowed drop of 0.")


@pytest.fixture(scope="module")
def compare(shared_house):
    def publish(run_id, added, rewards):
        infos = [{"level": "hard" if n < 6 else "easy"} for n in range(12)]
        metrics = [{"steps": n + more} for n, more in enumerate(added)]
        return shared_house.publish(run_id, rewards, infos=infos, metrics=metrics)

    publish("a", [0.0] * 12, [1.0] * 12), publish("b", [3.0, 4.0, 5.0] * 4, [1.0] * 6 + [0.4] * 6)
    return partial(analysis.compare_runs, warehouse=shared_house.warehouse)


def test_a_metric_by_name_and_the_share_of_correct_rollouts(compare):
    found = compare("a", "b", metric="steps", max_drop=1.0)
    assert (found.baseline.mean, found.candidate.mean) == (5.5, 9.5)
    # by hand: 4, and t with 11 degrees of freedom times the root of 8 / 11 / 12
    half = 2.200985 * (8 / 11 / 12) ** 0.5
    assert ends(found.difference.interval) == pytest.approx((4 - half, 4 + half))
    assert found.decision == "PASS"
    found = compare("a", "b", metric="correct")
    assert (found.candidate.mean, found.difference.mean, found.difference.p_mcnemar) == (0.5, -0.5, 2 * 0.5**6)


def test_a_side_may_have_another_metric(compare):
    # the baseline's steps are 0 to 11, with the mean 5.5; the candidate's rewards are 1 and 0.4, six times each
    found = compare("a", "b", metric="reward", baseline_metric="steps", max_drop=10.0)
    assert (found.baseline.mean, found.candidate.mean) == (5.5, pytest.approx(0.7))
    assert (found.difference.mean, found.pairs) == (pytest.approx(-4.8), 12)
    assert found.reason.startswith("The mean reward (baseline: steps) is lower by at most")
    with pytest.raises(ConfigError, match=r"No rollout of run 'a' or 'b' has 'stepps'\. Choose one of: reward"):
        compare("a", "b", baseline_metric="stepps")


def test_a_metric_where_lower_is_better(compare):
    found = compare("a", "b", metric="steps", max_drop=1.0, direction="lower")
    assert found.decision == "REGRESSION"
    assert found.reason == "The mean steps is higher by at least 3.4582: more than the allowed rise of 1."
    assert found.difference.p_worse < 0.001 < found.difference.p_better
    found = compare("b", "a", metric="steps", max_drop=0.0, direction="lower")
    assert (found.decision, found.reason) == ("PASS", "The mean steps is lower by at least 3.4582.")


def test_categories_are_compared_each(compare):
    found = compare("a", "b", metric="correct", by="level")
    told = [(one.name, one.pairs, one.baseline, one.candidate, one.change) for one in found.categories]
    # all six broken: p = 2 / 2^6 = .03125, of two categories .0625
    assert told == [("easy", 6, 1.0, 0.0, ""), ("hard", 6, 1.0, 1.0, "")]
    found = compare("a", "b", metric="correct", by="level", alpha=0.07)
    assert [one.change for one in found.categories] == ["worse", ""]
    with pytest.raises(ConfigError, match="has 'topic' in its info"):
        compare("a", "b", by="topic")


def compare_folders(house, before, after):
    for folder, groups in (("before", before), ("after", after)):
        for env_id, (rewards, told) in groups.items():
            run_id, content = f"{folder}-{env_id}", {"env_id": env_id, **told}
            house.write(run_id, rewards, place=house.folder / folder / run_id, hashes=env_id, **content)
    return analysis.compare_all(house.folder / "before", house.folder / "after")


def test_evaluations_are_paired_by_environment_the_worst_first(house):
    same, worse = [1.0] * 200, [0.0] * 200
    before = dict.fromkeys(("gsm8k", "mmlu", "gone"), (same, {}))
    after = {"gsm8k": (same, {"model": "new"}), "mmlu": (worse, {"model": "new"}), "more": (same, {})}
    found = compare_folders(house, before, after)
    told = [(one.decision, one.candidate.env_id) for one in found.found]
    assert told == [("REGRESSION", "mmlu"), ("PASS", "gsm8k")]
    assert found.decision == "REGRESSION"
    assert [*found.missing] == ["gone of openai/gpt-4.1-mini (run before-gone)"]
    assert found.new == ["more of openai/gpt-4.1-mini (run after-more)"]


def test_evaluations_are_paired_by_name_where_an_environment_has_several(house):
    some = ([1.0] * 200, {"env_id": "gsm8k"})
    runs = {name: (rewards, {**told, "name": name}) for name, (rewards, told) in (("hot", some), ("cold", some))}
    found = compare_folders(house, runs, {"cold": runs["cold"], "hot": ([0.0] * 200, runs["hot"][1])})
    told = [(one.decision, one.baseline.name, one.candidate.name) for one in found.found]
    assert told == [("REGRESSION", "hot", "hot"), ("PASS", "cold", "cold")]


def test_an_evaluation_that_cannot_be_compared_is_listed_and_no_pass(house):
    sides = [{"gsm8k": ([1.0] * 200, {}), "mmlu": (mmlu, {})} for mmlu in ([None, 1.0], [1.0, None])]
    found = compare_folders(house, *sides)
    assert (found.decision, [one.decision for one in found.found]) == ("INCONCLUSIVE", ["PASS"])
    [(name, why)] = found.incomparable.items()
    assert (name, "too many rollouts failed" in why) == ("run before-mmlu and run after-mmlu", True)
    assert (found.missing, found.new) == ({}, [])
    several = r"There are 2 evaluations: gsm8k, run before-mmlu and run after-mmlu\. Name one run"
    with pytest.raises(ConfigError, match=several):
        analysis.compare_runs(house.folder / "before", house.folder / "after")


def test_an_evaluation_with_other_questions_is_in_both_sides_but_not_comparable(house):
    from nightjar.reports.comparison import verdict

    for side, content in (("before", "old"), ("after", "new")):
        for env_id, hashes in (("gsm8k", "gsm8k"), ("mmlu", content)):
            place = house.folder / side / env_id
            house.write(f"{side}-{env_id}", [1.0] * 200, place=place, hashes=hashes, env_id=env_id)
    found = analysis.compare_all(house.folder / "before", house.folder / "after")
    [why] = found.incomparable.values()
    assert "200 and 200 examples, all with different content" in why
    assert verdict(found) == "Of 2 evaluations: 1 passed, 1 in both, but not comparable."


def test_what_differs_between_the_sides_is_named(house):
    common = {"env_id": "gsm8k", "sampling_args": {"temperature": 0}}
    a = house.write("a", [1.0] * 3, **common, model="old", dataset_fingerprint="1")
    b = house.write("b", [1.0] * 3, **{**common, "sampling_args": {"temperature": 1}}, model="new")
    found = analysis.compare_runs(a, b)
    assert found.differs["model"] == ("old", "new")
    assert found.differs["sampling"] == ('{"temperature":0}', '{"temperature":1}')
    assert "environment" not in found.differs


def test_each_run_has_an_interval_also_one_that_is_right_everywhere(house):
    found = house.compare([1.0] * 81 + [0.0] * 182, [0.2, 0.5, 0.8] * 87 + [0.5] * 2)
    # Newcombe (1998), table I
    assert ends(found.baseline.interval) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    # 174 of 263 are 0.3 away from the mean
    half = 1.969060 * math.sqrt(174 * 0.09 / 262 / 263)  # t with 262 degrees of freedom
    assert found.candidate.interval.high == pytest.approx(0.5 + half)
    runs = [house.write(name, [[1.0, 1.0]] * 100, stderr=0.0) for name in ("a", "b")]
    interval = analysis.compare_runs(*runs).candidate.interval
    assert (interval.low, interval.high) == (pytest.approx(0.025 ** (1 / 100)), 1.0)


def test_retries_with_another_reward_are_reported(house):
    from nightjar.reports.comparison import findings

    house.publish("before", [[1.0, 0.0]] * 20)
    retried = {(example, 1) for example in range(20)}
    house.publish("after", [[0.0, 0.0], *[[1.0, 0.0]] * 19], retried=retried)
    found = analysis.compare_runs("before", "after", warehouse=house.warehouse)
    assert list(found.retries) == ["after"]
    # within examples: 19 times -1, once 0
    assert found.retries["after"].effect.difference == pytest.approx(-0.95)
    assert "retries change the score" in findings(found)["Retries"]


def test_an_unfinished_run_is_no_pass_and_equal_values_have_no_invented_interval(house):
    from nightjar.reports.comparison import side_rows
    from nightjar.statistics.intervals import Interval

    house.publish("before", [1.0] * 60), house.publish("after", [1.0] * 60, rollouts=100, status="running")
    found = analysis.compare_runs("before", "after", warehouse=house.warehouse, max_drop=0.2)
    assert found.decision == "INCONCLUSIVE"
    assert "But 40 of the candidate's 100 rollouts are missing" in found.reason
    found = house.compare([7.0] * 40, [7.0] * 40)
    assert found.baseline.interval == Interval(-math.inf, math.inf)
    assert ("Avg reward", "7.0000", "7.0000", "+0.0000") in side_rows(found)

"""A gate's verdict from made-up pairs: the rules, the mistakes of others, and how often chance has its way."""

from dataclasses import replace

import pytest
from late import late

np, stats, policies, verdict, measuring, records = late(
    "numpy", "scipy.stats", "nightjar.analysis.gates.policy", "nightjar.analysis.gates.verdict",
    "nightjar.analysis.measuring", "nightjar.analysis.records",
)  # fmt: skip


def paired(before, after, failed=0, rollouts=1):
    """Returns pairs of these values; so many of the first examples have failed in the candidate."""
    before, after = np.array(before, dtype=float), np.array(after, dtype=float)
    count = len(before)
    has_failed = np.arange(count) < failed
    scored, none = np.full(count, rollouts), np.zeros(count, dtype=int)
    names = np.full(count, "", dtype=object)
    return measuring.Paired(
        example_id=np.arange(count), example_hash=np.arange(count).astype(str).astype(object), cluster=names,
        category=names, value_a=before, value_b=np.where(has_failed, np.nan, after), right_a=before >= 0.5,
        right_b=after >= 0.5, scored_a=scored, scored_b=np.where(has_failed, 0, rollouts), failed_a=none,
        failed_b=np.where(has_failed, rollouts, 0), hash_a=names, paired_by=np.full(count, "content", dtype=object),
    )  # fmt: skip


def flips(right, broken, fixed, wrong, **wanted):
    before = [1] * (right + broken) + [0] * (fixed + wrong)
    return paired(before, [1] * right + [0] * broken + [1] * fixed + [0] * wrong, **wanted)


def evidence(pairs, *, not_made=0, nights=None, **rule):
    """Returns evidence of pairs, which may be counts of ``flips``."""
    pairs = flips(*pairs) if isinstance(pairs, tuple) else pairs
    return verdict.Evidence(
        policies.GateRule(**{"max_drop": 0.02, **rule}), paired=pairs, not_made=not_made, nights=nights
    )


def decide(policy=None, **benchmarks):
    return verdict.decide_gate(policy or policies.GatePolicy(version=1), benchmarks)


GOOD, BAD, UNSURE = (700, 3, 3, 294), (500, 200, 10, 290), (400, 40, 35, 25)
EDGE = (600, 41, 20, 339)
"""Lower by just so much that alone it would be a breach: 41 broken and 20 fixed of 1,000, no margin."""


def test_all_within_their_margins_and_a_fall_where_lower_is_better_are_a_go():
    found = decide(a=evidence(GOOD), b=evidence(flips(500, 0, 100, 400)))
    assert (found.decision, [one.outcome for one in found.benchmarks]) == ("GO", ["PASS", "PASS"])
    assert "better by at least 0.08" in found.benchmarks[1].reason
    before, after = [3.0, 5.0, 4.0, 6.0] * 10, [2.5, 4.6, 3.3, 5.6] * 10
    rule = {"direction": "lower_is_better", "metric": "seconds", "max_drop": 0.1}
    better = decide(a=evidence(paired(before, after), **rule))
    assert (better.decision, decide(a=evidence(paired(after, before), **rule)).decision) == ("GO", "NO-GO")
    assert better.benchmarks[0].difference.mean == pytest.approx(-0.5)
    assert (better.benchmarks[0].baseline_mean, better.benchmarks[0].candidate_mean) == (4.5, 4.0)


def test_a_breach_is_a_no_go_unless_it_is_advisory():
    for tier in ("critical", "supporting"):
        found = decide(a=evidence(GOOD), b=evidence(BAD, tier=tier), c=evidence(UNSURE))
        assert found.decision == "NO-GO"
        for fact in ("1 of 3", f"b ({tier})", "worse by 0.1900", "0.02"):
            assert fact in found.reason
    found = decide(a=evidence(GOOD), b=evidence(BAD, tier="advisory"), c=evidence(GOOD, tier="critical"))
    assert found.decision == "GO"
    assert [(one.name, one.outcome) for one in found.benchmarks] == [("c", "PASS"), ("a", "PASS"), ("b", "BREACH")]
    assert decide(b=evidence(GOOD, tier="advisory")).decision == "INCONCLUSIVE"


def test_what_is_not_known_or_missing_is_no_go():
    found = decide(a=evidence(GOOD), b=evidence(UNSURE))
    assert found.decision == "INCONCLUSIVE"
    assert found.benchmarks[1].pairs_needed > 500
    assert "examples would be enough for a decision" in found.reason
    lost = decide(a=evidence(GOOD), b=verdict.Evidence(policies.GateRule(), missing="The candidate has no run of it."))
    assert (lost.decision, lost.benchmarks[1].outcome) == ("NO-GO", "MISSING")
    new = verdict.Evidence(policies.GateRule(), missing="No accepted night has it.", is_new=True)
    assert decide(a=evidence(GOOD), b=new).decision == decide().decision == "INCONCLUSIVE"


def test_few_pairs_are_no_go_and_the_relative_limit_is_held_by_an_interval_unlike_in_nemo_evaluator():
    """Of NeMo Evaluator 0.3, see features.md 4.6."""
    for count in (5, 0):
        found = decide(a=evidence(paired([1] * count, [1] * count)))
        assert (found.decision, found.benchmarks[0].outcome) == ("INCONCLUSIVE", "INSUFFICIENT")
    # 3 of 50 right, then 2: a third less, which one example is and which says nothing
    rule = {"max_relative_drop": 0.2, "relative_guard_below": 0.1, "max_drop": 0.5}
    found = decide(a=evidence((2, 1, 0, 47), **rule)).benchmarks[0]
    assert (found.outcome, found.margin) == ("INSUFFICIENT", pytest.approx(0.2 * 0.06))
    assert decide(a=evidence((2, 1, 0, 47), max_drop=0.5)).decision == "GO"


def test_failed_or_missing_rollouts_that_could_change_the_verdict_are_no_pass():
    assert decide(a=evidence(flips(900, 0, 0, 100, failed=2))).decision == "GO"
    found = decide(a=evidence(flips(900, 0, 0, 100, failed=30)))
    assert (found.decision, "-0.0300" in found.benchmarks[0].reason) == ("INCONCLUSIVE", True)
    found = decide(a=evidence(flips(300, 0, 0, 0, failed=20), max_drop=0.08))
    as_wrong = decide(a=evidence(flips(280, 20, 0, 0), max_drop=0.08))
    assert (found.decision, as_wrong.decision) == ("INCONCLUSIVE", "INCONCLUSIVE")
    at_most = -as_wrong.benchmarks[0].difference.interval.low
    assert f"-0.0667: worse by up to {at_most:.4f}" in found.reason
    for known, says in (
        (evidence(GOOD, not_made=3), "3 rollouts of the candidate"),
        (evidence(UNSURE, not_made=3), ""),
        (evidence(flips(300, 0, 0, 0, failed=20), max_drop=0.08), ""),
        (evidence(flips(400, 40, 35, 25, failed=100)), ""),
    ):
        [found] = decide(a=known).benchmarks
        assert (found.outcome, found.pairs_needed) == ("INSUFFICIENT", None)
        assert "would tell" not in found.reason
        assert says in found.reason
    for examples, outcome in ((1000, "PASS"), (1500, "PASS"), (2001, "INSUFFICIENT")):
        [found] = decide(a=replace(evidence(GOOD), baseline_examples=examples)).benchmarks
        assert (found.outcome, found.not_asked, found.pairs_needed) == (outcome, examples - 1000, None)
        assert (f"{examples - 1000:,} of the baseline's {examples:,}" in found.reason) is (examples > 1000)


def test_the_chance_of_damage_is_the_t_test_of_scipy_and_below_half_of_alpha_where_the_interval_is_beyond():
    draw = np.random.default_rng(2)
    before, after = draw.uniform(0.4, 0.9, 40), draw.uniform(0.3, 0.9, 40)
    found = measuring.chance_of_damage(
        measuring.measure(paired(before, after, rollouts=4), 0.1), records.Terms(0.01, 0.1)
    )
    assert found == pytest.approx(stats.ttest_1samp(before - after, 0.01, alternative="greater").pvalue)
    for pairs in (flips(*BAD), flips(50, 90, 10, 50), paired([0.9] * 40, [0.6] * 40)):
        for alpha in (0.05, 0.01):
            found = measuring.measure(pairs, alpha)
            for away, is_beyond in ((-1e-6, True), (1e-6, False)):
                margin = -found.interval.high + away
                assert (measuring.chance_of_damage(found, records.Terms(margin, alpha)) < alpha / 2) is is_beyond
    assert measuring.chance_of_damage(measuring.measure(paired([0.9], [0.2]), 0.05), records.Terms(0.0)) == 1.0


def test_one_of_ten_at_the_edge_is_chance_and_several_are_a_breach_by_their_share():
    others = {f"other{number}": evidence(GOOD, max_drop=0.0) for number in range(9)}
    for correction, outcome in (("none", "BREACH"), ("holm", "INSUFFICIENT"), ("bh", "INSUFFICIENT")):
        policy = policies.GatePolicy(version=1, correction=correction)
        assert decide(policy, edge=evidence(EDGE, max_drop=0.0)).benchmarks[0].outcome == "BREACH"
        found = decide(policy, edge=evidence(EDGE, max_drop=0.0), **others)
        assert next(one.outcome for one in found.benchmarks if one.name == "edge") == outcome
    edges = {f"edge{number}": evidence(EDGE, max_drop=0.0) for number in range(10)}
    assert {one.outcome for one in decide(policy, **edges).benchmarks} == {"BREACH"}


@pytest.mark.long
@pytest.mark.slow
def test_where_nothing_changes_false_breaches_and_wrong_passes_are_as_rare_as_they_say():
    """200 releases of three benchmarks; once nothing changes, once all are worse by just the margin."""
    draw, policy = np.random.default_rng(7), policies.GatePolicy(version=1, alpha=0.2)
    counts = {"NO-GO": 0, "GO": 0}
    for _ in range(200):
        same, worse = {}, {}
        for name in "abc":
            ease = draw.beta(2, 1, 100) * 0.9 + 0.1
            before = draw.random(100) < ease
            same[name] = evidence(paired(before, draw.random(100) < ease), max_drop=0.0)
            worse[name] = evidence(paired(before, draw.random(100) < ease - 0.05), max_drop=0.05)
        counts["NO-GO"] += decide(policy, **same).decision == "NO-GO"
        counts["GO"] += decide(policy, **worse).decision == "GO"
    highest = 0.1 + 3 * (0.1 * 0.9 / 200) ** 0.5
    assert 0 < counts["NO-GO"] / 200 <= highest
    assert counts["GO"] / 200 <= highest


def test_a_night_is_a_breach_once_a_year_by_chance():
    policy = policies.GatePolicy(version=1, baseline=policies.AcceptedNights(accepted_nights=7))
    usual = [[float((thing + night) % 10 != 0) for thing in range(300)] for night in range(8)]
    for lower, outcome in ((16, "INSUFFICIENT"), (90, "BREACH")):
        tonight = [value if thing >= lower else 0.0 for thing, value in enumerate(usual[0])]
        pairs = paired(np.mean(usual[:7], axis=0), tonight, rollouts=7)
        nights = verdict.Nights(np.array([*usual[:7], tonight]), [True] * 8, ["same"] * 8, 7)
        found = decide(policy, a=evidence(pairs, max_drop=0.0, nights=nights))
        assert (found.benchmarks[0].outcome, found.level) == (outcome, pytest.approx(1 / 365))

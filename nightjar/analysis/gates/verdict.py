"""``decide_gate``: turns the evidence on each benchmark into GO, NO-GO or INCONCLUSIVE, without a warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nightjar.analysis.gates.policy import TIERS, Correction, GatePolicy, GateRule, Tier
from nightjar.analysis.measuring import Paired, chance_of_damage, damage_of, doubt_of_failed, measure, needed
from nightjar.analysis.records import Difference, Direction, Terms
from nightjar.core.text import counted, counted_are
from nightjar.statistics.exchange import holm
from nightjar.statistics.windows import WindowTest, chance_of_so_much_damage, window_tests

Outcome: TypeAlias = Literal["PASS", "BREACH", "INSUFFICIENT", "MISSING"]
"""Result of a benchmark: within its margin, beyond its margin, not known well enough, or without runs."""
GateDecision: TypeAlias = Literal["GO", "NO-GO", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Nights:
    """The values of a benchmark by night, in time order. ``values`` is night × example; a missing value is NaN."""

    values: NDArray[np.float64]
    is_normal: Sequence[bool]
    settings: Sequence[object]
    count: int


@dataclass(frozen=True)
class Evidence:
    """The data on a benchmark.

    Attributes:
        missing: a sentence that names the side without a run; empty if both sides have a run.
        is_new: the baseline is nights, and none of these nights has the benchmark.
        baseline_coverage, candidate_coverage: the share of requested rollouts that are scored; None if unknown.
        not_made: the candidate's requested rollouts that are neither scored nor failed.
        baseline_examples: the number of examples, averaged over several runs; 0 if unknown.
        nights: None unless the baseline is earlier nights.
    """

    rule: GateRule
    is_listed: bool = True
    paired: Paired | None = None
    missing: str = ""
    is_new: bool = False
    baseline_runs: Sequence[str] = ()
    candidate_runs: Sequence[str] = ()
    baseline_coverage: float | None = None
    candidate_coverage: float | None = None
    not_made: int = 0
    baseline_examples: int = 0
    nights: Nights | None = None


@dataclass(frozen=True)
class GatedBenchmark:
    """The outcome of a gate on a benchmark.

    Attributes:
        margin: how much worse the candidate may be; None if the baseline is unknown.
        paired_by: the number of pairs by way of pairing, as in ``Comparison``.
        not_asked: examples of the baseline that the candidate did not run.
        p: the chance of this much damage if the true damage were the margin. ``p_adjusted`` is corrected for the number
            of gated benchmarks.
        pairs_needed: the number of pairs for a decision with a power of 80 %; None if decided or unknown.
    """

    name: str
    tier: Tier
    metric: str
    direction: str
    outcome: Outcome
    reason: str
    margin: float | None = None
    pairs: int = 0
    paired_by: Mapping[str, int] = field(default_factory=dict)
    not_asked: int = 0
    baseline_mean: float | None = None
    candidate_mean: float | None = None
    difference: Difference | None = None
    p: float | None = None
    p_adjusted: float | None = None
    windows: Sequence[WindowTest] = ()
    pairs_needed: int | None = None
    baseline_runs: Sequence[str] = ()
    candidate_runs: Sequence[str] = ()
    baseline_coverage: float | None = None
    candidate_coverage: float | None = None

    @property
    def decides(self) -> bool:
        return self.tier != "advisory"


@dataclass(frozen=True)
class Verdict:
    """The verdict of a gate, with its benchmarks. Critical benchmarks come first.

    Attributes:
        decision: GO if every deciding benchmark passes; NO-GO if one has a breach, or is listed and missing;
            INCONCLUSIVE otherwise, also if no benchmark decides.
        level: the one-sided chance of any false breach if nothing is worse than allowed.
        not_gated: benchmarks that only one side has and the policy does not list.
        gate_id: empty if the verdict is not stored.
    """

    decision: GateDecision
    reason: str
    benchmarks: Sequence[GatedBenchmark]
    alpha: float
    level: float
    correction: Correction
    min_pairs: int
    baseline: str = ""
    candidate: str = ""
    policy: str = ""
    policy_sha256: str = ""
    suite: str | None = None
    night: str | None = None
    not_gated: Sequence[str] = ()
    gate_id: str = ""

    def named(self, *outcomes: Outcome) -> list[str]:
        return [one.name for one in self.benchmarks if one.decides and one.outcome in outcomes]


Benchmarks: TypeAlias = Mapping[str, Evidence]


def decide_gate(policy: GatePolicy, benchmarks: Benchmarks) -> Verdict:
    """Returns the verdict of a policy on a candidate.

    A benchmark passes if the upper end of the interval of its damage is within the margin. A GO needs all benchmarks to
    pass, so a GO is as rarely wrong as a single pass, without a correction (the intersection-union test of Berger,
    "Multiparameter Hypothesis Testing and Acceptance Sampling", 1982). A breach is damage that is significantly beyond
    the margin. All deciding benchmarks share the level, because otherwise one of many would have a breach by chance.
    """
    measured = [_measured(name, evidence, policy) for name, evidence in sorted(benchmarks.items())]
    measured.sort(key=lambda one: TIERS.index(one.found.tier))
    judged = [_judged(one, p, policy) for one, p in zip(measured, _adjusted(measured, policy.correction), strict=True)]
    decision, reason = _decision(judged)
    return Verdict(
        decision=decision,
        reason=reason,
        benchmarks=judged,
        alpha=policy.alpha,
        level=policy.level,
        correction=policy.correction,
        min_pairs=policy.min_pairs,
    )


@dataclass(frozen=True)
class _Measured:
    """A benchmark before its outcome is decided."""

    found: GatedBenchmark
    evidence: Evidence
    terms: Terms


def _measured(name: str, evidence: Evidence, policy: GatePolicy) -> _Measured:
    paired, rule = evidence.paired, evidence.rule
    found = GatedBenchmark(
        name=name,
        tier=rule.tier,
        metric=rule.measured,
        direction=rule.direction,
        outcome="INSUFFICIENT",
        reason="",
        baseline_runs=list(evidence.baseline_runs),
        candidate_runs=list(evidence.candidate_runs),
        baseline_coverage=evidence.baseline_coverage,
        candidate_coverage=evidence.candidate_coverage,
    )
    if paired is None or not paired.is_pair.any():
        return _Measured(found, evidence, Terms())
    before, after = (float(values[paired.is_pair].mean()) for values in (paired.value_a, paired.value_b))
    direction: Direction = "lower" if rule.direction == "lower_is_better" else "higher"
    terms = Terms(rule.margin(before), policy.alpha, rule.measured, direction)
    difference, p, windows = measure(paired, policy.alpha, direction), 1.0, found.windows
    pairs, nights, margin = int(paired.is_pair.sum()), evidence.nights, terms.max_drop
    if pairs >= policy.min_pairs and nights is None:
        p = chance_of_damage(difference, terms)
    elif pairs >= policy.min_pairs and nights is not None:
        values = -nights.values if direction == "lower" else nights.values
        windows = window_tests(values, nights.is_normal, count=nights.count, margin=margin, settings=nights.settings)
        p = chance_of_so_much_damage(windows, margin)
    found = replace(
        found,
        margin=margin,
        pairs=pairs,
        paired_by=paired.count_by(),
        not_asked=max(0, evidence.baseline_examples - len(paired)),
        baseline_mean=before,
        candidate_mean=after,
        difference=difference,
        p=p,
        windows=windows,
    )
    return _Measured(found, evidence, terms)


def _adjusted(measured: Sequence[_Measured], correction: Correction) -> list[float]:
    """Returns adjusted p-values. The p-values of benchmarks that do not decide stay unchanged."""
    deciding = [at for at, one in enumerate(measured) if one.found.decides and one.found.difference]
    found = [1.0 if one.found.p is None else one.found.p for one in measured]
    own = [found[at] for at in deciding]
    if correction == "none" or not own:
        return found
    together = holm(own) if correction == "holm" else _benjamini_hochberg(own)
    for at, p in zip(deciding, together, strict=True):
        found[at] = p
    return found


def _benjamini_hochberg(p_values: list[float]) -> list[float]:
    from scipy import stats

    adjusted: list[float] = stats.false_discovery_control(p_values).tolist()
    return adjusted


def _judged(one: _Measured, p: float, policy: GatePolicy) -> GatedBenchmark:
    found, difference = one.found, one.found.difference
    outcome, reason = _outcome(one, p, policy)
    if difference is None:
        return replace(found, outcome=outcome, reason=reason)
    is_thin = outcome == "INSUFFICIENT" and found.pairs >= policy.min_pairs and _is_of_size(one, difference)
    more = needed(difference, found.pairs, one.terms) if is_thin else None
    if found.not_asked:
        examples = f"{found.not_asked:,} of the baseline's {one.evidence.baseline_examples:,} examples"
        reason += f" {examples} are not in the candidate."
    if ambiguous := found.paired_by.get("position"):
        by_position = f"{counted_are(ambiguous, 'pair')} by position"
        reason += f" {by_position}, because several examples have the same question and answer."
    if more:
        reason += f" About {more:,} examples would be enough for a decision, if the damage is as estimated."
    return replace(found, outcome=outcome, reason=reason, p_adjusted=p, pairs_needed=more)


def _outcome(one: _Measured, p: float, policy: GatePolicy) -> tuple[Outcome, str]:
    evidence, difference, pairs = one.evidence, one.found.difference, one.found.pairs
    if evidence.missing:
        return ("MISSING" if evidence.is_listed and not evidence.is_new else "INSUFFICIENT"), evidence.missing
    if difference is None:
        return "INSUFFICIENT", _nothing_to_compare(evidence)
    if pairs < policy.min_pairs:
        return (
            "INSUFFICIENT",
            f"Only {counted_are(pairs, 'example')} scored in both sides; {policy.min_pairs} are required.",
        )
    if p <= policy.level:
        return "BREACH", _breach(one, difference, p)
    doubt = _doubt(one, difference)
    return ("INSUFFICIENT", doubt) if doubt else ("PASS", _within(difference, one.terms))


def _is_mostly_left_out(one: _Measured) -> bool:
    return one.found.pairs < one.evidence.baseline_examples / 2


def _is_of_size(one: _Measured, difference: Difference) -> bool:
    """Returns whether the reason is too few examples, and not failed, missing or left-out rollouts."""
    if one.evidence.not_made or _is_mostly_left_out(one):
        return False
    wrong = difference.if_failed_wrong
    damage = wrong if one.terms.direction == "lower" else -wrong
    is_decided_by_failed = damage > one.terms.max_drop and wrong != difference.if_failed_right
    return damage_of(difference.interval, one.terms.direction).high > one.terms.max_drop and not is_decided_by_failed


def _doubt(one: _Measured, difference: Difference) -> str:
    evidence, terms = one.evidence, one.terms
    if _is_mostly_left_out(one):
        only = f"Only {one.found.pairs:,} of the baseline's {evidence.baseline_examples:,} examples"
        return f"{only} are scored in both sides."
    at_most = damage_of(difference.interval, terms.direction).high
    if at_most > terms.max_drop:
        return f"The candidate may be worse by up to {at_most:.4f}, and {terms.max_drop:.4g} is allowed."
    if evidence.not_made:
        many, are = counted(evidence.not_made, "rollout"), "is" if evidence.not_made == 1 else "are"
        return f"{many} of the candidate {are} missing. To run them: nightjar eval retry."
    return doubt_of_failed(difference, terms)


def _nothing_to_compare(evidence: Evidence) -> str:
    common = 0 if evidence.paired is None else len(evidence.paired)
    if not common:
        return "No example is in both sides: all examples differ in content."
    return f"None of the {common:,} common examples has {evidence.rule.metric!r} in both sides."


def _breach(one: _Measured, difference: Difference, p: float) -> str:
    lost = f"The candidate is worse by {abs(difference.mean):.4f}, and {one.terms.max_drop:.4g} is allowed"
    window = clearest(one.found.windows)
    if window is None or window.nights == 1:
        return f"{lost} (p = {p:.2g})."
    return f"{lost}; over {window.nights} nights by {window.damage:.4f} (p = {p:.2g})."


def clearest(windows: Sequence[WindowTest]) -> WindowTest | None:
    return min(windows, key=lambda window: window.p, default=None)


def _within(difference: Difference, terms: Terms) -> str:
    at_most = damage_of(difference.interval, terms.direction).high
    if at_most < 0:
        return f"The candidate is better by at least {-at_most:.4f}."
    return f"The candidate is worse by at most {at_most:.4f}: within {terms.max_drop:.4g}."


def _decision(judged: Sequence[GatedBenchmark]) -> tuple[GateDecision, str]:
    deciding = [one for one in judged if one.decides]
    if not deciding:
        why = "all benchmarks are advisory" if judged else "no benchmark is listed, and none is in both sides"
        return "INCONCLUSIVE", f"No benchmark decides: {why}."
    failed = [one for one in deciding if one.outcome in {"BREACH", "MISSING"}]
    if failed:
        return "NO-GO", f"{len(failed)} of {len(deciding)} benchmarks did not pass: {_listed(failed)}."
    undecided = [one for one in deciding if one.outcome == "INSUFFICIENT"]
    if undecided:
        return "INCONCLUSIVE", f"{len(undecided)} of {len(deciding)} benchmarks undecided: {_listed(undecided)}."
    return "GO", f"All {len(deciding)} deciding benchmarks are within their margins."


def _listed(some: Sequence[GatedBenchmark]) -> str:
    if len(some) > 1:
        return ", ".join(f"{one.name} ({one.tier})" if one.tier == "critical" else one.name for one in some)
    [one] = some
    return f"{one.name} ({one.tier}): {one.reason[0].lower()}{one.reason.rstrip('.')[1:]}"

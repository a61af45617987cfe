"""``Verdict``: what a gate came to, benchmark by benchmark; ``Evidence``: what it is decided by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nightjar.comparison.measuring import Paired
from nightjar.comparison.records import Difference
from nightjar.config.gate_policy import Correction, GateRule, Tier
from nightjar.stats.windows import WindowTest

Outcome: TypeAlias = Literal["PASS", "BREACH", "INSUFFICIENT", "MISSING"]
"""Of a benchmark: within its margin, beyond it, not known well enough, or not there."""
GateDecision: TypeAlias = Literal["GO", "NO-GO", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Nights:
    """A benchmark night by night, the last one last.

    Attributes:
        values: a row a night, a column an example; NaN where it has none.
        is_normal: of each night whether it was accepted.
        settings: what its results depend on, of each.
        count: how many accepted nights a night is compared with.
    """

    values: NDArray[np.float64]
    is_normal: Sequence[bool]
    settings: Sequence[object]
    count: int


@dataclass(frozen=True)
class Evidence:
    """What is known of a benchmark.

    Attributes:
        rule: what it may lose.
        is_listed: whether the policy names it.
        paired: both sides over the examples that both were asked; None where a side has no run of it.
        missing: which side has no run, in a sentence; empty where both have.
        is_new: whether the baseline is nights of which none has it yet.
        baseline_runs, candidate_runs: ids.
        baseline_coverage, candidate_coverage: scored / asked for; None where that is not known.
        not_made: rollouts that the candidate was asked for and has neither scored nor failed.
        baseline_examples: how many the baseline was asked, of several runs their mean; 0 where that is not known.
        nights: where the baseline is the nights before.
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
    """What a gate came to on a benchmark.

    Attributes:
        name, tier, metric, direction: in the policy.
        outcome: PASS, BREACH, INSUFFICIENT or MISSING.
        reason: why, in a sentence.
        margin: how much worse the candidate may be; None where the baseline is not known.
        pairs: examples that both sides have scored.
        not_asked: examples of the baseline that the candidate was not asked.
        baseline_mean, candidate_mean: over these; None where there are none.
        difference: candidate minus baseline; None without pairs.
        p: chance of so much damage, were it the margin in truth; ``p_adjusted`` for all gated benchmarks together.
        windows: of nights, where the baseline is the nights before.
        pairs_needed: how many would decide it, four times in five; None where it is decided, or nobody can tell.
        baseline_runs, candidate_runs, baseline_coverage, candidate_coverage: as in ``Evidence``.
    """

    name: str
    tier: Tier
    metric: str
    direction: str
    outcome: Outcome
    reason: str
    margin: float | None = None
    pairs: int = 0
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
        """Whether it can change the verdict."""
        return self.tier != "advisory"


@dataclass(frozen=True)
class Verdict:
    """What a gate came to.

    Attributes:
        decision: GO where every benchmark that decides has passed; NO-GO where one has a breach, or is missing though
            the policy lists it; INCONCLUSIVE otherwise, also where nothing decides.
        reason: why, in a sentence.
        benchmarks: those of the critical tier first.
        alpha: the chance that an interval misses.
        level: the chance of any false breach where nothing is worse by more than it may be; one-sided.
        correction: for several benchmarks.
        min_pairs: fewer never pass.
        baseline, candidate: as they were asked for.
        policy, policy_sha256: its file, and of what it says.
        suite, night: of the candidate, where the baseline is the nights before.
        not_gated: benchmarks that only one side has and the policy does not list.
        gate_id: under which the warehouse keeps it; empty where it does not.
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
        """Returns the names of the benchmarks that decide and came to one of these."""
        return [one.name for one in self.benchmarks if one.decides and one.outcome in outcomes]


Benchmarks: TypeAlias = Mapping[str, Evidence]
"""Name to what is known of it."""

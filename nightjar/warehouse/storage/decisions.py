"""What was compared and decided: ``comparisons.jsonl`` and ``gate_decisions.jsonl`` in the folder of the warehouse."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from nightjar.warehouse.storage.line_files import LineFile


@dataclass(frozen=True)
class RecordedComparison:
    """Runs of a benchmark beside others.

    Attributes:
        comparison_id: begins with the time.
        made_at: when.
        gate_id: of the decision that it is a part of; None where it stands for itself.
        benchmark, tier: in the policy of that; the environment, and None, where it stands for itself.
        metric, direction: what is compared, and which way is better.
        baseline_runs, candidate_runs: ids.
        decision: PASS, BREACH, INSUFFICIENT or MISSING of a gate; PASS, REGRESSION or INCONCLUSIVE of a comparison.
        reason: why, in a sentence.
        margin: how much worse the candidate may be.
        alpha: the chance that the interval misses.
        method, seed: how the interval was made, and of the sign flips.
        pairs, clusters: examples that both have scored, and the groups that they are in.
        baseline_coverage, candidate_coverage: scored / asked for.
        baseline_mean, candidate_mean: over the pairs.
        difference, stderr, low, high: candidate minus baseline, its standard error, and its interval; None where it has
            no end.
        p: chance of so much damage, were it the margin in truth; ``p_adjusted`` for all benchmarks of a gate together.
        p_sign_flips: chance of a difference so bad where nothing has changed.
        nights: how many nights together showed a breach most clearly; None where none were tested.
        pairs_needed: how many would decide it; None where it is decided, or nobody can tell.
    """

    comparison_id: str
    made_at: datetime
    benchmark: str
    decision: str
    reason: str
    metric: str
    direction: str
    baseline_runs: list[str]
    candidate_runs: list[str]
    alpha: float
    gate_id: str | None = None
    tier: str | None = None
    margin: float | None = None
    method: str | None = None
    seed: int | None = None
    pairs: int = 0
    clusters: int = 0
    baseline_coverage: float | None = None
    candidate_coverage: float | None = None
    baseline_mean: float | None = None
    candidate_mean: float | None = None
    difference: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    p_sign_flips: float | None = None
    nights: int | None = None
    pairs_needed: int | None = None


@dataclass(frozen=True)
class GateDecision:
    """What a gate came to; its benchmarks are comparisons with its id.

    Attributes:
        gate_id: begins with the time.
        made_at: when.
        verdict: GO, NO-GO or INCONCLUSIVE.
        reason: in a sentence.
        policy, policy_sha256: its file, and of what it says.
        baseline, candidate: as they were asked for.
        suite, night: of the candidate, where that is a night.
        alpha: the chance that an interval misses.
        level: the chance of any false breach, one-sided.
        correction: for several benchmarks: holm, bh or none.
        min_pairs: fewer never pass.
        breached, undecided: names of benchmarks that are not advisory.
    """

    gate_id: str
    made_at: datetime
    verdict: str
    reason: str
    policy: str
    policy_sha256: str
    baseline: str
    candidate: str
    alpha: float
    level: float
    correction: str
    min_pairs: int
    suite: str | None = None
    night: str | None = None
    benchmarks: int = 0
    breached: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


COMPARISONS = LineFile("comparisons", "comparison", RecordedComparison, ("comparison_id",))
GATE_DECISIONS = LineFile("gate_decisions", "decision", GateDecision, ("gate_id",))

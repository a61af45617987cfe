"""``Comparison``: what two runs came to, one beside the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nightjar.stats.intervals import Interval

Decision = Literal["PASS", "REGRESSION", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Side:
    """One of the two runs, over all that it has scored.

    Attributes:
        examples: those that it was asked.
        rollouts: those that it was asked for; ``scored`` and ``failed`` are those that there are.
        coverage: scored / rollouts.
        avg_reward: over its scored rollouts; None when there are none.
        interval: of that; Wilson's for one rollout an example that is right or wrong, else Student's t by example.
        time_ms: how long it took; None where that is not known.
        input_tokens, output_tokens: of all attempts.
        cost: in the currency of the warehouse's prices; None without a price.
    """

    run_id: str
    env_id: str | None
    model: str | None
    status: str | None
    started_at: str | None
    examples: int
    rollouts: int | None
    scored: int
    failed: int
    coverage: float | None
    avg_reward: float | None
    interval: Interval
    time_ms: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None


@dataclass(frozen=True)
class Flip:
    """An example that one run has right and the other wrong.

    Attributes:
        example_id: its position in the candidate's dataset.
        example_hash: its content.
        baseline, candidate: mean reward of its rollouts.
    """

    example_id: int
    example_hash: str
    baseline: float
    candidate: float


@dataclass(frozen=True)
class Difference:
    """The mean difference of the pairs, candidate minus baseline, and how well it is known.

    Attributes:
        mean: of an example's rollouts in a run their mean counts.
        stderr: by cluster.
        clusters: of pairs that may resemble each other; each pair is one of its own unless a field says otherwise.
        interval: of the mean, at 1 − alpha.
        method: how the interval was made.
        effect: the mean by the standard deviation of the differences (Cohen's d of pairs); None where that is 0.
        p_mcnemar: of McNemar's exact test; None where there is more than one rollout an example, or a reward between.
        p_worse, p_better: one-sided, of the sign-flip test with a fixed seed.
        if_failed_wrong, if_failed_right: the mean over all examples that both were asked, where the candidate's failed
            rollouts had been wrong and the baseline's right, and the reverse.
    """

    mean: float
    stderr: float | None
    clusters: int
    interval: Interval
    method: str
    effect: float | None
    p_mcnemar: float | None
    p_worse: float
    p_better: float
    if_failed_wrong: float
    if_failed_right: float


@dataclass(frozen=True)
class Comparison:
    """Two runs over the examples that both have scored.

    Attributes:
        decision: PASS where the candidate is worse by at most ``max_drop``, all of the interval; REGRESSION where it is
            worse by more, all of the interval; INCONCLUSIVE otherwise.
        reason: why, in a sentence.
        max_drop: how much lower the mean reward may be.
        alpha: the chance that the interval misses, over many; for a wrong PASS, or REGRESSION, about half.
        pairs: examples that both have scored.
        unscored: examples that both were asked, of which one has no reward.
        only_baseline, only_candidate: examples that one alone was asked.
        both_right, both_wrong: pairs that have not flipped; right is half of the rollouts or more.
        broken, fixed: pairs that have; those with the largest difference first.
        differs: setting to its values in the two runs.
        pairs_needed: how many pairs would decide it, four times in five, if the difference is what it seems; None where
            it is decided, or nobody can tell.
    """

    decision: Decision
    reason: str
    max_drop: float
    alpha: float
    baseline: Side
    candidate: Side
    pairs: int
    unscored: int
    only_baseline: int
    only_candidate: int
    difference: Difference
    both_right: int
    both_wrong: int
    broken: list[Flip]
    fixed: list[Flip]
    differs: Mapping[str, tuple[Any, Any]]
    pairs_needed: int | None

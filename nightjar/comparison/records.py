"""``Comparison``: what two runs came to, one beside the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nightjar.comparison.retries import Retries
from nightjar.errors import ConfigError
from nightjar.stats.intervals import Interval

Decision = Literal["PASS", "REGRESSION", "INCONCLUSIVE"]
Direction = Literal["higher", "lower"]
"""Which values of a metric are the better ones."""


@dataclass(frozen=True)
class Terms:
    """What is compared, and what counts as worse.

    Attributes:
        max_drop: how much worse the candidate's mean may be.
        alpha: the chance that the interval of the difference misses, over many; for a wrong PASS, or REGRESSION, about
            half.
        metric: ``reward``; ``correct``: pass@1, the share of correct rollouts; or the name of one of their metrics.
        direction: which of its values are better.
        cluster: a field of ``info``, or ``task``, that examples share which are no independent draws, as the passage
            they ask about; None where each stands for itself.
        by: a field of ``info``, or ``task``: the difference is told of each of its values, too.

    Raises:
        ConfigError: a number makes no sense.
    """

    max_drop: float = 0.05
    alpha: float = 0.05
    metric: str = "reward"
    direction: Direction = "higher"
    cluster: str | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        if not (0 < self.alpha < 1 and self.max_drop >= 0):
            raise ConfigError(
                f"Expected alpha between 0 and 1 and max_drop from 0 on, found {self.alpha} and {self.max_drop}"
            )


@dataclass(frozen=True)
class Side:
    """One of the two runs, over all that it has scored.

    Attributes:
        examples: those that it was asked.
        rollouts: those that it was asked for; ``scored`` and ``failed`` are those that there are.
        name: of the evaluation in its suite, or else the environment.
        coverage: scored / rollouts.
        mean: of the metric, over its scored rollouts; None when there are none.
        interval: of that; Wilson's for one rollout an example that is right or wrong, else Student's t by example.
        time_ms: how long it took; None where that is not known.
        input_tokens, output_tokens: of all attempts.
        cost: in the currency of the warehouse's prices; None without a price.
    """

    run_id: str
    env_id: str | None
    name: str | None
    model: str | None
    status: str | None
    started_at: str | None
    examples: int
    rollouts: int | None
    scored: int
    failed: int
    coverage: float | None
    mean: float | None
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
        baseline, candidate: mean of its rollouts.
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
        p_worse, p_better: one-sided, of the sign-flip test with a fixed seed; worse is what the direction says.
        if_failed_wrong, if_failed_right: the mean over all examples that both were asked, where the candidate's failed
            rollouts had the worst value and the baseline's the best, and the reverse.
        interval_if_failed_wrong: of the first of these, at 1 − alpha.
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
    interval_if_failed_wrong: Interval

    @property
    def p_value(self) -> float:
        """Two-sided: McNemar's where there is one, else that of the sign flips."""
        return min(1.0, 2 * min(self.p_worse, self.p_better)) if self.p_mcnemar is None else self.p_mcnemar

    @property
    def is_identical(self) -> bool:
        """Whether all pairs are equal."""
        return not self.mean and self.effect is None


@dataclass(frozen=True)
class Category:
    """The pairs with one value of a field.

    Attributes:
        name: the value; ``none`` of examples that have none.
        pairs: their number.
        baseline, candidate: mean of these pairs.
        difference: of these pairs.
        change: ``worse`` or ``better`` where that is more than chance at alpha, of all categories together (Holm);
            '' otherwise.
    """

    name: str
    pairs: int
    baseline: float
    candidate: float
    difference: Difference
    change: Literal["worse", "better", ""]


@dataclass(frozen=True)
class Excerpt:
    """What an example asks, and what the two runs answered; long texts are cut.

    Attributes:
        prompt: its last message.
        answer: the right one, where there is one.
        baseline, candidate: of several rollouts the one with the highest reward where that run has it right, else the
            lowest.
    """

    prompt: str
    answer: str
    baseline: str
    candidate: str


@dataclass(frozen=True)
class Comparison:
    """Two runs over the examples that both have scored.

    Attributes:
        decision: PASS where the candidate is worse by at most ``max_drop``, all of the interval; REGRESSION where it is
            worse by more, all of the interval; INCONCLUSIVE otherwise.
        reason: why, in a sentence.
        terms: what was asked.
        pairs: examples that both have scored.
        unscored: examples that both were asked, of which one has no value.
        only_baseline, only_candidate: examples that one alone was asked.
        both_right, both_wrong: pairs that have not flipped; right is half of the rollouts or more.
        broken, fixed: pairs that have; those with the largest difference first.
        categories: by value of ``terms.by``, the worst first.
        excerpts: texts of the first flips by example_hash, as many as were asked for.
        differs: setting to its values in the two runs.
        retries: run to its retried rollouts, where their reward is not like that of the others.
        pairs_needed: how many pairs would decide it, four times in five, if the difference is what it seems; None where
            it is decided, or nobody can tell.
    """

    decision: Decision
    reason: str
    terms: Terms
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
    categories: list[Category]
    excerpts: Mapping[str, Excerpt]
    differs: Mapping[str, tuple[Any, Any]]
    retries: Mapping[str, Retries]
    pairs_needed: int | None


@dataclass(frozen=True)
class Comparisons:
    """Several evaluations, each of a baseline beside a candidate.

    Attributes:
        found: of each that both have, the worst decision first.
        missing: evaluation of the baseline that was not compared to why.
        new: those of the candidate alone.
    """

    found: list[Comparison]
    missing: Mapping[str, str]
    new: list[str]

    @property
    def decision(self) -> Decision:
        """The worst of all; no PASS where one of the baseline was not compared."""
        worst = self.found[0].decision if self.found else "INCONCLUSIVE"
        return "INCONCLUSIVE" if worst == "PASS" and self.missing else worst

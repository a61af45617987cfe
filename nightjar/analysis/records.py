"""``Comparison``: two runs side by side, and the parts of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal

from nightjar.analysis.run_statistics import Retries
from nightjar.errors import ConfigError
from nightjar.statistics.intervals import Interval

Decision = Literal["PASS", "REGRESSION", "INCONCLUSIVE"]
Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Terms:
    """What is compared, and what counts as worse. ``nightjar.analysis`` describes ``metric``, ``cluster`` and ``by``.

    ``max_drop`` is how much worse the candidate's mean may be. ``alpha`` is the chance that the interval misses the
    true difference. A wrong PASS or REGRESSION has about half this chance.
    """

    max_drop: float = 0.05
    alpha: float = 0.05
    metric: str = "reward"
    direction: Direction = "higher"
    cluster: str | None = None
    by: str | None = None
    baseline_metric: str | None = None
    """The metric of the baseline. If None, both sides have the same metric."""

    @property
    def metrics(self) -> tuple[str, str]:
        """The metric of the baseline and of the candidate."""
        return self.baseline_metric or self.metric, self.metric

    @property
    def metric_name(self) -> str:
        before, after = self.metrics
        return after if before == after else f"{after} (baseline: {before})"

    def __post_init__(self) -> None:
        for name in ("max_drop", "alpha"):
            if not isinstance(value := getattr(self, name), Real):
                raise ConfigError(f"{name} must be a number, found {value!r}")
        if not (0 < self.alpha < 1 and self.max_drop >= 0):
            raise ConfigError(
                f"Expected alpha between 0 and 1 and max_drop of at least 0, found {self.alpha} and {self.max_drop}"
            )


@dataclass(frozen=True)
class Side:
    """One of the two runs, over all its scored rollouts.

    Without rollouts, ``mean`` is None. Without a price, ``cost`` is None.
    ``interval`` is Wilson's for one binary rollout per example, else Student's t by example. Tokens are counted over
    all attempts.
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
    """An example that only one run has right, with the means of its rollouts.

    ``example_id`` and ``example_hash`` are the candidate's. ``baseline_hash`` differs if the pair is not by content.
    """

    example_id: int
    example_hash: str
    baseline_hash: str
    baseline: float
    candidate: float


@dataclass(frozen=True)
class Unpaired:
    """Examples that only one of two runs has. ``first`` are the ids of the first of them.

    ``reason``: ``other question`` is not asked in the other run; with ``other answer``, the other run asks the question
    and expects another answer; with ``other content``, question and answer are equal, but not the rest of the example,
    or the other run has fewer examples with them; with ``no prompt``, the question is unknown.
    """

    side: Literal["baseline", "candidate"]
    reason: Literal["other question", "other answer", "other content", "no prompt"]
    count: int
    first: Sequence[int]


@dataclass(frozen=True)
class Difference:
    """The mean difference of the pairs (candidate minus baseline) and its uncertainty.

    Attributes:
        mean: the mean over pairs; each side of a pair is the mean of an example's rollouts.
        clusters: groups of dependent pairs; without ``cluster``, each pair is its own group.
        effect: mean / standard deviation of the differences (Cohen's d of pairs); None if the deviation is 0.
        p_mcnemar: the p-value of McNemar's exact test; None unless every example has one binary rollout.
        p_worse, p_better: one-sided p-values of the sign-flip test, with a fixed seed.
        if_failed_wrong: the mean over all common examples if the candidate's failed rollouts had the worst value and
            the baseline's failed rollouts had the best value. ``if_failed_right`` is the reverse.
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
        """The two-sided p-value of McNemar's test if there is one, else of the sign-flip test."""
        return min(1.0, 2 * min(self.p_worse, self.p_better)) if self.p_mcnemar is None else self.p_mcnemar

    @property
    def is_identical(self) -> bool:
        return not self.mean and self.effect is None


@dataclass(frozen=True)
class Category:
    """The pairs with one value of a field, or ``none`` for examples without it.

    ``change`` is empty unless the difference is significant at alpha, adjusted for the number of categories (Holm).
    """

    name: str
    pairs: int
    baseline: float
    candidate: float
    difference: Difference
    change: Literal["worse", "better", ""]


@dataclass(frozen=True)
class Excerpt:
    """The last message of an example and the responses of the two runs. Long texts are cut.

    If a run has the example right, its response is from the rollout with the highest reward, else with the lowest.
    """

    prompt: str
    answer: str
    baseline: str
    candidate: str


@dataclass(frozen=True)
class Comparison:
    """Two runs over the examples that both have scored. Flips and categories are ordered by the size of the change.

    Attributes:
        decision: PASS if the whole interval of the damage is within ``max_drop``, also if all failed rollouts of the
            candidate were wrong and no rollout of it is missing; REGRESSION if the interval is
            entirely beyond ``max_drop``; INCONCLUSIVE otherwise.
        paired_by: the number of pairs by ``content``, by ``question`` (and answer), and by ``position`` among examples
            with the same question and answer.
        unscored: common examples that one run has not scored.
        both_right, both_wrong: pairs that have not flipped. Right means that at least half of the rollouts are correct.
        pairs_needed: to decide with a power of 80 %; None if decided or unknown.
    """

    decision: Decision
    reason: str
    terms: Terms
    baseline: Side
    candidate: Side
    pairs: int
    paired_by: Mapping[str, int]
    unscored: int
    only_baseline: int
    only_candidate: int
    unpaired: Sequence[Unpaired]
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
    """Several evaluations of a baseline and a candidate, the worst decision first.

    ``missing`` and ``new`` have the evaluations that only the baseline or only the candidate has. ``incomparable``
    gives the reason for each evaluation of both sides that cannot be compared, such as different questions.
    """

    found: list[Comparison]
    missing: Mapping[str, str]
    new: list[str]
    incomparable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_single(self) -> bool:
        """Whether there is one evaluation, which was compared."""
        return len(self.found) == 1 and not (self.missing or self.new or self.incomparable)

    @property
    def decision(self) -> Decision:
        """The worst decision. It is not PASS if an evaluation of the baseline was not compared."""
        worst = self.found[0].decision if self.found else "INCONCLUSIVE"
        return "INCONCLUSIVE" if worst == "PASS" and (self.missing or self.incomparable) else worst

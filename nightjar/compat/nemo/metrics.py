"""Scores, intervals and tests under the names of ``nemo_evaluator.metrics``, computed by ``nightjar.statistics``.

The tests ask whether the candidate is worse. Differences are the baseline's reward minus the candidate's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import inf, isfinite, sqrt
from statistics import NormalDist, fmean, median, stdev
from typing import Any, Literal

import numpy as np
from scipy import special

from nightjar.statistics import Estimate, clustered_mean, estimates
from nightjar.statistics.exchange import sign_flips
from nightjar.statistics.intervals import Interval, cluster_bootstrap, paired_shares, t_interval, wilson, within_rewards

SIGNIFICANCE_THRESHOLD = 0.05
POWER_80_FACTOR = 2.8
_PERMUTATIONS = 9_999
_MOST_BOOTSTRAPPED = 2_000
_CORRECT = 0.5
_LONGEST_NAME = 100


@dataclass
class ConfidenceInterval:
    """A mean and its interval. With too few scores, the ends are infinite and ``se`` is None."""

    mean: float
    ci_lower: float
    ci_upper: float
    confidence: float
    method: str
    se: float | None = None

    @property
    def value(self) -> float:
        return self.mean


def bootstrap_ci(
    scores: Sequence[float], confidence: float = 0.95, n_bootstrap: int = 10_000, seed: int | None = 42
) -> ConfidenceInterval:
    """Returns the bias-corrected and accelerated bootstrap interval of a mean.

    Above 2,000 scores, the interval is Student's t, because the mean is normally distributed. If all scores are 0 or
    all are 1, the interval is Wilson's, because a bootstrap interval has no width.
    """
    groups, alpha = [[score] for score in scores], 1 - confidence
    estimate = clustered_mean(groups)
    if len({*scores}) == 1 and {*scores} <= {0.0, 1.0}:
        return _ci(estimate, wilson(round(sum(scores)), len(scores), alpha), confidence, "wilson")
    if len(scores) > _MOST_BOOTSTRAPPED:
        return _ci(estimate, t_interval(estimate, len(scores), alpha), confidence, "t")
    interval = cluster_bootstrap(groups, alpha, seed=seed, resamples=n_bootstrap)
    return _ci(estimate, interval, confidence, "bootstrap")


def sample_level_ci(problem_results: Sequence[tuple[int, int]], confidence: float = 0.95) -> ConfidenceInterval | None:
    """Returns a confidence interval of the share of correct answers to these problems, from the normal distribution.

    ``problem_results`` are the numbers of answers and of correct answers of each problem. Returns None if a problem has
    fewer than two answers.
    """
    if not problem_results or min(n for n, _ in problem_results) < 2:  # noqa: PLR2004 - a spread needs two
        return None
    shares = [correct / n for n, correct in problem_results]
    mean = fmean(shares)
    spread = sum(share * (1 - share) / (n - 1) for share, (n, _) in zip(shares, problem_results, strict=True))
    se = sqrt(spread) / len(shares)
    interval = _normal(mean, se, confidence)
    return ConfidenceInterval(mean, max(0.0, interval.low), min(1.0, interval.high), confidence, "sample_level", se)


def normal_ci(scores: Sequence[float], confidence: float = 0.95) -> ConfidenceInterval:
    """Returns a confidence interval of a mean, from the normal distribution. With few scores, it is too narrow."""
    estimate = clustered_mean([score] for score in scores)
    return _ci(estimate, _normal(estimate.mean, estimate.stderr, confidence), confidence, "normal")


def clustered_ci(scores: Sequence[float], clusters: Sequence[Hashable], confidence: float = 0.95) -> ConfidenceInterval:
    """Returns the interval of a mean of scores that are correlated within a cluster.

    The standard error is that of Miller (2024), "Adding Error Bars to Evals", with Student's quantiles.
    """
    groups = defaultdict[Hashable, list[float]](list)
    for score, cluster in zip(scores, clusters, strict=True):
        groups[cluster].append(score)
    return _clustered(groups.values(), confidence)


def mean_ci(groups: Iterable[Sequence[float]], confidence: float = 0.95) -> ConfidenceInterval:
    """Returns the interval of the mean reward, clustered by group and cut to the range of rewards."""
    found = [*groups]
    ci = _clustered(found, confidence)
    ends = within_rewards(Interval(ci.ci_lower, ci.ci_upper), chain.from_iterable(found))
    return replace(ci, ci_lower=ends.low, ci_upper=ends.high)


def _clustered(groups: Iterable[Sequence[float]], confidence: float) -> ConfidenceInterval:
    """Returns Wilson's interval if all groups have a single 0 or 1, otherwise Student's."""
    found = [group for group in groups if group]
    estimate, alpha = clustered_mean(found), 1 - confidence
    if {value for group in found for value in group} <= {0.0, 1.0} and all(len(group) == 1 for group in found):
        return _ci(estimate, wilson(round(sum(group[0] for group in found)), len(found), alpha), confidence, "wilson")
    return _ci(estimate, t_interval(estimate, len(found), alpha), confidence, "clustered")


def _normal(mean: float | None, se: float | None, confidence: float) -> Interval:
    if mean is None or se is None:
        return Interval(-inf, inf)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * se
    return Interval(mean - half, mean + half)


def _ci(estimate: Estimate, interval: Interval, confidence: float, method: str) -> ConfidenceInterval:
    if estimate.mean is None:
        raise ValueError("Cannot compute the mean of an empty list of scores")
    return ConfidenceInterval(estimate.mean, interval.low, interval.high, confidence, method, estimate.stderr)


@dataclass
class CategoryResult:
    category: str
    n_samples: int
    mean_reward: float
    ci: ConfidenceInterval


def category_breakdown(results: Sequence[Mapping[str, Any]], category_key: str = "category") -> list[CategoryResult]:
    """Returns the score of each category in the rows' metadata, sorted by name; rows without a reward do not count."""
    return _breakdown((row, (row.get("metadata") or {}).get(category_key)) for row in results)


def scoring_details_breakdown(
    results: Sequence[Mapping[str, Any]], *, max_cardinality: int = 50
) -> dict[str, list[CategoryResult]]:
    """Returns scores by each detail that is a short string or bool in all scored rows and has few different values."""
    scored = [row for row in results if row.get("reward") is not None]
    details = [row.get("scoring_details") or {} for row in scored]
    found = {}
    for name in dict.fromkeys(name for row in details for name in row):
        values = [row.get(name) for row in details]
        if all(map(_names_group, values)) and 1 < len({*values}) <= max_cardinality:
            found[name] = _breakdown(zip(scored, values, strict=True))
    return found


def _names_group(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and len(value) < _LONGEST_NAME)


def _breakdown(rows: Iterable[tuple[Mapping[str, Any], Any]]) -> list[CategoryResult]:
    found = defaultdict[str, dict[Any, list[float]]](lambda: defaultdict(list))
    for number, (row, category) in enumerate(rows):
        if category is not None and row.get("reward") is not None:
            found[str(category)][row.get("problem_idx", f"row {number}")].append(row["reward"])
    breakdown = []
    for name in sorted(found):
        groups = list(found[name].values())
        ci = mean_ci(groups)
        breakdown.append(CategoryResult(name, sum(map(len, groups)), ci.mean, ci))
    return breakdown


def summary_stats(rewards: Sequence[float | None]) -> dict[str, float]:
    """Returns count, mean, median, deviation and range of rewards; only the count if there are no rewards."""
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        return {"n": 0}
    spread = stdev(scored) if len(scored) > 1 else 0.0
    ends = {"min": min(scored), "max": max(scored)}
    return {"n": len(scored), "mean": fmean(scored), "median": median(scored), "std": spread, **ends}


def scores_of(
    results: Iterable[Mapping[str, Any]], repeats: int, expected_rows: int | None = None
) -> dict[str, dict[str, Any]]:
    """Returns the scores of a bundle: mean reward and pass@1 with intervals, pass@n, coverage and errors.

    Failed steps have no reward and count neither in the mean reward nor in pass@1. pass@n covers the problems whose
    repeats are all scored. ``expected_rows`` is None if no rows are missing.
    """
    groups, rows = defaultdict[Any, list[float]](list), 0
    for row in results:
        rows += 1
        if row["reward"] is not None:
            groups[row["problem_idx"]].append(row["reward"])
    correct = [[float(reward >= _CORRECT) for reward in group] for group in groups.values()]
    scores = {"mean_reward": _score(list(groups.values())), "pass@1": _score(correct)}
    whole = [group for group in correct if len(group) == repeats]
    if repeats > 1 and whole:
        chances = [[pass_at_k(repeats, int(sum(group)), repeats)] for group in whole]
        scores[f"pass@{repeats}"] = _score(chances)
    scored, total = sum(map(len, groups.values())), max(expected_rows or 0, rows)
    scores["coverage"] = {"value": scored / total if total else None, "scored": scored, "total": total}
    scores["errors"] = {"value": rows - scored}
    return scores


def scorer_scores(results: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the share of correct answers by each further scorer, with its interval and the numbers of answers."""
    found = defaultdict[str, dict[Any, list[float]]](lambda: defaultdict(list))
    for row in results:
        for name, reward in (row.get("scorer_rewards") or {}).items():
            found[name][row["problem_idx"]].append(float(reward > 0))
    scores = {name: _score(list(groups.values())) for name, groups in found.items()}
    for name, groups in found.items():
        scores[name] |= {"correct": int(sum(map(sum, groups.values()))), "total": scores[name]["n"]}
    return scores


def _score(groups: Sequence[Sequence[float]]) -> dict[str, Any]:
    counts = {"n": sum(map(len, groups)), "problems": len(groups)}
    if not groups:
        return {**dict.fromkeys(("value", "ci_lower", "ci_upper", "stderr")), **counts}
    found = mean_ci(groups)
    return {"value": found.mean, **finite_ends(found), "stderr": found.se, **counts}


def finite_ends(found: ConfidenceInterval) -> dict[str, float | None]:
    """Returns the ends of an interval; None in place of infinity."""
    ends = {"ci_lower": found.ci_lower, "ci_upper": found.ci_upper}
    return {name: end if isfinite(end) else None for name, end in ends.items()}


def is_fractional(rewards: Iterable[float]) -> bool:
    return any(reward not in (0, 1) for reward in rewards)


def headline_score_metrics(
    per_problem_rewards: Mapping[Hashable, Sequence[float | None]], n_repeats: int
) -> dict[str, Any]:
    """Returns ``mean_reward``, ``pass@1`` and ``pass@n`` of problems; the reward of a failed step is None."""
    rows = [
        {"problem_idx": key, "reward": reward} for key, rewards in per_problem_rewards.items() for reward in rewards
    ]
    scores = scores_of(rows, n_repeats)
    return {name: score for name, score in scores.items() if name not in ("coverage", "errors")}


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the chance that one of k answers is correct, given c correct of n (Chen et al., 2021)."""
    if not 0 <= c <= n:
        raise ValueError(f"c must be between 0 and n = {n}, found {c}")
    return estimates.pass_at_k(n, c, k)


def aggregate_pass_at_k(problem_results: Sequence[tuple[int, int]], k: int) -> float:
    """Returns the mean pass@k over problems, each given as its numbers of answers and of correct answers."""
    if not problem_results:
        raise ValueError("Cannot compute the mean of an empty list of problems")
    return fmean(pass_at_k(n, c, k) for n, c in problem_results)


class _Result:
    def to_dict(self: Any) -> dict[str, Any]:
        return asdict(self)


@dataclass
class McNemarResult(_Result):
    """McNemar's exact test; ``effect_size`` is the drop in the share of correct answers, with its interval."""

    p_value: float | None = None
    significant: bool | None = None
    method: str | None = None
    n_discordant: int = 0
    effect_size: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    hypothesis: str = "one-sided (degradation)"


@dataclass
class SignTestResult(_Result):
    """The sign test, which ignores ties."""

    n_positive: int = 0
    n_negative: int = 0
    n_ties: int = 0
    p_value: float | None = None
    significant: bool | None = None
    method: str = "sign_test"


@dataclass
class PermutationResult(_Result):
    """The sign-flip test; ``effect_size`` is Cohen's d of the paired differences."""

    observed_mean_diff: float = 0.0
    p_value: float | None = None
    significant: bool | None = None
    n_permutations: int = _PERMUTATIONS
    effect_size: float | None = None
    method: str = "permutation"


def mcnemar_test(
    contingency: Mapping[str, int], n_paired: int = 0, alpha: float = SIGNIFICANCE_THRESHOLD
) -> McNemarResult:
    lost, gained = (contingency.get(f"{side}_only_correct", 0) for side in ("baseline", "candidate"))
    pairs = n_paired or sum(contingency.values())
    p_value = _sign_p_value(lost, lost + gained)
    interval = paired_shares(lost, gained, pairs, alpha)
    effect = (lost - gained) / pairs if pairs else None
    return McNemarResult(p_value, p_value < alpha, "exact", lost + gained, effect, interval.low, interval.high)


def sign_test(paired_deltas: Sequence[float], alpha: float = SIGNIFICANCE_THRESHOLD) -> SignTestResult:
    worse, better = sum(delta > 0 for delta in paired_deltas), sum(delta < 0 for delta in paired_deltas)
    p_value = _sign_p_value(worse, worse + better)
    return SignTestResult(worse, better, len(paired_deltas) - worse - better, p_value, p_value < alpha)


def permutation_test(
    paired_deltas: Sequence[float],
    n_permutations: int = _PERMUTATIONS,  # noqa: ARG001 - NeMo Evaluator's
    seed: int = 0,  # noqa: ARG001
    alpha: float = SIGNIFICANCE_THRESHOLD,
) -> PermutationResult:
    """Returns the one-sided sign-flip test over one difference per problem.

    It always makes the same 9,999 draws: ``n_permutations`` and ``seed`` are accepted and ignored.
    """
    if not paired_deltas:
        return PermutationResult(p_value=1.0, significant=False)
    p_value, mean = sign_flips(-np.array(paired_deltas, dtype=float)), fmean(paired_deltas)
    spread = stdev(paired_deltas) if len(paired_deltas) > 1 else 0.0
    return PermutationResult(mean, p_value, p_value < alpha, effect_size=mean / spread if spread else None)


def detect_test(
    base_records: Mapping[tuple[int, int], Mapping[str, Any]], cand_records: Mapping[tuple[int, int], Mapping[str, Any]]
) -> Literal["mcnemar", "permutation"]:
    """Returns the test that fits: McNemar's if all paired rewards are 0 or 1, otherwise the permutation test."""
    both = base_records.keys() & cand_records.keys()
    rewards = {records[step].get("reward") for step in both for records in (base_records, cand_records)}
    return "permutation" if is_fractional(reward for reward in rewards if reward is not None) else "mcnemar"


def mde_estimate(n_discordant: int) -> float:
    """Returns the smallest effect that ``n_discordant`` pairs detect with a power of 80 %; infinite for no pairs."""
    return POWER_80_FACTOR / sqrt(n_discordant) if n_discordant else inf


def _sign_p_value(worse: int, changed: int) -> float:
    return float(special.bdtr(changed - worse, changed, 0.5)) if changed else 1.0

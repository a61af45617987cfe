"""``leaderboard``: ranks the models of an environment, and says which of them are tied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nightjar.analysis.history import no_such_run, read_values
from nightjar.analysis.pairs import settings_of
from nightjar.errors import ConfigError
from nightjar.statistics.change_points import Matrix
from nightjar.statistics.coverage import LEAST_COVERAGE
from nightjar.statistics.intervals import Interval, reward_range, within_rewards
from nightjar.statistics.ranking import better, letters, pair_contrasts, rank_sets, simultaneous_intervals
from nightjar.warehouse import Warehouse

_STANDING = "SELECT run_id, model, coverage, has_low_coverage FROM leaderboard WHERE env_id = $env ORDER BY model"
_NOT_TOLD = {"model", "endpoint", "rollouts per example"}
"""Settings that may differ between comparable runs of models."""
_LEAST_SHARE = 0.5


@dataclass(frozen=True)
class LeaderboardRow:
    """A model, represented by its chosen run. Two models are tied exactly if they share a letter.

    ``mean`` is over the examples that all models have scored. ``ranks`` are the best and worst possible rank. Intervals
    and ranks hold for all models at once.
    """

    model: str | None
    run_id: str
    mean: float
    interval: Interval
    ranks: tuple[int, int]
    letters: str
    tied: Sequence[str]


@dataclass(frozen=True)
class Leaderboard:
    """A ranking, the highest mean first.

    ``left_out`` maps each model that is left out to its number of common examples. ``low_coverage`` maps each model
    that is not ranked because too few rollouts of its run are scored to the scored share.
    """

    env_id: str
    metric: str
    alpha: float
    examples: int
    rows: Sequence[LeaderboardRow]
    left_out: Mapping[str, int]
    low_coverage: Mapping[str, float]
    differs: Sequence[str]


def leaderboard(
    env_id: str, *, metric: str = "reward", alpha: float = 0.05, warehouse: str | Path | Warehouse | None = None
) -> Leaderboard:
    """Ranks the models of an environment over the examples that all models have scored, and finds ties.

    The view ``leaderboard`` chooses the run of each model. A model is left out if less than 95 % of the rollouts of its
    run are scored, or if it would halve the common examples.
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"Expected alpha between 0 and 1, found {alpha}")
    where = Warehouse.of(warehouse)
    standing = where.query(_STANDING, {"env": env_id}).records()
    models = {run["run_id"]: run["model"] for run in standing if not run["has_low_coverage"]}
    low_coverage = {str(run["model"]): run["coverage"] or 0.0 for run in standing if run["has_low_coverage"]}
    place, (values, _, _) = read_values(where, list(models), metric)
    if not place:
        raise ConfigError(_too_few_scored(env_id, low_coverage) if low_coverage else no_such_run(where, env_id, metric))
    scored = ~np.isnan(values)
    kept, common = _with_common(place, scored)
    others = [run_id for run_id in place if run_id not in kept]
    kept.sort(key=lambda run_id: -float(values[place[run_id]][common].mean()))
    rows = _rows(values[[place[run_id] for run_id in kept]][:, common], kept, models, alpha)
    settings = list(settings_of(where, kept).values())
    may_matter = [name for name in settings[0] if name not in _NOT_TOLD]
    return Leaderboard(
        env_id=env_id,
        metric=metric,
        alpha=alpha,
        examples=int(common.sum()),
        rows=rows,
        left_out={str(models[run_id]): int((scored[place[run_id]] & common).sum()) for run_id in others},
        low_coverage=low_coverage,
        differs=[name for name in may_matter if len({str(one[name]) for one in settings}) > 1],
    )


def _too_few_scored(env_id: str, low_coverage: Mapping[str, float]) -> str:
    shares = ", ".join(f"{model} {share:.0%}" for model, share in low_coverage.items())
    return (
        f"No model of {env_id!r} can be ranked: less than {LEAST_COVERAGE:.0%} of the rollouts are scored ({shares}). "
        "Complete the runs with: nightjar eval retry RUN"
    )


def _with_common(place: Mapping[str, int], scored: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns the runs that keep at least half of the common examples, and the examples.

    ``scored`` is run × example.
    """
    ordered = sorted(place, key=lambda run_id: -int(scored[place[run_id]].sum()))
    common, kept = scored[place[ordered[0]]], []
    for run_id in ordered:
        smaller = common & scored[place[run_id]]
        if smaller.sum() >= _LEAST_SHARE * common.sum():
            common = smaller
            kept.append(run_id)
    return kept, common


def _rows(
    values: Matrix, run_ids: Sequence[str], models: Mapping[str, str | None], alpha: float
) -> list[LeaderboardRow]:
    count, ends = len(values), reward_range([float(values.min()), float(values.max())])
    span = ends[1] - ends[0]
    means = simultaneous_intervals(values, np.eye(count), alpha, span=span)
    is_better = better(simultaneous_intervals(values, pair_contrasts(count), alpha, span=span).signs, count)
    named = zip(run_ids, means.estimates, means.half_widths, rank_sets(is_better), letters(is_better), strict=True)
    tied = ~(is_better | is_better.T | np.eye(count, dtype=bool))
    return [
        LeaderboardRow(
            model=models[run_id],
            run_id=run_id,
            mean=float(mean),
            interval=within_rewards(Interval(float(mean - half), float(mean + half)), ends),
            ranks=ranks,
            letters=group,
            tied=[str(models[other]) for other, is_tied in zip(run_ids, tied[row], strict=True) if is_tied],
        )
        for row, (run_id, mean, half, ranks, group) in enumerate(named)
    ]

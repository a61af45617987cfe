"""``plan``: estimates from earlier runs how many examples and rollouts are needed to detect a drop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from nightjar.analysis.history import History, read_history
from nightjar.analysis.measuring import Paired
from nightjar.errors import ConfigError, MissingWarehouseError
from nightjar.statistics.change_points import noise_variances
from nightjar.statistics.planning import Spread, examples_needed, rollouts_needed, smallest_drop
from nightjar.statistics.variance import variance_components
from nightjar.warehouse import Warehouse

ROLLOUTS = (1, 2, 4, 8)
PILOT = (50, 2)
"""Examples and rollouts of a pilot run, which estimates how much rewards vary."""
_RECENT = 10
_FEWEST_COMMON = 30
_REWARDS = """
SELECT list(reward) FROM rollouts
WHERE run_id = $run_id AND reward IS NOT NULL AND example_hash IS NOT NULL GROUP BY example_hash
"""
_EXPENSES = """
SELECT
    median(runs.time_ms / (runs.scored + runs.failed)) / 1000 AS seconds,
    median(cost.cost / (runs.scored + runs.failed)) AS cost,
    max(num_examples) FILTER (
        (config ->> 'num_examples')::BIGINT = -1 OR (config ->> 'num_examples')::BIGINT > num_examples
    ) AS dataset
FROM runs LEFT JOIN cost USING (run_id)
WHERE list_contains($run_ids, run_id) AND runs.scored > 0
"""


@dataclass(frozen=True)
class Variances:
    """How much rewards vary.

    Attributes:
        between: variance of the examples' means over infinitely many rollouts.
        within: variance of one rollout of an example, from run to run.
        difference: variance over the examples of the true difference of two runs.
        runs: number of runs from which ``between`` and ``within`` are estimated. Without runs (0), they are the largest
            possible for binary rewards.
        is_within_known: False if no example was run twice, so that all variance counts as ``within``.
        models: other models from which ``difference`` is estimated. Without other models, each example is assumed to
            lose nothing or everything.
    """

    between: float
    within: float
    difference: float
    runs: int
    is_within_known: bool
    models: Sequence[str]


@dataclass(frozen=True)
class PlanRow:
    """The size and cost of each of the two runs, for a number of rollouts per example. None means unknown.

    ``smallest_drop`` is the smallest drop that the whole dataset can detect.
    """

    rollouts_per_example: int
    examples: int
    rollouts: int
    seconds: float | None
    cost: float | None
    smallest_drop: float | None


@dataclass(frozen=True)
class Plan:
    """Examples and rollouts that detect a drop with probability ``power``, by a two-sided interval at 1 − alpha.

    ``dataset`` is the number of examples in the dataset, or None if no run had all examples. ``rollouts_for_dataset``
    is None if no number of rollouts per example detects the drop on the whole dataset, or if its size is unknown.
    """

    env_id: str
    model: str | None
    detect: float
    power: float
    alpha: float
    variances: Variances
    dataset: int | None
    rows: Sequence[PlanRow]
    rollouts_for_dataset: int | None


def plan(
    env_id: str,
    *,
    detect: float,
    model: str | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    warehouse: str | Path | Warehouse | None = None,
) -> Plan:
    """Returns how many examples and rollouts two runs need to detect a drop of ``detect`` in the mean reward.

    ``power`` is the probability that the drop is detected; ``model`` defaults to the model of the newest run.
    """
    if not (detect > 0 and 0 < alpha < 1 and alpha / 2 < power < 1):
        raise ConfigError(f"Expected detect above 0, alpha and power between 0 and 1, found {detect}, {alpha}, {power}")
    where = Warehouse.of(warehouse)
    histories = _recent(where, env_id)
    if model and histories and model not in {one.model for one in histories}:
        raise ConfigError(f"No run of model {model!r}. There are: {', '.join(str(one.model) for one in histories)}")
    known, own_model = Variances(0.0, 0.25, _whole(detect), 0, is_within_known=False, models=[]), model
    expenses: tuple[float | None, float | None, int | None] = (None, None, None)
    if histories:
        [own] = [one for one in histories if one.model == (model or histories[0].model)]
        known, own_model = _variances(where, own, [one for one in histories if one is not own], detect), own.model
        expenses = where.query(_EXPENSES, {"run_ids": [run.run_id for run in own.runs]}).rows[0]
    spread = Spread(known.difference, 2 * known.within)
    seconds, cost, dataset = expenses
    rows = []
    for rollouts in ROLLOUTS:
        deviation = spread.deviation(rollouts)
        examples = examples_needed(deviation, detect, alpha, power)
        rows.append(
            PlanRow(
                rollouts_per_example=rollouts,
                examples=examples,
                rollouts=examples * rollouts,
                seconds=None if seconds is None else seconds * examples * rollouts,
                cost=None if cost is None else cost * examples * rollouts,
                smallest_drop=smallest_drop(deviation, dataset, alpha, power) if dataset and deviation else None,
            )
        )
    enough = rollouts_needed(spread, detect, dataset, alpha, power) if dataset else None
    return Plan(env_id, own_model, detect, power, alpha, known, dataset, rows, enough)


def _recent(warehouse: Warehouse, env_id: str) -> list[History]:
    try:
        if not warehouse.query("SELECT 1 FROM history WHERE env_id = $env LIMIT 1", {"env": env_id}).rows:
            return []
        found = read_history(warehouse, env_id)
    except MissingWarehouseError:
        return []
    found.sort(key=lambda one: one.runs[-1].began, reverse=True)
    newest = {one.model: one for one in reversed(found)}
    recent = [one.between(max(0, len(one.runs) - _RECENT), len(one.runs)) for one in newest.values()]
    return sorted(recent, key=lambda one: one.runs[-1].began, reverse=True)


def _variances(warehouse: Warehouse, own: History, others: Sequence[History], detect: float) -> Variances:
    between, within, is_known = _components(warehouse, own)
    differences = {}
    for other in others if is_known else []:
        found = _difference(warehouse, own, other, within)
        if found is not None:
            differences[str(other.model)] = found
    difference = median(differences.values()) if differences else _whole(detect)
    return Variances(between, within, difference, len(own.runs), is_known, list(differences))


def _whole(drop: float) -> float:
    """Returns the variance of the difference if each example loses 1 or nothing."""
    return drop * max(0.0, 1 - drop)


def _components(warehouse: Warehouse, past: History) -> tuple[float, float, bool]:
    """Returns the variances between and within examples, and whether the two can be told apart."""
    noise = noise_variances(past.values, past.counts)
    if noise.any():
        spread = float(np.nanmean(past.values, axis=0).var(ddof=1)) - float((noise / past.counts.sum(axis=0)).mean())
        return max(0.0, spread), float(noise.mean()), True
    rows = warehouse.query(_REWARDS, {"run_id": past.runs[-1].run_id}).rows
    found = variance_components(rewards for (rewards,) in rows)
    if found.within is not None:
        return found.between or 0.0, found.within, True
    return 0.0, float(np.nanvar(past.values[-1], ddof=1)) if past.values.shape[1] > 1 else 0.25, False


def _difference(warehouse: Warehouse, own: History, other: History, within: float) -> float | None:
    """Returns the variance over the examples of the true difference of two models, or None with few common examples."""
    paired = Paired.read(warehouse, [run.run_id for run in own.runs], [run.run_id for run in other.runs])
    both = paired.is_pair
    if both.sum() < _FEWEST_COMMON:
        return None
    _, noise, _ = _components(warehouse, other)
    by_chance = within * (1 / paired.scored_a[both]).mean() + noise * (1 / paired.scored_b[both]).mean()
    return max(0.0, float((paired.value_b - paired.value_a)[both].var(ddof=1) - by_chance))

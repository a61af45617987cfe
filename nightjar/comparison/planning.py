"""``plan``: how many examples and rollouts show a drop, as far as the runs that there are can tell.

>>> plan("gsm8k", detect=0.02).rows[0].examples  # doctest: +SKIP
1630
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from nightjar.comparison.history import History, read_history
from nightjar.comparison.measuring import Paired
from nightjar.errors import ConfigError, MissingWarehouseError
from nightjar.stats.change_points import noise_variances
from nightjar.stats.planning import Spread, examples_needed, rollouts_needed, smallest_drop
from nightjar.stats.variance import variance_components
from nightjar.warehouse import Warehouse, resolve_warehouse

ROLLOUTS = (1, 2, 4, 8)
"""The numbers of rollouts that are planned for."""
PILOT = (50, 2)
"""Examples and rollouts of a run that tells how much rewards vary."""
_RECENT = 10
"""So many of a model's newest runs count."""
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
        between: variance over the examples of what they come to over endlessly many rollouts.
        within: of one rollout of an example, from run to run.
        difference: over the examples, of the true difference of two runs.
        runs: how many the first two are from; 0 where they are the largest that right and wrong can have.
        is_within_known: whether any example was asked twice; if not, all of the variance is taken for ``within``.
        models: the other models that the last is from; where there is none, it is that of a drop to which each
            example adds nothing or all.
    """

    between: float
    within: float
    difference: float
    runs: int
    is_within_known: bool
    models: Sequence[str]


@dataclass(frozen=True)
class PlanRow:
    """What it takes with so many rollouts of each example; of one of the two runs.

    Attributes:
        examples: how many show the drop.
        rollouts: of all of them.
        seconds, cost: as the runs before; None where that is not known.
        smallest_drop: what the examples that there are show; None where it is not known how many these are.
    """

    rollouts_per_example: int
    examples: int
    rollouts: int
    seconds: float | None
    cost: float | None
    smallest_drop: float | None


@dataclass(frozen=True)
class Plan:
    """How many examples and rollouts show a drop, with the chance ``power``, by a two-sided interval at 1 − alpha.

    Attributes:
        model: whose runs it is from; None where there are none.
        dataset: how many examples the dataset has; None where no run has asked all.
        rows: for each number of rollouts.
        rollouts_for_dataset: how many rollouts of each example of the dataset show it; None where no number does, or it
            is not known how many examples there are.
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
    """Returns how many examples and rollouts two runs need for a drop between them to be seen.

    Args:
        env_id: the environment, as runs name it.
        detect: the drop of the mean reward.
        model: the one to plan for; None for that of the newest run.
        power: the chance that the drop is seen.
        alpha: of the interval of the difference, as for ``compare_runs``.
        warehouse: has the runs before; None for the one that runs go to.

    Raises:
        ConfigError: a number is out of range, or the model has no run although others have.
        WarehouseError: the warehouse cannot be asked.
    """
    if not (detect > 0 and 0 < alpha < 1 and alpha / 2 < power < 1):
        raise ConfigError(f"Expected detect above 0, alpha and power between 0 and 1, found {detect}, {alpha}, {power}")
    where = warehouse if isinstance(warehouse, Warehouse) else Warehouse(warehouse or resolve_warehouse())
    histories = _recent(where, env_id)
    if model and histories and model not in {one.model for one in histories}:
        raise ConfigError(f"No run of model {model!r}. There are: {', '.join(str(one.model) for one in histories)}")
    if not histories:
        known = Variances(0.0, 0.25, _whole(detect), 0, is_within_known=False, models=[])
        return _plan(env_id, model, detect, power, alpha, known, (None, None, None))
    [own] = [one for one in histories if one.model == (model or histories[0].model)]
    known = _variances(where, own, [one for one in histories if one is not own], detect)
    expenses = where.query(_EXPENSES, {"run_ids": [run.run_id for run in own.runs]}).rows[0]
    return _plan(env_id, own.model, detect, power, alpha, known, expenses)


def _plan(
    env_id: str,
    model: str | None,
    detect: float,
    power: float,
    alpha: float,
    known: Variances,
    expenses: tuple[float | None, float | None, int | None],
) -> Plan:
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
    return Plan(env_id, model, detect, power, alpha, known, dataset, rows, enough)


def _recent(warehouse: Warehouse, env_id: str) -> list[History]:
    """Returns of each model the newest runs with the same settings, the model with the newest run first."""
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
    """Returns the variance of the difference where a drop takes some examples whole: each loses 1, or nothing."""
    return drop * max(0.0, 1 - drop)


def _components(warehouse: Warehouse, past: History) -> tuple[float, float, bool]:
    """Returns the variance between examples and within, and whether these can be told apart."""
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
    """Returns the variance over the examples of the true difference of two models; None with few in common."""
    paired = Paired.read(warehouse, [run.run_id for run in own.runs], [run.run_id for run in other.runs])
    both = paired.is_pair
    if both.sum() < _FEWEST_COMMON:
        return None
    _, noise, _ = _components(warehouse, other)
    by_chance = within * (1 / paired.scored_a[both]).mean() + noise * (1 / paired.scored_b[both]).mean()
    return max(0.0, float((paired.value_b - paired.value_a)[both].var(ddof=1) - by_chance))

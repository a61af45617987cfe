"""``compare_runs``: is a run worse than another by more than it may be, and by how much?

>>> compare_runs("0a1b2c3d4e5f", "5f4e3d2c1b0a", max_drop=0.02).decision  # doctest: +SKIP
'PASS'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from nightjar.comparison.decision import decide, needed, reason
from nightjar.comparison.measuring import Paired, mean_interval, measure
from nightjar.comparison.pairs import settings_of
from nightjar.comparison.records import Comparison, Side
from nightjar.comparison.selecting import selected
from nightjar.errors import ConfigError
from nightjar.stats.estimates import Estimate
from nightjar.stats.intervals import Interval, wilson
from nightjar.warehouse import Warehouse, resolve_warehouse

_SIDES = """
WITH examples AS (
    SELECT
        run_id,
        count(*) AS examples,
        count(value) AS scored_examples,
        sum(value) AS right,
        coalesce(bool_and(scored = 1 AND value IN (0, 1)) FILTER (scored > 0), false) AS is_binary
    FROM example_results([$a, $b])
    GROUP BY run_id
)
SELECT
    runs.run_id, runs.env_id, runs.model, runs.status, runs.started_at::VARCHAR AS started_at, runs.rollouts,
    runs.scored, runs.failed, runs.coverage, runs.avg_reward, runs.time_ms, runs.stderr, runs.env_version,
    runs.served_models, coalesce(cost.input_tokens, runs.input_tokens) AS input_tokens,
    coalesce(cost.output_tokens, runs.output_tokens) AS output_tokens, coalesce(cost.cost, runs.cost) AS cost,
    coalesce(examples, 0) AS examples, coalesce(scored_examples, 0) AS scored_examples, "right", is_binary
FROM runs LEFT JOIN cost USING (run_id) LEFT JOIN examples USING (run_id)
WHERE runs.run_id IN ($a, $b)
"""
_MORE_SETTINGS = {"env_id": "environment", "env_version": "environment's version", "served_models": "served model"}


def compare_runs(
    baseline: str | Path,
    candidate: str | Path,
    *,
    warehouse: str | Path | Warehouse | None = None,
    max_drop: float = 0.05,
    alpha: float = 0.05,
    cluster: str | None = None,
) -> Comparison:
    """Compares two runs over the examples that both have scored, told apart by their content.

    Args:
        baseline, candidate: a run, as ``selecting.selected`` takes it: an id, a directory, ``MODEL@ENV``, results of
            other programs, and more.
        warehouse: has the runs that are given by id; None for the one that runs go to.
        max_drop: how much lower the candidate's mean reward may be.
        alpha: the chance that the interval of the difference misses, over many.
        cluster: a field of ``info`` that examples share which are no independent draws, as the passage they ask about;
            None where each stands for itself.

    Raises:
        ConfigError: a run is not there, both are the same, no example is scored in both, or none has the field.
        WarehouseError: the warehouse cannot be asked, or a run directory is damaged.
    """
    if not (0 < alpha < 1 and max_drop >= 0):
        raise ConfigError(f"Expected alpha between 0 and 1 and max_drop from 0 on, found {alpha} and {max_drop}")
    if not isinstance(warehouse, Warehouse):
        warehouse = Warehouse(warehouse or resolve_warehouse())
    with selected([baseline, candidate], warehouse) as (where, sides):
        a, b = (_single(run_ids, asked) for run_ids, asked in zip(sides, (baseline, candidate), strict=True))
        if a == b:
            raise ConfigError(f"Both are run {a!r}. Name two runs: nightjar eval list")
        return _compare(where, a, b, max_drop, alpha, cluster)


def _single(run_ids: Sequence[str], asked: str | Path) -> str:
    if len(run_ids) > 1:
        raise ConfigError(f"{str(asked)!r} has {len(run_ids)} runs: {', '.join(run_ids)}. Name one of them")
    return run_ids[0]


def _compare(warehouse: Warehouse, a: str, b: str, max_drop: float, alpha: float, cluster: str | None) -> Comparison:
    told = _told(warehouse, a, b)
    before, after = (_side(told[run_id], alpha) for run_id in (a, b))
    paired = Paired.read(warehouse, [a], [b], cluster=cluster)
    pairs = int(paired.is_pair.sum())
    if not pairs:
        raise ConfigError(_nothing_in_common(before, after, len(paired)))
    if cluster and not paired.cluster.any():
        raise ConfigError(f"No example of run {b!r} has {cluster!r} in its info, so they cannot be clustered by that")
    difference = measure(paired, alpha)
    decision = decide(difference, max_drop)
    more = needed(difference, pairs, max_drop, alpha) if decision == "INCONCLUSIVE" else None
    right = paired.is_pair & paired.right_a & paired.right_b
    broken, fixed = paired.flips()
    return Comparison(
        decision=decision,
        reason=reason(decision, difference, max_drop, more),
        max_drop=max_drop,
        alpha=alpha,
        baseline=before,
        candidate=after,
        pairs=pairs,
        unscored=len(paired) - pairs,
        only_baseline=before.examples - len(paired),
        only_candidate=after.examples - len(paired),
        difference=difference,
        both_right=int(right.sum()),
        both_wrong=pairs - int(right.sum()) - len(broken) - len(fixed),
        broken=broken,
        fixed=fixed,
        differs=_differing(warehouse, told[a], told[b]),
        pairs_needed=more,
    )


def _told(warehouse: Warehouse, a: str, b: str) -> dict[str, dict[str, Any]]:
    found = warehouse.query(_SIDES, {"a": a, "b": b})
    told = {row[0]: dict(zip(found.columns, row, strict=True)) for row in found.rows}
    for run_id in (a, b):
        if run_id not in told:
            raise ConfigError(f"No run {run_id!r} in {warehouse.location}. Those that there are: nightjar eval list")
    return told


def _side(told: dict[str, Any], alpha: float) -> Side:
    count = told["scored_examples"]
    if told["is_binary"]:
        interval = wilson(round(told["right"]), count, alpha)
    else:
        mean = told["avg_reward"]
        interval = mean_interval(Estimate(mean, told["stderr"]), count, alpha, span=1.0)
        if told["stderr"] == 0:
            interval = Interval(max(interval.low, min(0.0, mean)), min(interval.high, max(1.0, mean)))
    return Side(interval=interval, **{field.name: told[field.name] for field in fields(Side) if field.name in told})


def _nothing_in_common(before: Side, after: Side, asked: int) -> str:
    runs = f"run {before.run_id!r} ({before.env_id}) and run {after.run_id!r} ({after.env_id})"
    if asked:
        return f"No example is scored in both {runs}, although {asked} were asked in both: too many rollouts failed"
    return (
        f"No example is in both {runs}: {before.examples} and {after.examples} examples, all of other content. "
        "Compare runs over the same examples"
    )


def _differing(warehouse: Warehouse, before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    settings = settings_of(warehouse, [before["run_id"], after["run_id"]])
    was, is_now = (
        {**{label: told[name] for name, label in _MORE_SETTINGS.items()}, **settings[told["run_id"]]}
        for told in (before, after)
    )
    return {name: (value, is_now[name]) for name, value in was.items() if value != is_now[name]}

"""What a warehouse knows of the benchmarks of two sides, for a gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nightjar.comparison.gates.records import Benchmarks, Evidence
from nightjar.comparison.matching import Matched, match_evaluations
from nightjar.comparison.measuring import Paired
from nightjar.config.gate_policy import GatePolicy
from nightjar.warehouse import Warehouse

_RUNS = """
SELECT
    coalesce(config ->> 'name', metadata ->> 'name', env_id) AS name, run_id, env_id, model, rollouts, scored, failed
FROM runs
WHERE run_id IN (SELECT unnest($run_ids))
ORDER BY name, run_id
"""


@dataclass(frozen=True)
class GatedRun:
    """A run of a benchmark.

    Attributes:
        name: of the evaluation, or else its environment's id.
        rollouts: that it was asked for; None where that is not known.
        scored, failed: how many rollouts.
    """

    name: str
    run_id: str
    env_id: str
    model: str | None
    rollouts: int | None
    scored: int
    failed: int

    @property
    def names(self) -> tuple[str, str]:
        """What a policy may call it."""
        return self.name, self.env_id

    @property
    def coverage(self) -> float | None:
        """Scored / asked for; None where that is not known."""
        asked = self.rollouts or self.scored + self.failed
        return self.scored / asked if asked else None

    @property
    def not_made(self) -> int:
        """Rollouts that it was asked for and has neither scored nor failed."""
        return max(0, (self.rollouts or 0) - self.scored - self.failed)


def gated_runs(warehouse: Warehouse, run_ids: Sequence[str]) -> list[GatedRun]:
    """Returns what is known of runs; those that are not in the warehouse are left out."""
    if not run_ids:  # perhaps there is no warehouse
        return []
    return [GatedRun(*row) for row in warehouse.query(_RUNS, {"run_ids": list(run_ids)}).rows]


def evidence_of_sides(
    warehouse: Warehouse, policy: GatePolicy, baseline: Sequence[str], candidate: Sequence[str]
) -> tuple[Benchmarks, list[str]]:
    """Returns what is known of each benchmark that is in both sides or listed, and the names of the others.

    Args:
        warehouse: has the runs.
        policy: lists benchmarks by their names, or by their environments'.
        baseline, candidate: ids of runs.

    Raises:
        ConfigError: a side has an evaluation twice.
        WarehouseError: the warehouse cannot be asked.
    """
    has_both = baseline and candidate
    matched = match_evaluations(warehouse, baseline, candidate) if has_both else Matched([], [], [])
    runs = {run.run_id: run for run in gated_runs(warehouse, [*baseline, *candidate])}
    pairs = [(runs[a], runs[b]) for a, b in matched.pairs]
    taken = Counter(b.name for _, b in pairs)
    found = {
        b.name if taken[b.name] == 1 else f"{b.name} of {b.model}": evidence_of_pair(warehouse, policy, [a], b)
        for a, b in pairs
    }
    known = {name for pair in pairs for run in pair for name in run.names}
    for name in policy.benchmarks.keys() - known:
        sides = {"baseline": baseline, "candidate": candidate}
        lacking = [side for side, ids in sides.items() if not any(name in runs[one].names for one in ids)]
        found[name] = Evidence(policy.rule(name), missing=f"There is no run of it in the {' and the '.join(lacking)}.")
    paired = {run.run_id for pair in pairs for run in pair}
    alone = {run.name for run in runs.values() if run.run_id not in paired and not policy.lists(*run.names)}
    return found, sorted(alone)


def evidence_of_pair(
    warehouse: Warehouse, policy: GatePolicy, baseline: Sequence[GatedRun], candidate: GatedRun
) -> Evidence:
    """Returns what is known of a benchmark; of several runs in the baseline the mean counts."""
    rule = policy.rule(*candidate.names)
    run_ids = [run.run_id for run in baseline]
    coverages = [run.coverage for run in baseline if run.coverage is not None]
    return Evidence(
        rule=rule,
        is_listed=policy.lists(*candidate.names),
        paired=Paired.read(warehouse, run_ids, [candidate.run_id], metric=rule.measured),
        baseline_runs=run_ids,
        candidate_runs=[candidate.run_id],
        baseline_coverage=sum(coverages) / len(coverages) if coverages else None,
        candidate_coverage=candidate.coverage,
        not_made=candidate.not_made,
    )

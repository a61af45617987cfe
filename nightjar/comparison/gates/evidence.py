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
    coalesce(config ->> 'name', metadata ->> 'name', env_id) AS name, run_id, env_id, model, rollouts, scored, failed,
    coalesce(examples, 0)
FROM runs LEFT JOIN (
    SELECT run_id, count(*) AS examples FROM example_results($run_ids) GROUP BY run_id
) USING (run_id)
WHERE run_id IN (SELECT unnest($run_ids))
ORDER BY name, run_id
"""
_UNLIKE = "Its runs in the two sides are of different environments, or different names of one: none is compared."


@dataclass(frozen=True)
class GatedRun:
    """A run of a benchmark.

    Attributes:
        name: of the evaluation, or else its environment's id.
        rollouts: that it was asked for; None where that is not known.
        scored, failed: how many rollouts.
        examples: how many it has rollouts of.
    """

    name: str
    run_id: str
    env_id: str
    model: str | None
    rollouts: int | None
    scored: int
    failed: int
    examples: int

    @property
    def names(self) -> tuple[str, str]:
        """What a policy may call it."""
        return self.name, self.env_id

    def shared(self, other: GatedRun) -> list[str]:
        """Returns what a policy may call both; nothing where their environments differ."""
        return [name for name in self.names if name in other.names] if self.env_id == other.env_id else []

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

    The rule of a benchmark is by a name that both sides have: a candidate cannot choose its own by another name.

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
    pairs = [(a, b) for a, b in pairs if policy.lists(*a.shared(b)) or not policy.lists(*a.names, *b.names)]
    found = {
        name: evidence_of_pair(warehouse, policy, [a], b, a.shared(b)) if a.shared(b) else _of_two(policy, a, b)
        for name, (a, b) in zip(_called(pairs), pairs, strict=True)
    }
    for name in policy.benchmarks.keys() - {name for a, b in pairs for name in a.shared(b)}:
        sides = {"baseline": baseline, "candidate": candidate}
        lacking = [side for side, ids in sides.items() if not any(name in runs[one].names for one in ids)]
        told = f"There is no run of it in the {' and the '.join(lacking)}." if lacking else _UNLIKE
        found[name] = Evidence(policy.rule(name), missing=told)
    paired = {run.run_id for pair in pairs for run in pair}
    alone = {run.name for run in runs.values() if run.run_id not in paired and not policy.lists(*run.names)}
    return found, sorted(alone)


def _called(pairs: Sequence[tuple[GatedRun, GatedRun]]) -> list[str]:
    """Returns what each pair is called: by as much as tells it from the others."""
    names = [((a.shared(b) or b.names)[0], b) for a, b in pairs]
    ways = [(name, f"{name} of {b.model}", f"{name} of {b.env_id}, {b.model}") for name, b in names]
    taken = Counter(way for each in ways for way in each)
    return [next((way for way in each if taken[way] == 1), each[-1]) for each in ways]


def _of_two(policy: GatePolicy, a: GatedRun, b: GatedRun) -> Evidence:
    """Returns what is known of runs of different environments: nothing, also where they have the same examples."""
    told = f"The baseline's environment is {a.env_id!r}, the candidate's {b.env_id!r}: these are two benchmarks."
    return Evidence(policy.defaults, False, None, told, baseline_runs=[a.run_id], candidate_runs=[b.run_id])


def evidence_of_pair(
    warehouse: Warehouse,
    policy: GatePolicy,
    baseline: Sequence[GatedRun],
    candidate: GatedRun,
    names: Sequence[str],
) -> Evidence:
    """Returns what is known of a benchmark, by these names; of several runs in the baseline the mean counts."""
    rule = policy.rule(*names)
    run_ids = [run.run_id for run in baseline]
    coverages = [run.coverage for run in baseline if run.coverage is not None]
    return Evidence(
        rule=rule,
        is_listed=policy.lists(*names),
        paired=Paired.read(warehouse, run_ids, [candidate.run_id], metric=rule.measured),
        baseline_runs=run_ids,
        candidate_runs=[candidate.run_id],
        baseline_coverage=sum(coverages) / len(coverages) if coverages else None,
        candidate_coverage=candidate.coverage,
        not_made=candidate.not_made,
        baseline_examples=round(sum(run.examples for run in baseline) / max(1, len(baseline))),
    )

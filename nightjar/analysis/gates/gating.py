"""``gate``: may a candidate replace the baseline?"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from nightjar.analysis.gates.evidence import evidence_of_night, evidence_of_sides, night_asked_for
from nightjar.analysis.gates.policy import AcceptedNights, GatePolicy
from nightjar.analysis.gates.verdict import Verdict, decide_gate
from nightjar.analysis.recording import record_verdict
from nightjar.analysis.selecting import selected
from nightjar.errors import ConfigError, WarehouseError
from nightjar.warehouse import Warehouse

_log = logging.getLogger(__name__)


def gate(
    policy: GatePolicy | str | Path,
    baseline: str | Path | None = None,
    candidate: str | Path | None = None,
    *,
    warehouse: str | Path | Warehouse | None = None,
    record: bool = False,
) -> Verdict:
    """Returns the verdict whether a candidate stays within the losses that a policy allows on each benchmark.

    The sides are named as for ``selecting.selected``. The default baseline is the policy's baseline. If the baseline is
    accepted nights, the candidate is a night ``SUITE@DATE``, or ``SUITE`` for its newest night. None means the newest
    night of the only suite. ``record`` stores the verdict, if the warehouse has the runs of both sides.
    """
    rules = policy if isinstance(policy, GatePolicy) else GatePolicy.read(Path(policy))
    place = Warehouse.of(warehouse)
    if baseline is None and isinstance(rules.baseline, AcceptedNights):
        found, is_published = _gate_night(rules, rules.baseline.accepted_nights, str(candidate or ""), place), True
    else:
        found, is_published = _gate_sides(rules, baseline, candidate, place)
    path = "" if isinstance(policy, GatePolicy) else str(policy)
    found = replace(found, policy=path, policy_sha256=rules.sha256)
    return _recorded(place, found) if record and is_published else found


def _gate_sides(
    policy: GatePolicy, baseline: str | Path | None, candidate: str | Path | None, warehouse: Warehouse
) -> tuple[Verdict, bool]:
    before = baseline or (policy.baseline if isinstance(policy.baseline, str) else None)
    if not before or not candidate:
        lacking = "candidate" if before else "baseline, here or in the policy"
        raise ConfigError(f"Name the {lacking}: nightjar gate --policy FILE BASELINE CANDIDATE")
    rules = policy.model_copy(update={"baseline": str(before)})
    # an empty folder is not a usage error, but never gets a GO
    asked = [side for side in (before, candidate) if not (Path(side).is_dir() and not any(Path(side).iterdir()))]
    with selected(asked, warehouse) as (where, found):
        of_side = dict(zip(asked, found, strict=True))
        a, b = (of_side.get(side, []) for side in (before, candidate))
        if a and set(a) == set(b):
            raise ConfigError(f"Both sides are {', '.join(sorted(a))}. Name two runs: nightjar eval list")
        benchmarks, others = evidence_of_sides(where, rules, a, b)
        verdict = decide_gate(rules, benchmarks)
        return replace(verdict, baseline=str(before), candidate=str(candidate), not_gated=others), where is warehouse


def _gate_night(policy: GatePolicy, count: int, asked: str, warehouse: Warehouse) -> Verdict:
    night = night_asked_for(warehouse, asked)
    found = decide_gate(policy, evidence_of_night(warehouse, policy, night, count))
    return replace(
        found,
        baseline=f"the last {count} accepted nights",
        candidate=f"{night.suite}@{night.night}",
        suite=night.suite,
        night=night.night,
    )


def _recorded(warehouse: Warehouse, verdict: Verdict) -> Verdict:
    try:
        return replace(verdict, gate_id=record_verdict(warehouse, verdict))
    except WarehouseError as error:
        _log.warning("The verdict is not recorded: %s", error)
        return verdict

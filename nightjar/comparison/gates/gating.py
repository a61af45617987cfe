"""``gate``: may a candidate go where the baseline is?

>>> gate("configs/gates/release.yaml", "0a1b2c3d4e5f", "5f4e3d2c1b0a").decision  # doctest: +SKIP
'GO'
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from nightjar.comparison.gates.decision import decide_gate
from nightjar.comparison.gates.evidence import evidence_of_sides
from nightjar.comparison.gates.nights import evidence_of_night, night_asked_for
from nightjar.comparison.gates.records import Verdict
from nightjar.comparison.recording import record_verdict
from nightjar.comparison.selecting import selected
from nightjar.config.gate_policy import AcceptedNights, GatePolicy
from nightjar.errors import ConfigError, WarehouseError
from nightjar.warehouse import Warehouse, resolve_warehouse

_log = logging.getLogger(__name__)


def gate(
    policy: GatePolicy | str | Path,
    baseline: str | Path | None = None,
    candidate: str | Path | None = None,
    *,
    warehouse: str | Path | Warehouse | None = None,
    record: bool = False,
) -> Verdict:
    """Says whether a candidate is within what a policy lets it lose, benchmark by benchmark.

    Args:
        policy: or its file.
        baseline: results, as ``selecting.selected`` takes them; None for the policy's.
        candidate: results, too. Where the baseline is accepted nights, a night as ``SUITE@DATE``, or ``SUITE`` for its
            newest; None for the newest of the only suite.
        warehouse: has the runs that are given by name; None for the one that runs go to.
        record: whether the warehouse keeps the verdict, where it has the runs of both sides.

    Raises:
        ConfigError: the policy is wrong, a side is not there, or has two runs of a benchmark.
        WarehouseError: the warehouse cannot be asked, or a run directory is damaged.
    """
    rules = policy if isinstance(policy, GatePolicy) else GatePolicy.read(Path(policy))
    place = warehouse if isinstance(warehouse, Warehouse) else Warehouse(warehouse or resolve_warehouse())
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
    """Returns the verdict, and whether the warehouse has the runs of both sides."""
    before = baseline or (policy.baseline if isinstance(policy.baseline, str) else None)
    if not before or not candidate:
        lacking = "candidate" if before else "baseline, here or in the policy"
        raise ConfigError(f"Name the {lacking}: nightjar gate --policy FILE BASELINE CANDIDATE")
    rules = policy.model_copy(update={"baseline": str(before)})
    asked = [side for side in (before, candidate) if not _is_empty_folder(side)]
    with selected(asked, warehouse) as (where, found):
        of_side = dict(zip(asked, found, strict=True))
        a, b = (of_side.get(side, []) for side in (before, candidate))
        if a and set(a) == set(b):
            raise ConfigError(f"Both sides are {', '.join(sorted(a))}. Name two: nightjar eval list")
        benchmarks, others = evidence_of_sides(where, rules, a, b)
        verdict = decide_gate(rules, benchmarks)
        return replace(verdict, baseline=str(before), candidate=str(candidate), not_gated=others), where is warehouse


def _is_empty_folder(side: str | Path) -> bool:
    """Says whether a side is a folder with nothing in it: that is no error of who asks, and no GO."""
    return Path(side).is_dir() and not any(Path(side).iterdir())


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
    """Returns the verdict with the id that it is kept under; without, where this may not write."""
    try:
        return replace(verdict, gate_id=record_verdict(warehouse, verdict))
    except WarehouseError as error:
        _log.warning("The verdict is not recorded: %s", error)
        return verdict

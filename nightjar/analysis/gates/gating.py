"""``gate``: may a candidate replace the baseline? Reads the evidence on two sides, or on a night, from a warehouse."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nightjar.analysis.gates.policy import AcceptedNights, GatePolicy
from nightjar.analysis.gates.verdict import Benchmarks, Evidence, Nights, Verdict, decide_gate
from nightjar.analysis.history import read_values
from nightjar.analysis.judging import runs_of_night
from nightjar.analysis.measuring import Paired
from nightjar.analysis.pairs import Matched, match_evaluations, settings_of
from nightjar.analysis.recording import record_verdict
from nightjar.analysis.selecting import check_two_sides, selected
from nightjar.errors import ConfigError, WarehouseError
from nightjar.statistics.change_points import Matrix
from nightjar.statistics.windows import WINDOWS, normal_before
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import GATE_DECISIONS, Night

_log = logging.getLogger(__name__)
_RUNS = """
SELECT
    coalesce(config ->> 'name', metadata ->> 'name', env_id) AS name, run_id, env_id, model, coalesce(examples, 0),
    scored / coalesce(nullif(rollouts, 0), nullif(scored + failed, 0)) AS coverage,
    greatest(0, coalesce(rollouts, 0) - scored - failed) AS not_made
FROM runs LEFT JOIN (
    SELECT run_id, count(*) AS examples FROM example_results($run_ids) GROUP BY run_id
) USING (run_id)
WHERE run_id IN (SELECT unnest($run_ids))
ORDER BY name, run_id
"""
_UNLIKE = "The runs of this benchmark on the two sides have different environments or names, so no run is compared."
_ENDED = {"accepted", "worse", "incomplete"}


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
    if record and not is_published:
        _log.warning("The verdict is not recorded, because the runs of a side are not in %s.", place.location)
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
        check_two_sides((before, candidate), a, b)
        benchmarks, others = _evidence_of_sides(where, rules, a, b)
        verdict = decide_gate(rules, benchmarks)
        return replace(verdict, baseline=str(before), candidate=str(candidate), not_gated=others), where is warehouse


def _gate_night(policy: GatePolicy, count: int, asked: str, warehouse: Warehouse) -> Verdict:
    night = _night_asked_for(warehouse, asked)
    found = decide_gate(policy, _evidence_of_night(warehouse, policy, night, count))
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


@dataclass(frozen=True)
class _GatedRun:
    """A run. ``coverage`` is the scored share of its requested rollouts; ``not_made`` are neither scored nor failed."""

    name: str
    run_id: str
    env_id: str
    model: str | None
    examples: int
    coverage: float | None
    not_made: int

    @property
    def names(self) -> tuple[str, str]:
        return self.name, self.env_id

    def shared(self, other: _GatedRun) -> list[str]:
        """Returns the names that a policy may use for both runs. Returns no names if the environments differ."""
        return [name for name in self.names if name in other.names] if self.env_id == other.env_id else []


def _gated_runs(warehouse: Warehouse, run_ids: Sequence[str]) -> list[_GatedRun]:
    """Returns the runs with these ids. Leaves out unknown ids."""
    if not run_ids:  # perhaps there is no warehouse
        return []
    return [_GatedRun(*row) for row in warehouse.query(_RUNS, {"run_ids": list(run_ids)}).rows]


def _evidence_of_sides(
    warehouse: Warehouse, policy: GatePolicy, baseline: Sequence[str], candidate: Sequence[str]
) -> tuple[Benchmarks, list[str]]:
    """Returns the evidence on each benchmark that is in both sides or in the policy, and the other benchmarks' names.

    A rule is found by a name that both sides share, so a candidate cannot choose its rule by renaming.
    """
    has_both = baseline and candidate
    matched = match_evaluations(warehouse, baseline, candidate) if has_both else Matched([], [], [])
    runs = {run.run_id: run for run in _gated_runs(warehouse, [*baseline, *candidate])}
    pairs = [(runs[a], runs[b]) for a, b in matched.pairs]
    pairs = [(a, b) for a, b in pairs if policy.lists(*a.shared(b)) or not policy.lists(*a.names, *b.names)]
    found = {
        name: _evidence_of_pair(warehouse, policy, [a], b, a.shared(b)) if a.shared(b) else _of_two(policy, a, b)
        for name, (a, b) in zip(_called(pairs), pairs, strict=True)
    }
    for name in policy.benchmarks.keys() - {name for a, b in pairs for name in a.shared(b)}:
        sides = {"baseline": baseline, "candidate": candidate}
        lacking = [side for side, ids in sides.items() if not any(name in runs[one].names for one in ids)]
        missing = f"There is no run of this benchmark in the {' and the '.join(lacking)}." if lacking else _UNLIKE
        found[name] = Evidence(policy.rule(name), missing=missing)
    paired = {run.run_id for pair in pairs for run in pair}
    alone = {run.name for run in runs.values() if run.run_id not in paired and not policy.lists(*run.names)}
    return found, sorted(alone)


def _called(pairs: Sequence[tuple[_GatedRun, _GatedRun]]) -> list[str]:
    names = [((a.shared(b) or b.names)[0], b) for a, b in pairs]
    ways = [(name, f"{name} of {b.model}", f"{name} of {b.env_id}, {b.model}") for name, b in names]
    taken = Counter(way for each in ways for way in each)
    return [next((way for way in each if taken[way] == 1), each[-1]) for each in ways]


def _of_two(policy: GatePolicy, a: _GatedRun, b: _GatedRun) -> Evidence:
    """Returns no evidence, because the environments differ, even where the runs have the same examples."""
    missing = (
        f"The baseline's environment is {a.env_id!r}, the candidate's is {b.env_id!r}: these are different benchmarks."
    )
    return Evidence(policy.defaults, False, None, missing, baseline_runs=[a.run_id], candidate_runs=[b.run_id])


def _evidence_of_pair(
    warehouse: Warehouse, policy: GatePolicy, baseline: Sequence[_GatedRun], candidate: _GatedRun, names: Sequence[str]
) -> Evidence:
    """Returns the evidence on a pair. Several baseline runs are averaged."""
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


def _night_asked_for(warehouse: Warehouse, asked: str) -> Night:
    """Returns a night that has ended. An empty ``asked`` means the newest night of the only suite."""
    suite, _, date = asked.partition("@")
    ended = [night for night in warehouse.nights() if night.verdict in _ENDED]
    suites = sorted({night.suite for night in ended})
    if not suite and len(suites) > 1:
        raise ConfigError(
            f"Name the suite, or one of its nights as SUITE@DATE. Suites with nights: {', '.join(suites)}"
        )
    suite = (suite or "".join(suites)).removesuffix(".toml")
    found = [night for night in ended if night.suite == suite and date in ("", night.night)]
    if not found:
        raise ConfigError(
            f"No night {date or 'of any date'} of suite {suite!r} has ended. Suites with nights: "
            f"{', '.join(suites) or 'none'}; list a suite's nights: nightjar nights --suite NAME"
        )
    return max(found, key=lambda night: night.night)


def _evidence_of_night(warehouse: Warehouse, policy: GatePolicy, night: Night, count: int) -> Benchmarks:
    """Returns the evidence on each evaluation of a night, and on other benchmarks of the policy.

    The baseline is the last ``count`` accepted nights whose gate did not say NO-GO. Nights before the last night that
    was accepted by hand do not count.
    """
    run_ids = [run["run_id"] for run in runs_of_night(warehouse, night.suite, night.night).values()]
    tonight = {run.name: run for run in _gated_runs(warehouse, run_ids)}
    before = _nights_before(warehouse, night)
    stopped = _stopped(warehouse, night.suite)
    found = {}
    for one in night.evaluations:
        run = tonight.get(one.name)
        found[one.name] = (
            _missing(policy, one.name, one.env_id)
            if run is None
            else _beside(warehouse, policy, run, _rows(before, one.name, stopped), count)
        )
    known = {name for one in night.evaluations for name in (one.name, one.env_id)}
    return {**found, **{name: _missing(policy, name) for name in policy.benchmarks.keys() - known}}


def _missing(policy: GatePolicy, *names: str) -> Evidence:
    return Evidence(policy.rule(*names), is_listed=policy.lists(*names), missing="This night has no run of it.")


def _nights_before(warehouse: Warehouse, night: Night) -> list[Night]:
    before = [one for one in warehouse.nights() if one.suite == night.suite and one.night < night.night]
    by_hand = [at for at, one in enumerate(before) if one.is_accepted_by_hand]
    return [one for one in before[max(by_hand, default=0) :] if one.verdict in _ENDED]


def _stopped(warehouse: Warehouse, suite: str) -> set[str]:
    last = {one.night: one.verdict for one in warehouse.rows(GATE_DECISIONS) if one.suite == suite and one.night}
    return {date for date, verdict in last.items() if verdict == "NO-GO"}


def _rows(before: Sequence[Night], name: str, stopped: set[str]) -> list[tuple[str, bool]]:
    return [
        (one.run_id, night.is_accepted_by_hand or (night.verdict == "accepted" and night.night not in stopped))
        for night in before
        for one in night.evaluations
        if one.name == name and one.run_id
    ]


def _beside(
    warehouse: Warehouse, policy: GatePolicy, run: _GatedRun, before: Sequence[tuple[str, bool]], count: int
) -> Evidence:
    settings = settings_of(warehouse, [run.run_id, *(run_id for run_id, _ in before)])
    there = _as_far_as_needed([row for row in before if row[0] in settings], count)  # others were pruned
    run_ids, is_normal = [run_id for run_id, _ in there], [is_normal for _, is_normal in there]
    labels = [repr(settings[run_id]) for run_id in (*run_ids, run.run_id)]
    baseline = normal_before(len(run_ids), is_normal, labels, count)
    if not baseline:
        found = _evidence_of_pair(warehouse, policy, [], run, run.names)
        return replace(found, paired=None, missing="No earlier accepted night has this benchmark.", is_new=True)
    chosen = _gated_runs(warehouse, [run_ids[at] for at in baseline])
    found = _evidence_of_pair(warehouse, policy, chosen, run, run.names)
    values = _values(warehouse, [*run_ids, run.run_id], found.rule.measured)
    return replace(found, nights=Nights(values, [*is_normal, False], labels, count))


def _as_far_as_needed(rows: Sequence[tuple[str, bool]], count: int) -> list[tuple[str, bool]]:
    normal = [at for at, (_, is_normal) in enumerate(rows) if is_normal and at <= len(rows) - max(WINDOWS)]
    return list(rows[normal[-count] if len(normal) >= count else 0 :])


def _values(warehouse: Warehouse, run_ids: Sequence[str], metric: str) -> Matrix:
    place, (found, _, _) = read_values(warehouse, run_ids, metric)
    values = np.full((len(run_ids), found.shape[1]), np.nan)
    for row, run_id in enumerate(run_ids):
        if run_id in place:
            values[row] = found[place[run_id]]
    return values

"""``judge_night``: what a night of a suite came to, beside the last night that was accepted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nightjar.comparison.pairs import Paired, pair_runs
from nightjar.errors import MissingWarehouseError
from nightjar.stats.sign_flips import holm
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.nights import Change, Night, NightEvaluation, Verdict

LEVEL = 0.01
"""The chance of calling any evaluation of a night worse where nothing has changed."""
_RUNS = """
SELECT
    coalesce(runs.config ->> 'name', runs.config ->> 'env_id', runs.env_id) AS name, runs.run_id, runs.flow_run_id,
    runs.status, runs.scored, runs.rollouts, runs.avg_reward, runs.stderr, cost.cost, runs.errors
FROM runs LEFT JOIN cost USING (run_id)
WHERE runs.suite = $suite AND list_contains(runs.tags, $tag)
ORDER BY runs.status = 'completed', runs.started_at
"""


def night_tag(night: str) -> str:
    """Returns the tag of the runs of a night."""
    return f"night:{night}"


def completed_evaluations(warehouse: Warehouse, suite: str, night: str) -> set[str]:
    """Returns the names of the evaluations of a night that are complete."""
    return {name for name, run in _runs(warehouse, suite, night).items() if run["status"] == "completed"}


def find_night(nights: Sequence[Night], suite: str, night: str) -> Night | None:
    """Returns a night; None where nothing is written of it."""
    return next((one for one in nights if (one.suite, one.night) == (suite, night)), None)


def judge_night(warehouse: Warehouse, begun: Night) -> Night:
    """Returns what a night came to, from its runs that are published now; also where it is judged again.

    An evaluation is worse where its rewards over the examples that the last accepted night has, too, are lower by more
    than chance explains: for all evaluations of the night together that is wrong once in a hundred nights.

    Args:
        warehouse: has the runs and the nights before.
        begun: the night as it is written down, with its evaluations.

    Raises:
        WarehouseError: the warehouse cannot be read.
    """
    runs = _runs(warehouse, begun.suite, begun.night)
    accepted = [one for one in warehouse.nights() if one.suite == begun.suite and one.night < begun.night]
    accepted = [one for one in accepted if one.verdict == "accepted"]
    found = [_of_run(one, runs.get(one.name)) for one in begun.evaluations]
    compared = [_compared(warehouse, one, accepted) for one in found]
    evaluations = list(_changes(compared))
    judged = replace(begun, evaluations=evaluations, ended_at=datetime.now(UTC).replace(microsecond=0))
    verdict = "accepted" if begun.is_accepted_by_hand else _verdict(evaluations)
    return replace(judged, verdict=verdict, line=_line(judged, verdict))


def _runs(warehouse: Warehouse, suite: str, night: str) -> dict[str, dict[str, Any]]:
    """Returns of each evaluation the run that counts: one that is complete, or else the newest."""
    try:
        found = warehouse.query(_RUNS, {"suite": suite, "tag": night_tag(night)})
    except MissingWarehouseError:
        return {}
    return {row[0]: dict(zip(found.columns, row, strict=True)) for row in found.rows}


def _of_run(expected: NightEvaluation, run: dict[str, Any] | None) -> NightEvaluation:
    empty = NightEvaluation(expected.name, "missing", expected.env_id, expected.model)
    return empty if run is None else replace(empty, **{**run, "errors": dict(run["errors"] or {})})


def _compared(
    warehouse: Warehouse, one: NightEvaluation, accepted: Sequence[Night]
) -> tuple[NightEvaluation, Paired | None]:
    """Compares an evaluation with the last accepted night that has it."""
    for night in reversed(accepted):
        other = next((each for each in night.evaluations if each.name == one.name and each.run_id), None)
        if other is None or other.run_id is None or one.run_id is None:
            continue
        paired = pair_runs(warehouse, other.run_id, one.run_id)
        compared = replace(
            one,
            against_night=night.night,
            against_run=other.run_id,
            pairs=paired.pairs,
            unpaired=paired.unpaired,
            difference=paired.difference,
            difference_stderr=paired.stderr,
            p_worse=paired.p_worse,
            differs=paired.differs,
        )
        return compared, paired
    return one, None


def _changes(compared: Sequence[tuple[NightEvaluation, Paired | None]]) -> Iterator[NightEvaluation]:
    pairs = [paired for _, paired in compared if paired is not None and paired.pairs]
    worse = iter(holm([paired.p_worse for paired in pairs]))
    better = iter(holm([paired.p_better for paired in pairs]))
    for one, paired in compared:
        if paired is None or not paired.pairs:
            yield replace(one, change="new" if one.status == "completed" else "missing")
        else:
            is_worse, is_better = next(worse) < LEVEL, next(better) < LEVEL
            yield replace(one, change=_change(one, is_worse=is_worse, is_better=is_better))


def _change(one: NightEvaluation, *, is_worse: bool, is_better: bool) -> Change:
    if is_worse:
        return "worse"
    if one.status != "completed":
        return "missing"
    return "better" if is_better else "same"


def _verdict(evaluations: Sequence[NightEvaluation]) -> Verdict:
    changes = {one.change for one in evaluations}
    return "worse" if "worse" in changes else "incomplete" if "missing" in changes else "accepted"


def _line(night: Night, verdict: Verdict) -> str:
    complete = sum(one.status == "completed" for one in night.evaluations)
    parts = [f"{night.suite} {night.night} {verdict}: {complete} of {len(night.evaluations)} evaluations complete"]
    parts += [f"{one.name} worse by {_amount(one)}" for one in night.evaluations if one.change == "worse"]
    parts += [f"{one.name} better by {_amount(one)}" for one in night.evaluations if one.change == "better"]
    parts += [_missing(one) for one in night.evaluations if one.status != "completed"]
    parts += [_differing(one) for one in night.evaluations if one.differs]
    if "worse" not in {one.change for one in night.evaluations}:
        against = {one.against_night for one in night.evaluations if one.against_night}
        parts.append(f"none worse than on {max(against)}" if against else "nothing to compare with")
    parts += ["accepted by hand"] if night.is_accepted_by_hand else []
    parts += [] if night.cost is None else [f"cost {night.cost:.4g}"]
    return "; ".join(parts)


def _amount(one: NightEvaluation) -> str:
    assert one.difference is not None, "it has pairs"
    error = "" if one.difference_stderr is None else f" ± {one.difference_stderr:.3f}"
    return f"{abs(one.difference):.3f}{error} than on {one.against_night} ({one.pairs} examples)"


def _missing(one: NightEvaluation) -> str:
    if one.run_id is None:
        return f"{one.name} has no run"
    lacking = (one.rollouts or 0) - (one.scored or 0)
    return f"{one.name} lacks {lacking} of {one.rollouts} rollouts"


def _differing(one: NightEvaluation) -> str:
    common = f", {one.pairs} examples in common" if "dataset" in one.differs else ""
    return f"{one.name} has another {' and '.join(one.differs)}{common}"

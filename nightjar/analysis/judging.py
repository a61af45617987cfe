"""``judge_night``: compares a night of a suite with the accepted nights before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from nightjar.analysis.pairs import Compared, compare_run, differing, settings_of, unpaired
from nightjar.core.text import counted, with_error
from nightjar.errors import MissingWarehouseError
from nightjar.statistics.exchange import holm
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import Change, Night, NightEvaluation, Verdict, night_tag

LEVEL = 0.01
"""Chance that any evaluation of a night counts as worse although nothing changed."""
BASELINE_NIGHTS = 7
"""Maximum number of accepted nights to compare with. With only one night, half of the noise would be that night's."""
_RUNS = """
SELECT
    coalesce(runs.config ->> 'name', runs.config ->> 'env_id', runs.env_id) AS name, runs.run_id, runs.flow_run_id,
    runs.status, runs.scored, runs.rollouts, runs.avg_reward, runs.stderr, cost.cost, runs.errors,
    runs.metadata ->> 'error' AS reason,
    runs.num_examples, runs.reward_examples, runs.lowest_reward, runs.highest_reward
FROM runs LEFT JOIN cost USING (run_id)
WHERE runs.suite = $suite AND list_contains(runs.tags, $tag)
ORDER BY runs.status = 'completed', runs.started_at
"""


def completed_evaluations(warehouse: Warehouse, suite: str, night: str) -> set[str]:
    return {name for name, run in runs_of_night(warehouse, suite, night).items() if run["status"] == "completed"}


def find_night(nights: Sequence[Night], suite: str, night: str) -> Night | None:
    return next((one for one in nights if (one.suite, one.night) == (suite, night)), None)


def judge_night(warehouse: Warehouse, begun: Night) -> Night:
    """Returns a recorded night with its verdict, from the runs that are published now. Calls may be repeated.

    An evaluation is compared with the last accepted night, and up to six accepted nights before it with equal settings.
    The evaluation is worse if its rewards over the same examples are lower by more than chance. If nothing has changed,
    at least one evaluation counts as worse in one of a hundred nights.
    """
    runs = runs_of_night(warehouse, begun.suite, begun.night)
    before = [one for one in warehouse.nights() if one.suite == begun.suite and one.night < begun.night]
    accepted = [one for one in before if one.verdict == "accepted"]
    compared = [_compared(warehouse, _of_run(one, runs.get(one.name)), accepted) for one in begun.evaluations]
    evaluations = list(_changes(compared))
    judged = replace(begun, evaluations=evaluations, ended_at=datetime.now(UTC).replace(microsecond=0))
    verdict = "accepted" if begun.is_accepted_by_hand else _verdict(evaluations)
    return replace(judged, verdict=verdict, line=_line(judged, verdict))


def runs_of_night(warehouse: Warehouse, suite: str, night: str) -> dict[str, dict[str, Any]]:
    """Returns the run that counts for each evaluation: a completed run, or else the newest run."""
    try:
        found = warehouse.query(_RUNS, {"suite": suite, "tag": night_tag(night)})
    except MissingWarehouseError:
        return {}
    return {record["name"]: record for record in found.records()}


def _of_run(expected: NightEvaluation, run: dict[str, Any] | None) -> NightEvaluation:
    empty = NightEvaluation(expected.name, "missing", expected.env_id, expected.model)
    if run is None:
        return replace(empty, reason=expected.reason)
    return replace(empty, **{**run, "errors": dict(run["errors"] or {})})


def _compared(
    warehouse: Warehouse, one: NightEvaluation, accepted: Sequence[Night]
) -> tuple[NightEvaluation, Compared | None]:
    known = _nights_with(one.name, accepted)
    if one.run_id is None or not known:
        return one, None
    settings = settings_of(warehouse, [one.run_id, *known])
    nights = {run_id: night for run_id, night in known.items() if run_id in settings}  # others were pruned
    if not nights:
        return one, None
    against_run, against_night = next(iter(nights.items()))
    was, is_now = settings[against_run], settings[one.run_id]
    baseline = [*takewhile(lambda run_id: settings[run_id] == was, nights)]
    compared = compare_run(warehouse, one.run_id, baseline)
    judged = replace(
        one,
        against_night=against_night,
        against_run=against_run,
        against_nights=len(baseline),
        pairs=compared.pairs,
        unpaired=unpaired(warehouse, against_run, one.run_id),
        difference=compared.difference,
        difference_stderr=compared.stderr,
        p_worse=compared.p_worse,
        differs=list(differing(was, is_now)),
    )
    return judged, compared


def _nights_with(name: str, accepted: Sequence[Night]) -> dict[str, str]:
    """Returns dates by run id for the accepted nights with an evaluation, back to the last night accepted by hand."""
    found: dict[str, str] = {}
    for night in reversed(accepted):
        found |= {each.run_id: night.night for each in night.evaluations if each.name == name and each.run_id}
        if night.is_accepted_by_hand or len(found) == BASELINE_NIGHTS:
            break
    return found


def _changes(compared: Sequence[tuple[NightEvaluation, Compared | None]]) -> Iterator[NightEvaluation]:
    found = [each for _, each in compared if each is not None and each.pairs]
    worse = iter(holm([each.p_worse for each in found]))
    better = iter(holm([each.p_better for each in found]))
    for one, each in compared:
        if each is None or not each.pairs:
            yield replace(one, change="new" if one.status == "completed" else "missing")
        else:
            is_worse, is_better = next(worse) < LEVEL, next(better) < LEVEL
            change: Change = "better" if is_better else "same"
            if one.status != "completed":
                change = "missing"
            yield replace(one, change="worse" if is_worse else change)


def _verdict(evaluations: Sequence[NightEvaluation]) -> Verdict:
    changes = {one.change for one in evaluations}
    return "worse" if "worse" in changes else "incomplete" if "missing" in changes else "accepted"


def _line(night: Night, verdict: Verdict) -> str:
    complete = sum(one.status == "completed" for one in night.evaluations)
    parts = [
        f"{night.suite} {night.night} {verdict}: {complete} of {counted(len(night.evaluations), 'evaluation')} complete"
    ]
    parts += [f"{one.name} worse by {_amount(one)}" for one in night.evaluations if one.change == "worse"]
    parts += [f"{one.name} better by {_amount(one)}" for one in night.evaluations if one.change == "better"]
    parts += [_missing(one) for one in night.evaluations if one.status != "completed"]
    parts += [_differing(one) for one in night.evaluations if one.differs]
    if "worse" not in {one.change for one in night.evaluations}:
        against = {one.against_night for one in night.evaluations if one.against_night and one.pairs}
        parts.append(f"none worse than on {max(against)}" if against else "nothing to compare with")
    parts += ["accepted by hand"] if night.is_accepted_by_hand else []
    parts += [] if night.cost is None else [f"cost {night.cost:.4g}"]
    return "; ".join(parts)


def _amount(one: NightEvaluation) -> str:
    assert one.difference is not None, "it has pairs"
    amount = with_error(abs(one.difference), one.difference_stderr)
    return f"{amount} than {beside(one)} ({counted(one.pairs, 'example')})"


def beside(one: NightEvaluation) -> str:
    before = one.against_nights - 1
    return f"on {one.against_night}" + (f" and {counted(before, 'night')} before" if before else "")


def _missing(one: NightEvaluation) -> str:
    if one.run_id is None:
        return f"{one.name} has no run" + (f": {one.reason}" if one.reason else "")
    lacking = (one.rollouts or 0) - (one.scored or 0)
    return f"{one.name} lacks {lacking} of {counted(one.rollouts or 0, 'rollout')}"


def _differing(one: NightEvaluation) -> str:
    common = f", {counted(one.pairs, 'example')} in common" if "dataset" in one.differs else ""
    return f"{one.name} has another {' and '.join(one.differs)}{common}"

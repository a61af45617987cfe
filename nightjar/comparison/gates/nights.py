"""What a warehouse knows of a night of a suite beside the accepted nights before it, for a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nightjar.comparison.gates.evidence import GatedRun, evidence_of_pair, gated_runs
from nightjar.comparison.gates.records import Benchmarks, Evidence, Nights
from nightjar.comparison.judging import runs_of_night
from nightjar.comparison.pairs import settings_of
from nightjar.config.gate_policy import GatePolicy
from nightjar.errors import ConfigError
from nightjar.stats.windows import WINDOWS, normal_before
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.decisions import GATE_DECISIONS
from nightjar.warehouse.storage.nights import Night

_ENDED = {"accepted", "worse", "incomplete"}
_VALUES = """
SELECT run_id, dense_rank() OVER (ORDER BY example_hash) - 1 AS example, value
FROM example_results($run_ids, metric := $metric)
"""


def night_asked_for(warehouse: Warehouse, asked: str) -> Night:
    """Returns a night that has ended.

    Args:
        warehouse: where it is.
        asked: ``SUITE@DATE``; ``SUITE`` for its newest night; empty for the newest of the only suite.

    Raises:
        ConfigError: there is none.
        WarehouseError: the warehouse cannot be read.
    """
    suite, _, date = asked.partition("@")
    ended = [night for night in warehouse.nights() if night.verdict in _ENDED]
    suites = sorted({night.suite for night in ended})
    if not suite and len(suites) > 1:
        raise ConfigError(f"Name the suite, or a night of it as SUITE@DATE. Suites with nights: {', '.join(suites)}")
    suite = (suite or "".join(suites)).removesuffix(".toml")
    found = [night for night in ended if night.suite == suite and date in ("", night.night)]
    if not found:
        raise ConfigError(
            f"No night {date or 'of any date'} of suite {suite!r} has ended. Suites with nights: "
            f"{', '.join(suites) or 'none'}; those of each: nightjar nights --suite NAME"
        )
    return max(found, key=lambda night: night.night)


def evidence_of_night(warehouse: Warehouse, policy: GatePolicy, night: Night, count: int) -> Benchmarks:
    """Returns what is known of each evaluation of a night, and of what the policy lists besides.

    A night is compared with accepted ones whose gate did not say NO-GO, back to one that somebody has accepted by hand.

    Args:
        warehouse: where it is.
        policy: lists evaluations by their names, or by their environments'.
        night: that has ended.
        count: with how many accepted nights it is compared.

    Raises:
        WarehouseError: the warehouse cannot be asked.
    """
    tonight = {run.name: run for run in gated_runs(warehouse, [*_run_ids(warehouse, night).values()])}
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
    return Evidence(policy.rule(*names), is_listed=policy.lists(*names), missing="There is no run of it in this night.")


def _run_ids(warehouse: Warehouse, night: Night) -> dict[str, str]:
    """Returns name to run of the evaluations of a night, as they are published now."""
    return {name: run["run_id"] for name, run in runs_of_night(warehouse, night.suite, night.night).items()}


def _nights_before(warehouse: Warehouse, night: Night) -> list[Night]:
    """Returns the nights that ended before, from the last one on that somebody has accepted by hand."""
    before = [one for one in warehouse.nights() if one.suite == night.suite and one.night < night.night]
    by_hand = [at for at, one in enumerate(before) if one.is_accepted_by_hand]
    return [one for one in before[max(by_hand, default=0) :] if one.verdict in _ENDED]


def _stopped(warehouse: Warehouse, suite: str) -> set[str]:
    """Returns the dates of the nights of a suite of which the last gate said NO-GO."""
    last = {one.night: one.verdict for one in warehouse.rows(GATE_DECISIONS) if one.suite == suite and one.night}
    return {date for date, verdict in last.items() if verdict == "NO-GO"}


def _rows(before: Sequence[Night], name: str, stopped: set[str]) -> list[tuple[str, bool]]:
    """Returns the run of an evaluation in each night that has one, and whether that night is a normal one."""
    return [
        (one.run_id, night.is_accepted_by_hand or (night.verdict == "accepted" and night.night not in stopped))
        for night in before
        for one in night.evaluations
        if one.name == name and one.run_id
    ]


def _beside(
    warehouse: Warehouse, policy: GatePolicy, run: GatedRun, before: Sequence[tuple[str, bool]], count: int
) -> Evidence:
    settings = settings_of(warehouse, [run.run_id, *(run_id for run_id, _ in before)])
    there = _as_far_as_needed([row for row in before if row[0] in settings], count)  # others were pruned
    run_ids, is_normal = [run_id for run_id, _ in there], [is_normal for _, is_normal in there]
    labels = [repr(settings[run_id]) for run_id in (*run_ids, run.run_id)]
    baseline = normal_before(len(run_ids), is_normal, labels, count)
    if not baseline:
        found = evidence_of_pair(warehouse, policy, [], run, run.names)
        return replace(found, paired=None, missing="No accepted night before this one has it.", is_new=True)
    chosen = gated_runs(warehouse, [run_ids[at] for at in baseline])
    found = evidence_of_pair(warehouse, policy, chosen, run, run.names)
    values = _values(warehouse, [*run_ids, run.run_id], found.rule.measured)
    return replace(found, nights=Nights(values, [*is_normal, False], labels, count))


def _as_far_as_needed(rows: Sequence[tuple[str, bool]], count: int) -> list[tuple[str, bool]]:
    """Returns the last nights: those of the longest window, and before it as many normal ones as are compared."""
    normal = [at for at, (_, is_normal) in enumerate(rows) if is_normal and at <= len(rows) - max(WINDOWS)]
    return list(rows[normal[-count] if len(normal) >= count else 0 :])


def _values(warehouse: Warehouse, run_ids: Sequence[str], metric: str) -> NDArray[np.float64]:
    """Returns a row a run, a column an example."""
    found = warehouse.query_arrow(_VALUES, {"run_ids": list(run_ids), "metric": metric})
    row = {run_id: at for at, run_id in enumerate(run_ids)}
    at, example = [row[run_id] for run_id in found["run_id"].to_pylist()], found["example"].to_numpy()
    values = np.full((len(run_ids), int(example.max(initial=-1)) + 1), np.nan)
    values[at, example] = found["value"].to_numpy()
    return values

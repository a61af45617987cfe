"""``compare_runs``: is a run worse than another by more than it may be, and by how much? ``compare_all``: of several.

>>> compare_runs("0a1b2c3d4e5f", "5f4e3d2c1b0a", max_drop=0.02).decision  # doctest: +SKIP
'PASS'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar.comparison.categories import measure_categories
from nightjar.comparison.decision import damage_of, decide, needed, reason
from nightjar.comparison.excerpts import read_excerpts
from nightjar.comparison.matching import match_evaluations
from nightjar.comparison.measuring import Paired, measure
from nightjar.comparison.pairs import settings_of
from nightjar.comparison.records import Comparison, Comparisons, Decision, Direction, Side, Terms
from nightjar.comparison.retries import retries_of
from nightjar.comparison.selecting import selected
from nightjar.comparison.sides import side_of, told_of_sides
from nightjar.errors import ConfigError
from nightjar.warehouse import Warehouse, resolve_warehouse

_METRICS = "SELECT DISTINCT name FROM metrics WHERE list_contains([$a, $b], run_id) ORDER BY name"
_MORE_SETTINGS = {"env_id": "environment", "env_version": "environment's version", "served_models": "served model"}
_WORST_FIRST: Sequence[Decision] = ("REGRESSION", "INCONCLUSIVE", "PASS")


def compare_runs(
    baseline: str | Path,
    candidate: str | Path,
    *,
    warehouse: str | Path | Warehouse | None = None,
    max_drop: float = 0.05,
    alpha: float = 0.05,
    metric: str = "reward",
    direction: Direction = "higher",
    cluster: str | None = None,
    by: str | None = None,
) -> Comparison:
    """Compares two runs over the examples that both have scored, told apart by their content.

    Args:
        baseline, candidate: a run, as ``selecting.selected`` takes it: an id, a directory, ``MODEL@ENV``, results of
            other programs, and more.
        warehouse: has the runs that are given by id; None for the one that runs go to.
        max_drop, alpha, metric, direction, cluster, by: see ``Terms``.

    Raises:
        ConfigError: a run is not there, both are the same, there are several evaluations, no example is scored in both,
            or none has the metric or field.
        WarehouseError: the warehouse cannot be asked, or a run directory is damaged.
    """
    terms = Terms(max_drop, alpha, metric, direction, cluster, by)
    compared = compare_all(baseline, candidate, terms, warehouse=warehouse)
    if len(compared.found) != 1 or compared.missing or compared.new:
        told = [*(one.baseline.name or "" for one in compared.found), *compared.missing, *compared.new]
        raise ConfigError(f"There are {len(told)} evaluations: {', '.join(told)}. Name a run of each side")
    return compared.found[0]


def compare_all(
    baseline: str | Path,
    candidate: str | Path,
    terms: Terms | None = None,
    *,
    warehouse: str | Path | Warehouse | None = None,
    excerpts: int = 0,
) -> Comparisons:
    """Compares all evaluations that two sides have in common: the same environment, and name where that has several.

    Args:
        baseline, candidate: runs, as ``selecting.selected`` takes them.
        terms: on which all are compared; None for the usual ones.
        warehouse: as for ``compare_runs``.
        excerpts: so many flips each way have their texts.

    Raises:
        ConfigError: as ``compare_runs``, where there is one run on either side; what cannot be compared otherwise
            is among those that are missing.
        WarehouseError: the warehouse cannot be asked, or a run directory is damaged.
    """
    terms = terms or Terms()
    if not isinstance(warehouse, Warehouse):
        warehouse = Warehouse(warehouse or resolve_warehouse())
    with selected([baseline, candidate], warehouse) as (where, (a, b)):
        matched = match_evaluations(where, a, b)
        found: list[Comparison] = []
        missing = dict.fromkeys(matched.only_a, "The candidate has no run of it")
        for before, after in matched.pairs:
            try:
                found.append(compare_published(where, before, after, terms, excerpts))
            except ConfigError as error:
                if len(a) == len(b) == 1:
                    raise
                missing[f"run {before}"] = str(error)
    found.sort(
        key=lambda one: (_WORST_FIRST.index(one.decision), -damage_of(one.difference.interval, terms.direction).high)
    )
    return Comparisons(found, missing, matched.only_b)


def compare_published(warehouse: Warehouse, a: str, b: str, terms: Terms, excerpts: int = 0) -> Comparison:
    """Compares two runs of one warehouse; takes ids alone, as from somebody who may read nothing else.

    Args:
        warehouse: has both.
        a, b: the ids of the baseline and the candidate.
        terms, excerpts: as for ``compare_all``.

    Raises:
        ConfigError, WarehouseError: as ``compare_runs``.
    """
    if a == b:
        raise ConfigError(f"Both are run {a!r}. Name two runs: nightjar eval list")
    told = told_of_sides(warehouse, a, b, terms.metric)
    before, after = (side_of(told[run_id], terms.alpha) for run_id in (a, b))
    paired = _paired(warehouse, before, after, terms)
    pairs = int(paired.is_pair.sum())
    difference = measure(paired, terms.alpha, terms.direction)
    decision = decide(difference, terms.max_drop, terms.direction)
    more = needed(difference, pairs, terms) if decision == "INCONCLUSIVE" else None
    why = reason(decision, difference, pairs, terms, more)
    if unmade := max(0, (after.rollouts or 0) - after.scored - after.failed):
        why += f" But {unmade:,} of the candidate's {after.rollouts:,} rollouts are not made."
        decision = "INCONCLUSIVE" if decision == "PASS" else decision
    both_right = int((paired.is_pair & paired.right_a & paired.right_b).sum())
    broken, fixed = paired.flips()
    return Comparison(
        decision=decision,
        reason=why,
        terms=terms,
        baseline=before,
        candidate=after,
        pairs=pairs,
        unscored=len(paired) - pairs,
        only_baseline=before.examples - len(paired),
        only_candidate=after.examples - len(paired),
        difference=difference,
        both_right=both_right,
        both_wrong=pairs - both_right - len(broken) - len(fixed),
        broken=broken,
        fixed=fixed,
        categories=measure_categories(paired, terms) if terms.by else [],
        excerpts=read_excerpts(warehouse, a, b, broken[:excerpts], fixed[:excerpts]),
        differs=_differing(warehouse, told[a], told[b]),
        retries={
            run_id: found
            for run_id in (a, b)
            if (found := retries_of(warehouse, run_id, terms.alpha)).matter(terms.alpha)
        },
        pairs_needed=more,
    )


def _paired(warehouse: Warehouse, before: Side, after: Side, terms: Terms) -> Paired:
    a, b = before.run_id, after.run_id
    paired = Paired.read(warehouse, [a], [b], cluster=terms.cluster, metric=terms.metric, by=terms.by)
    if not paired.is_pair.any():
        raise ConfigError(_no_metric(warehouse, a, b, terms) or _nothing_in_common(before, after, len(paired)))
    for field, values, use in ((terms.cluster, paired.cluster, "clustered"), (terms.by, paired.category, "told apart")):
        if field and not values.any():
            raise ConfigError(f"No example of run {b!r} has {field!r} in its info, so they cannot be {use} by that")
    return paired


def _no_metric(warehouse: Warehouse, a: str, b: str, terms: Terms) -> str:
    """Says where no rollout has the metric."""
    names = ["reward", "correct", *(name for (name,) in warehouse.query(_METRICS, {"a": a, "b": b}).rows)]
    if terms.metric in names:
        return ""
    return f"No rollout of run {a!r} or {b!r} has {terms.metric!r}. Choose one of: {', '.join(names)}"


def _nothing_in_common(before: Side, after: Side, asked: int) -> str:
    runs = f"run {before.run_id!r} ({before.env_id}) and run {after.run_id!r} ({after.env_id})"
    if asked:
        return f"No example is scored in both {runs}, although {asked} were asked in both: too many rollouts failed"
    return (
        f"No example is in both {runs}: {before.examples} and {after.examples} examples, all of other content. "
        "Compare runs over the same examples"
    )


def _differing(warehouse: Warehouse, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    settings = settings_of(warehouse, [before["run_id"], after["run_id"]])
    was, is_now = (
        {**{label: told[name] for name, label in _MORE_SETTINGS.items()}, **settings[told["run_id"]]}
        for told in (before, after)
    )
    return {name: (value, is_now[name]) for name, value in was.items() if value != is_now[name]}

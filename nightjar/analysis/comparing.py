"""``compare_runs`` and ``compare_all``: is a run worse than another by more than is allowed?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nightjar.analysis.measuring import (
    Paired,
    damage_of,
    decide,
    doubt_of_failed,
    measure,
    measure_categories,
    needed,
    reason,
)
from nightjar.analysis.pairs import differing, match_evaluations, settings_of
from nightjar.analysis.records import Comparison, Comparisons, Decision, Direction, Excerpt, Flip, Side, Terms
from nightjar.analysis.run_statistics import retries_of
from nightjar.analysis.selecting import check_two_sides, selected
from nightjar.analysis.unpaired import find_unpaired
from nightjar.core.messages import content_text
from nightjar.errors import ConfigError
from nightjar.statistics.estimates import mean_of_clusters
from nightjar.statistics.intervals import MeanSummary, interval_of
from nightjar.warehouse import Warehouse

_METRICS = "SELECT DISTINCT name FROM metrics WHERE list_contains([$a, $b], run_id) ORDER BY name"
_MORE_SETTINGS = {"env_id": "environment", "env_version": "environment's version", "served_models": "served model"}
_WORST_FIRST: Sequence[Decision] = ("REGRESSION", "INCONCLUSIVE", "PASS")
_EXAMPLES = """
SELECT run_id, value, scored FROM example_results([$a], metric := $metric_a)
UNION ALL
SELECT run_id, value, scored FROM example_results([$b], metric := $metric_b)
"""
_RUNS = """
SELECT
    runs.run_id, runs.env_id, coalesce(runs.config ->> 'name', runs.metadata ->> 'name', runs.env_id) AS name,
    runs.model, runs.status, runs.started_at::VARCHAR AS started_at, runs.rollouts, runs.scored, runs.failed,
    runs.coverage, runs.time_ms, runs.env_version, runs.served_models,
    coalesce(cost.input_tokens, runs.input_tokens) AS input_tokens,
    coalesce(cost.output_tokens, runs.output_tokens) AS output_tokens, coalesce(cost.cost, runs.cost) AS cost
FROM runs LEFT JOIN cost USING (run_id)
WHERE runs.run_id IN ($a, $b)
"""
_TEXTS = """
SELECT
    run_id, example_hash, any_value(prompt) AS prompt, any_value(answer) AS answer,
    arg_max(completion, reward) AS highest, arg_min(completion, reward) AS lowest
FROM rollouts
WHERE list_contains([$a, $b], run_id) AND list_contains($hashes, example_hash)
GROUP BY run_id, example_hash
"""
_NOTHING_PAIRED = {
    "other question": "other questions",
    "other answer": "the same questions with other answers",
    "other content": "the same questions and answers, with other system prompts, other info or earlier messages",
    "no prompt": "the prompts are unknown",
}
_LONGEST = 4_000


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
    baseline_metric: str | None = None,
) -> Comparison:
    """Compares two runs over the examples that both runs have scored. Examples are matched by content.

    ``selecting.selected`` describes how runs are named. ``Terms`` describes the other arguments.
    """
    terms = Terms(max_drop, alpha, metric, direction, cluster, by, baseline_metric)
    compared = compare_all(baseline, candidate, terms, warehouse=warehouse)
    if not compared.is_single:
        names = [
            *(one.baseline.name or "" for one in compared.found),
            *compared.missing,
            *compared.new,
            *compared.incomparable,
        ]
        raise ConfigError(f"There are {len(names)} evaluations: {', '.join(names)}. Name one run for each side")
    return compared.found[0]


def compare_all(
    baseline: str | Path,
    candidate: str | Path,
    terms: Terms | None = None,
    *,
    warehouse: str | Path | Warehouse | None = None,
    excerpts: int = 0,
) -> Comparisons:
    """Compares all evaluations that two sides share. Evaluations match by environment, and by name if necessary.

    ``excerpts`` is the number of broken and of fixed examples that get texts. Evaluations that cannot be compared are
    listed as incomparable. But if each side is a single run, the ``ConfigError`` is raised.
    """
    terms = terms or Terms()
    warehouse = Warehouse.of(warehouse)
    with selected([baseline, candidate], warehouse) as (where, (a, b)):
        check_two_sides((baseline, candidate), a, b)
        matched = match_evaluations(where, a, b)
        found: list[Comparison] = []
        incomparable: dict[str, str] = {}
        missing = dict.fromkeys(matched.only_a, "The candidate has no run of this evaluation")
        for before, after in matched.pairs:
            try:
                found.append(compare_published(where, before, after, terms, excerpts))
            except ConfigError as error:
                if len(a) == len(b) == 1:
                    raise
                incomparable[f"run {before} and run {after}"] = str(error)
    found.sort(
        key=lambda one: (_WORST_FIRST.index(one.decision), -damage_of(one.difference.interval, terms.direction).high)
    )
    return Comparisons(found, missing, matched.only_b, incomparable)


def compare_published(warehouse: Warehouse, a: str, b: str, terms: Terms, excerpts: int = 0) -> Comparison:
    if a == b:
        raise ConfigError(f"Both sides are run {a!r}. Name two runs: nightjar eval list")
    records = {record["run_id"]: record for record in warehouse.query(_RUNS, {"a": a, "b": b}).records()}
    if missing := [run_id for run_id in (a, b) if run_id not in records]:
        raise ConfigError(f"There is no run {missing[0]!r} in {warehouse.location}. See: nightjar eval list")
    records = {run_id: records[run_id] for run_id in (a, b)}
    before, after = _sides(warehouse, records, terms)
    paired = _paired(warehouse, before, after, terms)
    pairs = int(paired.is_pair.sum())
    difference = measure(paired, terms.alpha, terms.direction)
    decision = decide(difference, terms.max_drop, terms.direction)
    more = needed(difference, pairs, terms) if decision == "INCONCLUSIVE" else None
    why = reason(decision, difference, pairs, terms, more)
    if unmade := max(0, (after.rollouts or 0) - after.scored - after.failed):
        why += f" But {unmade:,} of the candidate's {after.rollouts:,} rollouts are missing."
    doubt = doubt_of_failed(difference, terms) if decision == "PASS" else ""
    if decision == "PASS" and (unmade or doubt):
        decision, why = "INCONCLUSIVE", f"{why} {doubt}".rstrip()
    both_right = int((paired.is_pair & paired.right_a & paired.right_b).sum())
    broken, fixed = paired.flips()
    return Comparison(
        decision=decision,
        reason=why,
        terms=terms,
        baseline=before,
        candidate=after,
        pairs=pairs,
        paired_by=paired.count_by(),
        unscored=len(paired) - pairs,
        only_baseline=before.examples - len(paired),
        only_candidate=after.examples - len(paired),
        unpaired=find_unpaired(warehouse, a, b) if max(before.examples, after.examples) > len(paired) else [],
        difference=difference,
        both_right=both_right,
        both_wrong=pairs - both_right - len(broken) - len(fixed),
        broken=broken,
        fixed=fixed,
        categories=measure_categories(paired, terms) if terms.by else [],
        excerpts=_excerpts(warehouse, a, b, broken[:excerpts], fixed[:excerpts]),
        differs=_differing(warehouse, records[a], records[b]),
        retries={
            run_id: found
            for run_id in (a, b)
            if (found := retries_of(warehouse, run_id, terms.alpha)).matter(terms.alpha)
        },
        pairs_needed=more,
    )


def _paired(warehouse: Warehouse, before: Side, after: Side, terms: Terms) -> Paired:
    a, b = before.run_id, after.run_id
    paired = Paired.read(
        warehouse,
        [a],
        [b],
        cluster=terms.cluster,
        metric=terms.metric,
        baseline_metric=terms.baseline_metric,
        by=terms.by,
    )
    if not paired.is_pair.any():
        raise ConfigError(
            _no_metric(warehouse, a, b, terms) or _nothing_in_common(warehouse, before, after, len(paired))
        )
    for field, values, use in ((terms.cluster, paired.cluster, "clustered"), (terms.by, paired.category, "grouped")):
        if field and not values.any():
            raise ConfigError(f"No example of run {b!r} has {field!r} in its info, so they cannot be {use} by it")
    return paired


def _no_metric(warehouse: Warehouse, a: str, b: str, terms: Terms) -> str:
    names = ["reward", "correct", *(name for (name,) in warehouse.query(_METRICS, {"a": a, "b": b}).rows)]
    unknown = [metric for metric in terms.metrics if metric not in names]
    return f"No rollout of run {a!r} or {b!r} has {unknown[0]!r}. Choose one of: {', '.join(names)}" if unknown else ""


def _nothing_in_common(warehouse: Warehouse, before: Side, after: Side, asked: int) -> str:
    runs = f"run {before.run_id!r} ({before.env_id}) and run {after.run_id!r} ({after.env_id})"
    if asked:
        return f"No example is scored in both {runs}, although both have {asked}: too many rollouts failed"
    reasons = Counter({one.reason: one.count for one in find_unpaired(warehouse, before.run_id, after.run_id)})
    why = f" ({_NOTHING_PAIRED[reasons.most_common(1)[0][0]]})" if reasons else ""
    return (
        f"No example is in both {runs}: {before.examples} and {after.examples} examples, all with different content"
        f"{why}. Compare runs over the same examples"
    )


def _differing(warehouse: Warehouse, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    settings = settings_of(warehouse, [before["run_id"], after["run_id"]])
    was, is_now = (
        {**{label: run[name] for name, label in _MORE_SETTINGS.items()}, **settings[run["run_id"]]}
        for run in (before, after)
    )
    return differing(was, is_now)


def _sides(warehouse: Warehouse, records: Mapping[str, Mapping[str, Any]], terms: Terms) -> tuple[Side, Side]:
    a, b = records
    metric_a, metric_b = terms.metrics
    found = warehouse.query_columns(_EXAMPLES, {"a": a, "b": b, "metric_a": metric_a, "metric_b": metric_b})
    run_id, value, scored = (found[name] for name in ("run_id", "value", "scored"))
    before, after = (
        _side(record, value[run_id == of], scored[run_id == of], terms.alpha) for of, record in records.items()
    )
    return before, after


def _side(record: Mapping[str, Any], value: NDArray[np.float64], scored: NDArray[np.int64], alpha: float) -> Side:
    has_value = ~np.isnan(value)
    values, counts = value[has_value], scored[has_value]
    estimate = mean_of_clusters((values * counts).tolist(), counts.tolist())
    lowest, highest = (float(values.min()), float(values.max())) if len(values) else (None, None)
    interval, _ = interval_of(MeanSummary(estimate, int(counts.sum()), len(values), lowest, highest), alpha)
    known = {field.name: record[field.name] for field in fields(Side) if field.name in record}
    return Side(examples=len(value), mean=estimate.mean, interval=interval, **known)


def _excerpts(
    warehouse: Warehouse, a: str, b: str, broken: Sequence[Flip], fixed: Sequence[Flip]
) -> Mapping[str, Excerpt]:
    """Returns texts by example_hash.

    Broken examples are right only in ``a``; fixed examples are right only in ``b``.
    """
    flips = (*broken, *fixed)
    if not flips:
        return {}
    hashes = [name for flip in flips for name in (flip.baseline_hash, flip.example_hash)]
    found = warehouse.query(_TEXTS, {"a": a, "b": b, "hashes": hashes}).records()
    texts = {(record["run_id"], record["example_hash"]): record for record in found}
    excerpts = {}
    for number, flip in enumerate(flips):
        before, after = texts[a, flip.baseline_hash], texts[b, flip.example_hash]
        best, worst = ("highest", "lowest") if number < len(broken) else ("lowest", "highest")
        answer = _cut(after["answer"] or "")
        excerpts[flip.example_hash] = Excerpt(
            _last_text(after["prompt"]), answer, _last_text(before[best]), _last_text(after[worst])
        )
    return excerpts


def _last_text(messages: str | None) -> str:
    said = json.loads(messages) if messages else ""
    if isinstance(said, list):
        said = said[-1] if said else ""
    if isinstance(said, dict):
        said = content_text(said.get("content"))
    return _cut(str(said))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"

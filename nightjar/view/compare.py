"""Comparisons of runs: ``/compare?run=BASELINE&run=CANDIDATE``. Several runs are each compared with the first run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from nightjar import __version__
from nightjar.analysis import Comparison, Direction, Flip, Terms, compare_published
from nightjar.errors import ConfigError
from nightjar.reports.comparison import SHOWN_FLIPS, ComparisonPage, page_of
from nightjar.view.charts import Scale
from nightjar.view.notes import NOTED, by_run
from nightjar.view.pages import answers, link, page, records, redirect_to_runs
from nightjar.warehouse import Warehouse

router = APIRouter()

MOST_RUNS = 20
MOST_FLIPS = 500
_BOTH = 2
_PIXELS = 320
_LEFT, _BOTTOM = 48, 34
_LARGEST_DOT = 14.0
_RUNS = """
SELECT run_id, env_id, model, started_at, map_keys(avg_metrics) AS metrics, avg_reward, stderr, num_examples, scored,
    rollouts, coverage, reward_examples, lowest_reward, highest_reward
FROM runs WHERE list_contains($runs, run_id)
"""
_PLACES = """
SELECT
    run_id, example_hash,
    arg_max(struct_pack(example := example_id, index := rollout_index), reward) AS highest,
    arg_min(struct_pack(example := example_id, index := rollout_index), reward) AS lowest
FROM segments.rollouts
WHERE list_contains([$a, $b], run_id) AND list_contains($hashes, example_hash)
GROUP BY ALL
"""
_OVERRULED_PAIRS = """
SELECT count(DISTINCT example_hash) AS pairs
FROM overruled_rollouts
WHERE list_contains([$a, $b], run_id)
    AND example_hash IN (
        SELECT unnest([example_hash, hash_a]) FROM paired([$a], [$b], metric := $metric) WHERE difference IS NOT NULL
    )
"""
# Examples closer to each other than a fiftieth of the range share a dot.
_DOTS = """
WITH pairs AS (
    SELECT value_a AS a, value_b AS b FROM paired([$a], [$b], metric := $metric) WHERE difference IS NOT NULL
),
spans AS (
    SELECT nullif(greatest(max(a), max(b)) - least(min(a), min(b)), 0) / 50 AS cell FROM pairs
)
SELECT coalesce(round(a / cell) * cell, a) AS before, coalesce(round(b / cell) * cell, b) AS after, count(*) AS examples
FROM pairs, spans
GROUP BY ALL
ORDER BY examples DESC
"""


class Asked(BaseModel):
    """The runs and terms of a comparison. The oldest of the ``ticked`` runs becomes the baseline."""

    run: list[str] = []
    ticked: list[str] = []
    metric: str = "reward"
    max_drop: float = Field(0.05, ge=0, allow_inf_nan=False)
    direction: Direction = "higher"
    by: str = ""
    flips: int = Field(SHOWN_FLIPS, ge=1, le=MOST_FLIPS)

    @property
    def terms(self) -> Terms:
        return Terms(self.max_drop, metric=self.metric, direction=self.direction, by=self.by or None)


@dataclass(frozen=True)
class Scatter:
    """The means of examples: the baseline's mean on the x axis, the candidate's mean on the y axis.

    A row of ``dots`` has the means ``before`` and ``after`` of ``examples`` with nearly the same means.
    """

    dots: list[dict[str, Any]]
    most: int
    right: Scale
    up: Scale
    label: str


@router.get("/compare")
def show_comparison(request: Request, asked: Annotated[Asked, Query()]) -> Response:
    warehouse: Warehouse = request.app.state.warehouse
    if asked.ticked:
        return redirect_to_runs(warehouse, "/compare", asked.ticked)
    given = [run for run in asked.run if run]
    run_ids = list(dict.fromkeys(given))[:MOST_RUNS]
    found, noted = answers(warehouse, (_RUNS, {"runs": run_ids}), (NOTED, None))
    runs = {run["run_id"]: run for run in found}
    overruled = [run_id for run_id in run_ids if by_run(noted).get(run_id, {}).get("overruled")]
    others = sorted(name for run in found for name in run["metrics"] or [])
    metrics = list(dict.fromkeys(["reward", "correct", *others]))
    about = {"asked": asked, "runs": runs, "run_ids": run_ids, "metrics": metrics, "overruled": overruled}
    missing = [run_id for run_id in run_ids if run_id not in runs]
    if missing or len(run_ids) < _BOTH:
        problem = f"There is no run {missing[0]!r} in this warehouse." if missing else ""
        if not missing and len(given) > len(run_ids):
            problem = f"Both sides are run {run_ids[0]!r}. Name two different runs."
        return page(request, "compare.html", 404 if missing else 400 if problem else 200, problem=problem, **about)
    if len(run_ids) > _BOTH:
        return page(request, "compare_many.html", rows=_rows(warehouse, run_ids, asked.terms), **about)
    try:
        compared = compare_published(warehouse, run_ids[0], run_ids[1], asked.terms, asked.flips)
    except ConfigError as error:
        return page(request, "compare.html", 400, problem=str(error), **about)
    pairs = {"a": run_ids[0], "b": run_ids[1], "metric": asked.metric}
    overruled_pairs = records(warehouse, _OVERRULED_PAIRS, pairs)[0]["pairs"] if overruled else 0
    shown = _shown(warehouse, compared, asked)
    return page(request, "compare_two.html", problem="", overruled_pairs=overruled_pairs, **about, **shown)


def _shown(warehouse: Warehouse, found: Comparison, asked: Asked) -> dict[str, Any]:
    shown = page_of(found, [found.difference], asked.flips)
    return {
        "page": shown,
        "links": _links(warehouse, found, [*shown.broken, *shown.fixed]),
        "scatter": _scatter(warehouse, found),
        "level": f"{100 * (1 - found.terms.alpha):g} %",
        "most_flips": min(MOST_FLIPS, max(len(found.broken), len(found.fixed))),
        "version": __version__,
    }


def _rows(
    warehouse: Warehouse, run_ids: Sequence[str], terms: Terms
) -> list[tuple[str, ComparisonPage | None, Comparison | str]]:
    """Returns each run but the first with its comparison with the first run, or the reason why there is none."""
    found = [_compared(warehouse, run_ids[0], run_id, terms) for run_id in run_ids[1:]]
    shared = [one.difference for one in found if isinstance(one, Comparison)]
    return [
        (run_id, page_of(one, shared, 0) if isinstance(one, Comparison) else None, one)
        for run_id, one in zip(run_ids[1:], found, strict=True)
    ]


def _compared(warehouse: Warehouse, baseline: str, run_id: str, terms: Terms) -> Comparison | str:
    try:
        return compare_published(warehouse, baseline, run_id, terms)
    except ConfigError as error:
        return str(error)


def _links(warehouse: Warehouse, found: Comparison, flips: Sequence[Flip]) -> dict[str, list[tuple[str, str]]]:
    """Returns, for each flipped example, links to the rollouts of both runs that show the difference."""
    a, b = found.baseline.run_id, found.candidate.run_id
    hashes = [name for flip in flips for name in (flip.baseline_hash, flip.example_hash)]
    rows = records(warehouse, _PLACES, {"a": a, "b": b, "hashes": hashes}) if hashes else []
    places = {(row["run_id"], row["example_hash"]): row for row in rows}
    return {
        flip.example_hash: [
            (f"{side} in full", _address(run_id, places[run_id, example][which], beside))
            for side, run_id, example, beside, which in (
                ("Baseline", a, flip.baseline_hash, b, "highest" if flip.baseline > flip.candidate else "lowest"),
                ("Candidate", b, flip.example_hash, a, "lowest" if flip.baseline > flip.candidate else "highest"),
            )
        ]
        for flip in flips
    }


def _address(run_id: str, place: dict[str, int], beside: str) -> str:
    return link(f"/runs/{quote(run_id, safe='')}/{place['example']}/{place['index']}", beside=beside)


def _scatter(warehouse: Warehouse, found: Comparison) -> Scatter:
    a, b, metric = found.baseline.run_id, found.candidate.run_id, found.terms.metric
    rows = records(warehouse, _DOTS, {"a": a, "b": b, "metric": metric})
    values = [row[side] for row in rows for side in ("before", "after")]
    higher, lower = (
        sum(row["examples"] for row in rows if sign * (row["after"] - row["before"]) > 0) for sign in (1, -1)
    )
    return Scatter(
        dots=rows,
        most=max(row["examples"] for row in rows),
        right=Scale.over(values, _LEFT, _PIXELS - _LARGEST_DOT),
        up=Scale.over(values, _PIXELS - _BOTTOM, _LARGEST_DOT),
        label=f"Mean {metric} of {found.pairs:,} examples: higher in the candidate for {higher:,}, lower for {lower:,}",
    )

"""The finished runs of an environment in time order, example by example."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

from nightjar.analysis.pairs import settings_of
from nightjar.errors import ConfigError
from nightjar.statistics.change_points import Matrix
from nightjar.warehouse import Warehouse

_RUNS = """
SELECT
    run_id, model, began(runs.started_at, finished_at, published_at) AS began, configuration,
    runs.env_version AS "environment's version", served_models AS "served model",
    nightjar_version AS "Nightjar's version"
FROM runs JOIN (SELECT run_id, configuration FROM history WHERE env_id = $env) USING (run_id)
WHERE ($model IS NULL OR model = $model) AND ($since IS NULL OR began >= $since) AND rescored_from IS NULL
ORDER BY began, run_id
"""
_VALUES = """
SELECT run_id, example_hash, value, correct, scored
FROM example_results($run_ids, metric := $metric)
WHERE value IS NOT NULL
"""


@dataclass(frozen=True)
class PastRun:
    """A finished run.

    ``configuration`` is equal for equal arguments and sampling settings, as in the view ``history``.
    """

    run_id: str
    model: str | None
    began: datetime
    configuration: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """Runs of a model with successive settings, in time order. Tables are run × example; ``values`` may be NaN."""

    runs: Sequence[PastRun]
    values: Matrix
    correct: Matrix
    counts: Matrix

    @property
    def model(self) -> str | None:
        return self.runs[0].model

    def between(self, low: int, high: int) -> History:
        asked = self.counts[low:high].any(axis=0)
        tables = (table[low:high, asked] for table in (self.values, self.correct, self.counts))
        return History(self.runs[low:high], *tables)


def read_history(
    warehouse: Warehouse, env_id: str, *, model: str | None = None, metric: str = "reward", since: date | None = None
) -> list[History]:
    """Returns finished runs by model and settings. Settings that overlap in time have separate histories."""
    found = warehouse.query(_RUNS, {"env": env_id, "model": model, "since": since and since.isoformat()})
    settings = settings_of(warehouse, [row[0] for row in found.rows])
    names = found.columns[4:]
    runs = [
        PastRun(row[0], row[1], row[2], row[3], {**dict(zip(names, row[4:], strict=True)), **settings[row[0]]})
        for row in found.rows
    ]
    place, tables = read_values(warehouse, [run.run_id for run in runs], metric)
    histories = []
    for members in _joined([run for run in runs if run.run_id in place]):
        own = [place[run.run_id] for run in members]
        histories.append(History(members, *(table[own] for table in tables)).between(0, len(members)))
    if not histories:
        raise ConfigError(no_such_run(warehouse, env_id, metric, model, since))
    return histories


def read_values(
    warehouse: Warehouse, run_ids: Sequence[str], metric: str
) -> tuple[dict[str, int], tuple[Matrix, Matrix, Matrix]]:
    """Returns the row of each run that has the metric, and the tables ``values``, ``correct`` and ``counts``."""
    found = warehouse.query_columns(_VALUES, {"run_ids": list(run_ids), "metric": metric})
    rows, at_run = np.unique(found["run_id"], return_inverse=True)
    examples, at_example = np.unique(found["example_hash"], return_inverse=True)

    def table(name: str, fill: float) -> Matrix:
        made = np.full((len(rows), len(examples)), fill)
        made[at_run, at_example] = found[name]
        return made

    tables = (table("value", np.nan), table("correct", np.nan), table("scored", 0.0))
    return {str(run_id): row for row, run_id in enumerate(rows)}, tables


def _joined(runs: Sequence[PastRun]) -> list[list[PastRun]]:
    by_settings: dict[int, list[PastRun]] = defaultdict(list)
    for run in runs:
        by_settings[run.configuration].append(run)
    joined: list[list[PastRun]] = []
    for members in by_settings.values():
        first = members[0]
        earlier = [one for one in joined if one[-1].model == first.model and one[-1].began < first.began]
        if earlier:
            max(earlier, key=lambda one: one[-1].began).extend(members)
        else:
            joined.append(members)
    return joined


def no_such_run(
    warehouse: Warehouse, env_id: str, metric: str, model: str | None = None, since: date | None = None
) -> str:
    rows = warehouse.query("SELECT DISTINCT env_id, model FROM history ORDER BY ALL").rows
    kind = (f" and model {model!r}" if model else "") + (f" since {since}" if since else "")
    known = [f"{env} ({name})" for env, name in rows if env == env_id] or [str(env) for env, _ in rows]
    there = (
        f" There are: {', '.join(dict.fromkeys(known))}" if known else " There are no finished runs: nightjar eval run"
    )
    return f"No finished run of environment {env_id!r}{kind} in {warehouse.location} has {metric!r}.{there}"

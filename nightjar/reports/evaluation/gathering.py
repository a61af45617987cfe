"""``Report``: the results of runs, and ``gather``, which reads them from a warehouse."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, TypeAlias

from nightjar import __version__
from nightjar.analysis import RunStatistics, describe_run
from nightjar.errors import ConfigError
from nightjar.reports.rollouts import BARS, KINDS, PARSED, RUN, TOGETHER, TURNS, Failure, ending, failures_of
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.result import as_records

SCHEMA_VERSION = 1
"""The version of a report as JSON. The version is raised when a field is removed or changes its meaning."""
Kind: TypeAlias = Literal["right", "wrong", "failed"]
_OF_A_TEXT = 0.5
_ELEMENT = 20
"""The least number of characters that an item counts for, so that a million empty messages are cut, too."""
DETAILED = 100
"""Maximum number of runs with samples."""
_OF_A_KIND = 3
_ROOM, _LEAST, _MOST = 2_000_000, 300, 8_000
"""The maximum number of characters of all samples of a report, and the minimum and maximum for one sample."""
_MOST_CATEGORIES, _MOST_FAILURES = 50, 20
_WRONG = f"""
SELECT CASE WHEN is_truncated THEN 'cut off' ELSE stop_condition END AS ending,
    count(*) AS count,
    (SELECT max({TURNS}) FROM (FROM segments.rollouts WHERE run_id = $run_id AND error IS NULL LIMIT 20)) AS turns
FROM segments.rollouts WHERE run_id = $run_id AND error IS NULL AND NOT correct
GROUP BY ALL ORDER BY count DESC, ending LIMIT 20
"""  # noqa: S608 - built from constants
"""The endings of wrong rollouts, and the number of turns of the first rollouts, which shows what the environment is."""
_HAS_FIELD = "SELECT count(*) > 0 FROM rollouts WHERE run_id = $run_id AND info ->> $by IS NOT NULL"
_SAMPLES = """
WITH kinds AS (
    SELECT example_id, rollout_index, reward,
        CASE WHEN error IS NOT NULL THEN 'failed' WHEN correct THEN 'right' ELSE 'wrong' END AS kind,
        CASE WHEN error IS NOT NULL THEN coalesce(error_chain, error) END AS chain
    FROM segments.rollouts WHERE run_id = $run_id AND (error IS NOT NULL OR reward IS NOT NULL)
),
firsts AS (
    SELECT *, row_number() OVER (PARTITION BY kind, chain ORDER BY example_id, rollout_index) AS place FROM kinds
    QUALIFY row_number() OVER (PARTITION BY kind, example_id ORDER BY rollout_index) = 1
),
chosen AS (
    SELECT example_id, rollout_index, kind FROM firsts
    QUALIFY row_number() OVER (PARTITION BY kind ORDER BY place, example_id) <= $most
)
SELECT kind, rollouts.* FROM rollouts JOIN chosen USING (example_id, rollout_index) WHERE run_id = $run_id
ORDER BY kind = 'failed', kind = 'wrong', example_id, rollout_index
"""
_RESULTS = """
SELECT example_id, rollout_index, reward, correct, error, left(error_message, 300) AS error_message, stop_condition,
    input_tokens, output_tokens, generation_ms, scoring_ms, attempts
FROM segments.rollouts WHERE run_id = $run_id ORDER BY example_id, rollout_index
"""


@dataclass(frozen=True)
class Sample:
    """A rollout that is shown. ``left_out`` characters are cut from the texts of its messages."""

    kind: Kind
    example_id: int
    rollout_index: int
    reward: float | None
    prompt: Any
    completion: Any
    answer: str | None
    parsed: Any
    error: str | None
    message: str | None
    left_out: int


@dataclass(frozen=True)
class RunReport:
    """The results of a run.

    Attributes:
        repeats: rollouts per example.
        failed_attempts: the number of failed attempts, including attempts at rollouts that were scored in the end.
        cost: None if the price is unknown.
        by: the field of ``info`` with the categories; None without categories.
        hidden_categories: the number of categories left out of ``statistics``.
        rewards: ``low``, ``width`` and ``count`` of each range of rewards, and its ``lowest`` and ``highest`` reward. A
            range of one value has the width 0.
        spreads: the percentiles p50, p90 and p99 of a rollout's seconds and tokens.
        wrong: the number of wrong rollouts by stop condition.
        results: None unless requested.
    """

    run_id: str
    benchmark: str
    model: str | None
    status: str | None
    started_at: datetime | None
    seconds: float | None
    examples: int
    repeats: int
    input_tokens: int | None
    output_tokens: int | None
    failed_attempts: int | None
    cost: float | None
    versions: Mapping[str, str | None]
    statistics: RunStatistics
    metrics: Mapping[str, float]
    by: str | None
    hidden_categories: int
    rewards: Sequence[Mapping[str, Any]]
    spreads: Mapping[str, Sequence[float]]
    failures: Sequence[Failure]
    wrong: Mapping[str, int]
    samples: Sequence[Sample] = field(default_factory=list)
    results: Sequence[Mapping[str, Any]] | None = None

    @property
    def errors(self) -> int:
        return self.statistics.failed

    @property
    def tokens(self) -> int | None:
        """Input and output tokens; None if no endpoint reported tokens."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


@dataclass(frozen=True)
class Report:
    """The results of runs. ``left_out`` has a sentence for each kind of missing content."""

    schema_version: int
    nightjar_version: str
    made_at: datetime
    runs: Sequence[RunReport]
    left_out: Sequence[str]


class Clip:
    """Cuts texts so that together they have at most about ``room`` characters."""

    def __init__(self, room: int) -> None:
        self._room = self._left = room
        self.left_out = 0

    def __call__(self, text: Any) -> str | None:
        """Cuts the text to at most half of the remaining room."""
        if text is None:
            return None
        shown = str(text)
        most = max(_ELEMENT, int(min(self._left, self._room * _OF_A_TEXT)))
        self._left -= min(len(shown), most)
        if len(shown) <= most:
            return shown
        self.left_out += len(shown) - most
        return f"{shown[:most]}… ({len(shown) - most:,} more characters)"

    def messages(self, value: Any) -> Any:
        """Returns messages with long texts cut and large images replaced. The last messages are left out."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            if "image" in str(value.get("type", "")) and (size := len(str(value))) > self._left:
                self.left_out += size
                return {"type": "text", "text": f"(an image of {size:,} characters is left out)"}
            return {name: one if name == "role" else self.messages(one) for name, one in value.items()}
        if not isinstance(value, list):
            return value
        shown: list[Any] = []
        for one in value:
            if self._left <= 0:
                self.left_out += len(str(value[len(shown) :]))
                return [*shown, {"role": "text", "content": f"({len(value) - len(shown):,} more are left out)"}]
            self._left -= _ELEMENT
            shown.append(self.messages(one))
        return shown


def gather(
    run_ids: Sequence[str], warehouse: Warehouse, *, by: str | None = None, alpha: float = 0.05, results: bool = False
) -> Report:
    """Returns the report on runs. With ``results``, the report includes every rollout, without texts.

    The default of ``by`` is ``category``. Raises ``ConfigError`` if a run is not in the warehouse, or if no run has the
    field ``by``.
    """
    room = _ROOM // (3 * _OF_A_KIND * max(1, min(len(run_ids), DETAILED)))
    room = max(_LEAST, min(_MOST, room))
    runs = []
    for number, run_id in enumerate(run_ids):
        found = report_run(run_id, warehouse, by, alpha)
        if number < DETAILED:
            found = replace(found, samples=list(_samples(run_id, warehouse, room)))
        if results:
            found = replace(found, results=warehouse.query(_RESULTS, {"run_id": run_id}).records())
        runs.append(found)
    if by and not any(run.by for run in runs):
        raise ConfigError(f"No example of these runs has {by!r} in its info")
    return Report(SCHEMA_VERSION, __version__, datetime.now(UTC), runs, list(_left_out(runs)))


def report_run(run_id: str, warehouse: Warehouse, by: str | None = None, alpha: float = 0.05) -> RunReport:
    """Returns the results of a run without samples. See ``gather`` for ``by`` and errors."""
    key = {"run_id": run_id}
    asked = warehouse.query_all([(RUN, key), (TOGETHER, {**key, "bars": BARS, "kinds": KINDS}), (_WRONG, key)])
    runs, [together], wrong = as_records(asked[0]), asked[1].records(), asked[2].records()
    if not runs:
        raise ConfigError(f"There is no run {run_id!r} in {warehouse.location}. See: nightjar eval list")
    [run] = runs
    field = _field(run_id, warehouse, by)
    statistics = describe_run(run_id, warehouse=warehouse, by=field, alpha=alpha)
    failures = failures_of(together["errors"] or [])
    return RunReport(
        run_id=run_id,
        benchmark=run["env_id"] or "",
        model=run["model"],
        status=run["status"],
        started_at=asked[0].records()[0]["started_at"],
        seconds=None if run["time_ms"] is None else run["time_ms"] / 1000,
        examples=run["num_examples"] or statistics.reward.examples,
        repeats=run["rollouts_per_example"] or 1,
        input_tokens=run["input_tokens"],
        output_tokens=run["output_tokens"],
        failed_attempts=run["failed_attempts"],
        cost=run["cost"],
        versions={"environment": run["env_version"], "nightjar": run["nightjar_version"]},
        statistics=replace(statistics, categories=dict(islice(statistics.categories.items(), _MOST_CATEGORIES))),
        metrics=run["avg_metrics"] or {},
        by=field,
        hidden_categories=max(0, len(statistics.categories) - _MOST_CATEGORIES),
        rewards=together["rewards"] or [],
        spreads={what: places for what, places in together["spreads"].items() if places},
        failures=failures[:_MOST_FAILURES],
        wrong=_endings(wrong),
    )


def _endings(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the numbers of wrong rollouts by ending; an empty dict if no ending says anything."""
    found = {ending(row["ending"], row["turns"] or 0) or "ordinary end": row["count"] for row in rows}
    return {} if found.keys() == {"ordinary end"} else found


def _field(run_id: str, warehouse: Warehouse, by: str | None) -> str | None:
    if by == "task":
        return by
    name = by or "category"
    [[has_it]] = warehouse.query(_HAS_FIELD, {"run_id": run_id, "by": name}).rows
    return name if has_it else None


def _samples(run_id: str, warehouse: Warehouse, room: int) -> Iterator[Sample]:
    for row in as_records(warehouse.query(_SAMPLES, {"run_id": run_id, "most": _OF_A_KIND})):
        clip = Clip(room)
        yield Sample(
            kind=row["kind"],
            example_id=row["example_id"],
            rollout_index=row["rollout_index"],
            reward=row["reward"],
            error=clip(row["error_chain"] or row["error"]),
            message=clip(row["error_message"]),
            answer=clip(row["answer"]),
            parsed=clip(_parsed(row["state"] or {})),
            prompt=clip.messages(row["prompt"]),
            completion=clip.messages(row["completion"]),
            left_out=clip.left_out,
        )


def _parsed(state: Mapping[str, Any]) -> str | None:
    found = next((state[name] for name in PARSED if name in state), None)
    return found if found is None or isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _left_out(runs: Sequence[RunReport]) -> Iterator[str]:
    shown = sum(len(run.samples) for run in runs)
    rollouts = sum(run.statistics.reward.scored + run.errors for run in runs)
    if shown < rollouts:
        yield f"{shown:,} of {rollouts:,} rollouts are shown: the first right, wrong and failed rollouts"
    if cut := sum(sample.left_out for run in runs for sample in run.samples):
        yield f"{cut:,} characters of the rollouts' texts are left out"
    if len(runs) > DETAILED:
        yield f"rollouts are only shown for the first {DETAILED} of {len(runs):,} runs"
    if hidden := sum(run.hidden_categories for run in runs):
        yield f"{hidden:,} categories are left out. To show them: nightjar eval stats RUN --by FIELD"
    for run in runs:
        if (listed := sum(failure.count for failure in run.failures)) < run.errors:
            yield f"of run {run.run_id}, the errors of {run.errors - listed:,} rollouts are left out"

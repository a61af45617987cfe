"""Files to share: a run as a page that opens offline or as an Inspect log, and a report as a page."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from itertools import chain, groupby
from math import isfinite
from pathlib import Path
from typing import Any

from markupsafe import Markup

from nightjar.analysis.run_statistics import Mean
from nightjar.errors import WarehouseError
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.exporters import read_run
from nightjar.exporters.contents import as_json
from nightjar.exporters.inspect_log import inspect_log, log_name
from nightjar.reports.evaluation.gathering import Report
from nightjar.reports.evaluation.rendering import failures, findings, headings, measures, overview, score, spreads
from nightjar.view import scripts
from nightjar.view.charts import Scale, histogram
from nightjar.view.conversation import as_messages, raw_text, turns
from nightjar.view.pages import standalone
from nightjar.view.passages import pretty
from nightjar.view.rollouts import readable
from nightjar.view.room import LONGEST_TEXT
from nightjar.warehouse.storage.segments import is_held

_HEAD_BYTES = 500_000
"""The head of a page, which contains its style, is not longer."""
_VERSION = "SELECT version FROM runs WHERE run_id = ?"


@dataclass(frozen=True)
class Export:
    text: str
    shown: int
    rollouts: int
    missing: int
    name: str


def run_page(found: StoredRun, limit: int) -> Export:
    """Returns a page with at most ``limit`` rollouts of complete examples.

    Raises ``ConfigError`` if there are no rollouts.
    """
    read = read_run(found, limit + (found.metadata.get("rollouts_per_example") or 1))
    run = read.row
    weights = (run["metadata"] or {}).get("reward_weights")
    shown: list[dict[str, Any]] = []
    for _, rows in groupby(read.rollouts, key=lambda row: row["example_id"]):
        example = [
            readable(row, weights)
            | {"index": row["rollout_index"], "noted": bool(row["notes"]), "copied": _copied(row)}
            for row in rows
        ]
        if shown and len(shown) + len(example) > limit:
            break
        shown += example
    config = pretty(run["config"]) if run["config"] else None
    newer = _is_newer(found, run["version"])
    script = scripts.joined(*scripts.EXPORTED)
    text = standalone(
        "export.html",
        run=run,
        rollouts=shown,
        config=config,
        newer=newer,
        script=Markup(script),  # noqa: S704 - files of this package
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return Export(text, len(shown), read.rollout_count, read.missing, f"{found.run_id}.html")


def _copied(row: Mapping[str, Any]) -> list[str | None]:
    """Returns the texts that the buttons of messages copy, None for those that are not shown in full."""
    texts = [raw_text(message) for message in (*as_messages(row["prompt"]), *as_messages(row["completion"]))]
    return [text if len(text) <= LONGEST_TEXT else None for text in texts]


def is_page_of(path: Path, run_id: str) -> bool:
    """Returns whether a file is the exported page of this run."""
    mark = f'<meta name="nightjar-run" content="{escape(run_id)}">'
    try:
        with path.open("rb") as file:
            return mark.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def run_log(found: StoredRun) -> Export:
    read = read_run(found)
    text = as_json(inspect_log(read.row, read.rollouts))
    return Export(text, len(read.rollouts), read.rollout_count, read.missing, log_name(read.row))


def _is_newer(found: StoredRun, version: str) -> bool:
    with suppress(WarehouseError):
        held = found.warehouse.query(_VERSION, [found.run_id]).rows
        return bool(held) and not is_held(held[0][0], version)
    return False


def render_html(report: Report) -> str:
    alpha = report.runs[0].statistics.alpha if report.runs else 0.05
    return standalone(
        "report.html",
        report=report,
        headings=headings(alpha),
        scale_of=_scale,
        overview=overview,
        findings=findings,
        measures=measures,
        histogram=histogram,
        spreads=spreads,
        failures=failures,
        score=score,
        is_finite=isfinite,
        conversation=lambda sample: turns([*as_messages(sample.prompt), *as_messages(sample.completion)]),
    )


def _scale(means: Iterable[Mean]) -> Scale:
    """Returns a scale from 0 to 1, or a longer scale if the intervals of the means need one."""
    numbers = [(mean.value, mean.interval.low, mean.interval.high) for mean in means if mean.value is not None]
    return Scale.over([0.0, 1.0, *chain.from_iterable(numbers)], 2, 98)

"""A night as Markdown: results, changes, cost, and how to complete missing evaluations."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from nightjar.analysis.judging import beside
from nightjar.analysis.run_statistics import summary_of
from nightjar.core.text import counted, counted_are
from nightjar.reports.formats import cell, interval, table
from nightjar.statistics.intervals import interval_of
from nightjar.warehouse.storage.records import Night, NightEvaluation


def night_report(night: Night, page: Callable[[str], str | None]) -> str:
    """Returns the report on a judged night. ``page`` returns the address of a flow run's page, or None."""
    heading = "evaluation | model | reward | scored | beside | change | cost | status"
    parts = [
        f"# {night.suite} {night.night}: {night.verdict}",
        cell(night.line),
        table(heading, [_row(one, page) for one in night.evaluations]),
        _remarks(night),
        "" if night.verdict == "running" else _missing(night),
        "In SQL (`nightjar sql`):",
        f"```sql\nFROM night_evaluations WHERE suite = '{night.suite}' AND night = '{night.night}'\n```",
    ]
    return "\n\n".join(filter(None, parts))


def _row(one: NightEvaluation, page: Callable[[str], str | None]) -> str:
    url = page(one.flow_run_id) if one.flow_run_id else None
    name = f"[{cell(one.name)}]({url})" if url else cell(one.name)
    scored = f"{one.scored} of {one.rollouts}" if one.rollouts else "–"
    against = f"{beside(one)}, {counted(one.pairs, 'example')}" if one.against_night else "–"
    cells = [name, cell(one.model), reward_of(one), scored, against, change_of(one),
             number(one.cost), one.status or "no run"]  # fmt: skip
    return " | ".join(cells)


def change_of(one: NightEvaluation) -> str:
    if one.difference is None:
        return one.change
    error = "" if one.difference_stderr is None else f", standard error {one.difference_stderr:.4f}"
    return f"{one.change} ({one.difference:+.4f}{error})"


def reward_of(one: NightEvaluation) -> str:
    """Returns the mean reward with its 95 % interval, unless an earlier version recorded the night."""
    found = "" if one.num_examples is None else interval(interval_of(summary_of(vars(one)))[0])
    return f"{number(one.avg_reward)} {found}".rstrip()


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _remarks(night: Night) -> str:
    lines = [
        f"- {cell(one.name)}: different {', '.join(one.differs) or 'examples'} than on {one.against_night}; "
        f"{counted_are(one.pairs, 'example')} in both nights, {one.unpaired} in only one"
        for one in night.evaluations
        if one.differs or one.unpaired
    ]
    return "\n".join(["## Changed settings or examples", "", *lines]) if lines else ""


def _missing(night: Night) -> str:
    rows = [
        f"{cell(one.name)} | {cell(why(one))} | {how_to_complete(night, one)}"
        for one in night.evaluations
        if one.status != "completed"
    ]
    return "\n\n".join(["## Missing", table("evaluation | why | complete it with", rows)]) if rows else ""


def why(one: NightEvaluation) -> str:
    return ", ".join(f"{count} × {name}" for name, count in one.errors.items()) or one.reason or one.status or "no run"


def how_to_complete(night: Night, one: NightEvaluation) -> str:
    if one.run_id:
        return f"`nightjar eval retry {one.run_id}`"
    again = shlex.join(["-p", f"suite={night.file or night.suite + '.toml'}", "-p", f"night={night.night}"])
    return f"`prefect deployment run benchmark/nightly-benchmark {again}`"

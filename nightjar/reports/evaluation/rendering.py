"""A report as Markdown, CSV and JSON, and the rows of tables that all formats share."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from nightjar.analysis.run_statistics import Mean
from nightjar.core.messages import content_text
from nightjar.reports.evaluation.gathering import Report, RunReport, Sample
from nightjar.reports.formats import duration, durations, fenced, finite, interval, safe, text_table, visible
from nightjar.reports.statistics import run_findings

HEADINGS = (
    "Benchmark", "Model", "Score", "Interval", "n", "Repeats", "Coverage", "Errors", "Tokens", "p50", "p99",
)  # fmt: skip
_BAR = 40
COLUMNS = (
    "run_id", "benchmark", "model", "status", "started_at", "metric", "category", "value", "ci_lower", "ci_upper",
    "stderr", "n", "scored",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
"""Characters at the start of a text that a spreadsheet takes for a formula."""


def headings(alpha: float) -> tuple[str, ...]:
    return tuple(f"{100 * (1 - alpha):g} % interval" if name == "Interval" else name for name in HEADINGS)


def overview(run: RunReport) -> tuple[str, ...]:
    statistics = run.statistics
    p50, _, p99 = latencies(run)
    return (
        run.benchmark,
        run.model or "–",
        *score(statistics.reward),
        f"{statistics.reward.examples:,}",
        f"{run.repeats:,}",
        "–" if statistics.coverage is None else f"{statistics.coverage:.1%}",
        f"{run.errors:,}",
        "–" if run.tokens is None else f"{run.tokens:,}",
        p50,
        p99,
    )


def score(mean: Mean) -> tuple[str, str]:
    return ("–" if mean.value is None else f"{mean.value:.4f}", interval(mean.interval) or "–")


def latencies(run: RunReport) -> tuple[str, str, str]:
    p50, p90, p99 = run.spreads.get("Generation") or (None, None, None)
    return duration(p50), duration(p90), duration(p99)


def findings(run: RunReport) -> dict[str, str]:
    """Returns the findings of ``nightjar eval stats`` by label, and the run's tokens, cost and duration."""
    lines = run_findings(run.statistics, is_headed=False)
    lines["Status"] = run.status or ""
    lines["Tokens"] = "" if run.tokens is None else f"{run.input_tokens or 0:,} in, {run.output_tokens or 0:,} out"
    lines["Failed attempts"] = f"{run.failed_attempts:,}" if run.failed_attempts else ""
    lines["Cost"] = "" if run.cost is None else f"{run.cost:.4f}"
    lines["Took"] = duration(run.seconds) if run.seconds else ""
    lines["Started"] = f"{run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else ""
    lines["Versions"] = ", ".join(f"{name} {version}" for name, version in run.versions.items() if version)
    return {label: text for label, text in lines.items() if text}


def measures(run: RunReport) -> Iterator[tuple[str, str, str]]:
    for rate in run.statistics.pass_rates:
        yield (f"pass@{rate.k}", *score(rate.at_k))
        if rate.k > 1:
            yield (f"pass^{rate.k}", *score(rate.all_k))
    for name, value in run.metrics.items():
        yield name, f"{value:.4f}", "–"


def failures(run: RunReport) -> Iterator[tuple[str, str, str, str]]:
    for one in run.failures:
        first = f"example {one.first['example_id']}: {one.first['message'] or ''}"
        yield f"{one.count:,}", str(one.kind), one.chain + (f", in {one.phase}" if one.phase else ""), first


def spreads(run: RunReport) -> Iterator[tuple[str, str, str, str]]:
    for what, places in run.spreads.items():
        is_count = all(isinstance(value, int) for value in places)
        p50, p90, p99 = [f"{value:,}" for value in places] if is_count else durations(places)
        yield what, p50, p90, p99


def reward_rows(run: RunReport) -> Iterator[tuple[str, int]]:
    for row in run.rewards:
        low, width = row["low"], row["width"]
        yield f"{low:.4g} to {low + width:.4g}" if width else f"{low:.4g}", row["count"]


def render_markdown(report: Report) -> str:
    many = [[str(number), *overview(run)] for number, run in enumerate(report.runs, start=1)]
    alpha = report.runs[0].statistics.alpha if report.runs else 0.05
    parts = ["# Evaluations", text_table(("", *headings(alpha)), many)]
    if report.left_out:
        parts.append("\n".join(f"- {safe(one)}" for one in report.left_out))
    for number, run in enumerate(report.runs, start=1):
        parts += _run(number, run)
    return "\n\n".join([*parts, f"Nightjar {report.nightjar_version}, {report.made_at:%Y-%m-%d %H:%M} UTC\n"])


def _run(number: int, run: RunReport) -> Iterator[str]:
    yield f"## {number}. {safe(run.benchmark)}, {safe(run.model or 'no model')}"
    yield f"Run {safe(run.run_id)}"
    yield text_table(("", ""), findings(run).items())
    yield from _section("Scores", ("", "Value", "Interval"), measures(run))
    means = ([name, *score(mean), f"{mean.examples:,}"] for name, mean in run.statistics.categories.items())
    yield from _section(f"By {safe(run.by)}", ("", "Score", "Interval", "Examples"), means)
    most = max((count for _, count in reward_rows(run)), default=1)
    bars = [(name, f"{count:,}", "█" * round(_BAR * count / most) or "▏") for name, count in reward_rows(run)]
    yield from _section("Rewards", ("Reward", "Rollouts", ""), bars)
    yield from _section("A rollout takes", ("", "p50", "p90", "p99"), spreads(run))
    yield from _section("What failed", ("Rollouts", "About", "Error", "The first"), failures(run))
    endings = ((name, f"{count:,}") for name, count in run.wrong.items())
    yield from _section("How wrong rollouts ended", ("", "Rollouts"), endings)
    for sample in run.samples:
        yield _sample(sample)


def _section(title: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    if shown := text_table(names, rows):
        yield f"### {title}"
        yield shown


def _sample(sample: Sample) -> str:
    what = sample.error or ("no reward" if sample.reward is None else f"{sample.reward:.4g}")
    title = f"Example {sample.example_id}, rollout {sample.rollout_index}, {sample.kind}: {safe(what)}"
    texts = {
        "Prompt": said(sample.prompt),
        "Completion": said(sample.completion),
        "Answer": sample.answer or "",
        "Parser found": sample.parsed or "",
        "Error": sample.message or "",
    }
    blocks = [f"{name}:\n\n{fenced(text)}" for name, text in texts.items() if text.strip()]
    return "\n\n".join([f"<details><summary>{title}</summary>", *blocks, "</details>"])


def said(messages: Any) -> str:
    if not isinstance(messages, list):
        return str(messages or "")
    return "\n\n".join(_told(message, is_alone=len(messages) == 1) for message in messages)


def _told(message: Any, *, is_alone: bool) -> str:
    if not isinstance(message, dict):
        return str(message)
    text = content_text(message.get("content"))
    calls = "".join(f"\n[calls {call}]" for call in message.get("tool_calls") or ())
    return f"{text}{calls}" if is_alone else f"{message.get('role', '')}: {text}{calls}"


def render_csv(report: Report) -> str:
    """Returns CSV with a line for each run and metric. ``csv_cell`` converts the cells."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run in report.runs:
        own = [run.run_id, run.benchmark, run.model, run.status, run.started_at and run.started_at.isoformat()]
        writer.writerows([csv_cell(value) for value in (*own, *line)] for line in _lines(run))
    return stream.getvalue()


def render_json(report: Report) -> str:
    """Returns the report as JSON. An infinite end of an interval is null."""
    return json.dumps(finite(asdict(report)), indent=1, default=_plain) + "\n"


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def csv_cell(value: Any) -> Any:
    """Returns a value. A text that begins like a formula gets a ``'`` in front."""
    if not isinstance(value, str):
        return "" if value is None else finite(value)
    text = visible(value).encode("utf-8", "replace").decode()
    return f"'{text}" if text.startswith(_FORMULA) else text


def _lines(run: RunReport) -> Iterator[tuple[Any, ...]]:
    statistics = run.statistics
    yield ("reward", None, *_mean(statistics.reward))
    for rate in statistics.pass_rates:
        yield (f"pass@{rate.k}", None, *_mean(rate.at_k))
        yield (f"pass^{rate.k}", None, *_mean(rate.all_k))
    for name, mean in statistics.categories.items():
        yield ("reward", f"{run.by}: {name}", *_mean(mean))
    rest = {"coverage": statistics.coverage, "rollouts": statistics.rollouts, "errors": run.errors}
    rest |= {"repeats": run.repeats, "input_tokens": run.input_tokens, "output_tokens": run.output_tokens}
    rest |= {"cost": run.cost, "seconds": run.seconds}
    for what, unit in (("Generation", "generation_seconds"), ("Scoring", "scoring_seconds")):
        places = run.spreads.get(what) or ()
        rest |= {f"{unit}_{name}": value for name, value in zip(("p50", "p90", "p99"), places, strict=False)}
    for name, value in {**run.metrics, **rest}.items():
        if value is not None:
            yield (name, None, value, *[None] * 5)


def _mean(mean: Mean) -> tuple[Any, ...]:
    return (mean.value, mean.interval.low, mean.interval.high, mean.stderr, mean.examples, mean.scored)

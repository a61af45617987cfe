"""A gate's verdict as rows for the terminal, as Markdown for a pull request or an artifact, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nightjar.core.text import counted, counted_are, with_error
from nightjar.reports.formats import cell, finite, interval, table

if TYPE_CHECKING:  # the night's flow loads this module, and SciPy takes 0.8 s
    from nightjar.analysis import GatedBenchmark, Verdict

_MOST_NAMED = 3
HEADINGS = ("Benchmark", "Tier", "Outcome", "Baseline", "Candidate", "Change", "Interval", "Allowed", "Pairs")


def gate_rows(found: Verdict) -> list[dict[str, str]]:
    return [dict(zip(HEADINGS, _cells(one), strict=True)) for one in found.benchmarks]


def reasons(found: Verdict, *, is_verbose: bool = False) -> Iterator[tuple[str, str]]:
    """Yields name and reason of each benchmark that did not pass fully. ``is_verbose`` yields all, with details."""
    for one in found.benchmarks:
        if is_verbose or one.outcome != "PASS" or one.not_asked or "position" in one.paired_by:
            yield one.name, " ".join([one.reason, *(_details(one) if is_verbose else ())])


def error_rate(found: Verdict) -> str:
    if found.night:
        each = " for each benchmark" if found.correction == "none" else ""
        count = f"{found.level * 365:.3g}"
        return f"In a year without any change, at most {count} false NO-GO nights are expected{each}."
    together = {"holm": "any false breach", "bh": "a breach being false", "none": "a false breach of each benchmark"}
    chance = f"the chance of {together[found.correction]} is {found.level:.3g}"
    return f"If no benchmark is worse than allowed, {chance}."


def gate_report(found: Verdict) -> str:
    rows = [" | ".join(map(cell, row.values())) for row in gate_rows(found)]
    lines = [f"- **{cell(name)}**: {text.replace('|', '¦')}" for name, text in reasons(found, is_verbose=True)]
    said = [
        f"Candidate: {cell(found.candidate)}. Baseline: {cell(found.baseline)}.",
        error_rate(found),
        left_out(found),
    ]
    parts = [f"## {found.decision}", found.reason, table(" | ".join(HEADINGS), rows), "\n".join(lines)]
    return "\n\n".join(filter(None, [*parts, " ".join(filter(None, said))]))


def gate_record(found: Verdict) -> dict[str, Any]:
    """Returns a verdict as JSON values. An infinite end of an interval is None."""
    record: dict[str, Any] = finite(asdict(found))
    return record


def left_out(found: Verdict) -> str:
    return f"Only on one side, and therefore not gated: {', '.join(found.not_gated)}." if found.not_gated else ""


def _cells(one: GatedBenchmark) -> tuple[str, ...]:
    difference = one.difference
    if difference is None or one.margin is None:
        return one.name, one.tier, one.outcome, *[""] * len(HEADINGS[3:])
    return (
        one.name,
        one.tier,
        one.outcome,
        f"{one.baseline_mean:.4f}",
        f"{one.candidate_mean:.4f}",
        f"{difference.mean:+.4f}",
        interval(difference.interval, "+.3f") or "–",
        f"{one.margin if one.direction == 'lower_is_better' else -one.margin:+.3g}",
        f"{one.pairs:,}",
    )


def _details(one: GatedBenchmark) -> Iterator[str]:
    if one.difference is not None:
        yield f"{one.metric}, {one.difference.method}; p = {one.p:.2g}, {one.p_adjusted:.2g} adjusted for all."
    if by_question := one.paired_by.get("question"):
        yield f"{counted_are(by_question, 'pair')} by question and answer."
    for window in one.windows:
        several = f"{window.nights} nights" if window.nights > 1 else "This night"
        by = f"{with_error(window.damage, window.stderr, sign='+')}, p = {window.p:.2g}"
        yield f"{several} beside {len(window.baseline)}: worse by {by}."
    coverages = (one.baseline_coverage, one.candidate_coverage)
    if any(coverage is not None and coverage < 1 for coverage in coverages):
        yield "Scored: " + " and ".join("unknown" if one is None else f"{one:.1%}" for one in coverages) + "."
    if one.candidate_runs:
        yield f"Runs: {_named(one.candidate_runs)} beside {_named(one.baseline_runs)}."


def _named(run_ids: Sequence[str]) -> str:
    if len(run_ids) > _MOST_NAMED:
        return f"{counted(len(run_ids), 'run')}, {run_ids[0]} to {run_ids[-1]}"
    return ", ".join(run_ids) or "none"

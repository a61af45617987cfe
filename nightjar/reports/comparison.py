"""Renders a comparison of runs as lines for the terminal, as Markdown, as JSON, and as an HTML page in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from nightjar import __version__
from nightjar.analysis import Comparison, Comparisons, Difference, Flip, Side, Terms, Unpaired
from nightjar.core.text import counted
from nightjar.reports.formats import cell, duration, finite, interval, percent, table
from nightjar.reports.html import fragment, render
from nightjar.reports.statistics import of_retries
from nightjar.statistics.coverage import has_low_coverage

_PAIRED_BY = {
    "content": "by content",
    "question": "by question and answer, because the rest of their content differs",
    "position": "by position, because several examples have the same question and answer: check these",
}
_UNPAIRED = {
    "other question": "not asked in the {other}",
    "other answer": "the {other} expects another answer",
    "other content": "the {other} has the question and answer with other content, or less often",
    "no prompt": "the prompt is unknown",
}
_FLIPS = 10
_FEW_CLUSTERS = 30
SHOWN_FLIPS = 20
_MARGIN = 0.08
_NEAR_END = 25.0


def side_rows(found: Comparison) -> list[tuple[str, str, str, str]]:
    """Returns rows of label, baseline, candidate and change. Rows without a value are left out."""
    a, b = found.baseline, found.candidate
    change = "" if a.mean is None or b.mean is None else f"{b.mean - a.mean:+.4f}"
    rows = [
        ("Run", a.run_id, b.run_id, ""),
        ("Environment", a.env_id or "", b.env_id or "", ""),
        ("Model", a.model or "", b.model or "", ""),
        (f"Avg {found.terms.metric_name}", _mean(a), _mean(b), change),
        ("Scored", _scored(a), _scored(b), ""),
        ("Runtime", _seconds(a.time_ms), _seconds(b.time_ms), _share(a.time_ms, b.time_ms)),
        _figures("Tokens in", a.input_tokens, b.input_tokens, ","),
        _figures("Tokens out", a.output_tokens, b.output_tokens, ","),
        _figures("Cost", a.cost, b.cost, ".4f"),
    ]
    return [row for row in rows if row[1] or row[2]]


def findings(found: Comparison) -> dict[str, str]:
    difference = found.difference
    p_both = min(1.0, 2 * min(difference.p_worse, difference.p_better))
    lines = {
        "Difference": _difference(difference, found.terms),
        "Pairs": _pairs(found),
        "Few scored": _few_scored(found),
        "Paired by": _ways(found),
        "Interval": f"{100 * (1 - found.terms.alpha):g} %: {difference.method}",
        "Effect": "" if difference.effect is None else f"{difference.effect:+.3f} standard deviations of a pair",
        "McNemar": "" if difference.p_mcnemar is None else f"p = {difference.p_mcnemar:.2g}, exact",
        "Sign flips": f"p = {p_both:.2g}",
        "Flips": f"{len(found.broken):,} broken, {len(found.fixed):,} fixed; "
        f"{found.both_right:,} right and {found.both_wrong:,} wrong in both",
        "Broken": _named(found.broken),
        "Fixed": _named(found.fixed),
        "Missing": _missing(found),
        "Retries": "; ".join(f"in {run}, {of_retries(one, found.terms.alpha)}" for run, one in found.retries.items()),
        "Differs": "; ".join(f"{name}: {was} → {now}" for name, was, now in differing_rows(found)),
    }
    return {label: text for label, text in lines.items() if text}


def differing_rows(found: Comparison) -> list[tuple[str, str, str]]:
    return [(name, _value(was), _value(now)) for name, (was, now) in found.differs.items()]


def category_rows(found: Comparison) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            one.name,
            f"{one.pairs:,}",
            f"{one.baseline:.4f}",
            f"{one.candidate:.4f}",
            f"{_difference(one.difference, found.terms)} {one.change}".rstrip(),
        )
        for one in found.categories
    ]


def evaluation_rows(found: Comparisons) -> list[tuple[str, str, str, str]]:
    return [
        (one.decision, evaluation_name(one), _difference(one.difference, one.terms), f"{one.pairs:,}")
        for one in found.found
    ]


def evaluation_name(found: Comparison) -> str:
    return " of ".join(text for text in (found.candidate.name, found.candidate.model) if text)


def verdict(found: Comparisons) -> str:
    decisions = [one.decision for one in found.found]
    parts = [
        f"{decisions.count(decision)} {words}"
        for decision, words in (("REGRESSION", "worse"), ("INCONCLUSIVE", "undecided"), ("PASS", "passed"))
        if decision in decisions
    ]
    parts += [f"{len(found.missing)} only in the baseline, not compared"] if found.missing else []
    parts += [f"{len(found.new)} only in the candidate"] if found.new else []
    parts += [f"{len(found.incomparable)} in both, but not comparable"] if found.incomparable else []
    everything = counted(len(decisions) + len(found.missing) + len(found.new) + len(found.incomparable), "evaluation")
    return f"Of {everything}: {', '.join(parts)}."


def comparison_report(found: Comparison) -> str:
    rows = [" | ".join(map(cell, row)) for row in side_rows(found)]
    lines = [f"- **{label}**: {text.replace('|', '¦')}" for label, text in findings(found).items()]
    parts = [f"## {found.decision}", found.reason, table(" | baseline | candidate | change", rows), "\n".join(lines)]
    if found.categories:
        categories = [" | ".join(map(cell, row)) for row in category_rows(found)]
        parts.append(table(f"{cell(found.terms.by)} | pairs | baseline | candidate | difference", categories))
    return "\n\n".join(parts)


def comparisons_report(found: Comparisons) -> str:
    if found.is_single:
        return comparison_report(found.found[0])
    rows = [" | ".join(map(cell, row)) for row in evaluation_rows(found)]
    parts = [f"# {found.decision}", verdict(found), table("decision | evaluation | difference | pairs", rows)]
    if sided := one_sided(found):
        parts.append("\n".join(f"- {cell(line)}" for line in sided))
    parts += [f"# {evaluation_name(one)}\n\n{comparison_report(one)}" for one in found.found]
    return "\n\n".join(parts)


def one_sided(found: Comparisons) -> list[str]:
    return [f"{name}: {why}" for name, why in {**found.missing, **found.incomparable}.items()] + [
        f"{name}: The baseline has no run of this evaluation" for name in found.new
    ]


def comparison_record(found: Comparison | Comparisons) -> dict[str, Any]:
    """Returns one or several comparisons as JSON values. An infinite end of an interval is None."""
    decision = {"decision": found.decision} if isinstance(found, Comparisons) else {}
    return {**decision, **{name: finite(value) for name, value in asdict(found).items()}}


def _difference(difference: Difference, terms: Terms) -> str:
    alone = "(no interval: one cluster)" if terms.cluster else "(no interval: one example)"
    found = interval(difference.interval, "+.4f") or alone
    return f"{difference.mean:+.4f} {found}"


def _pairs(found: Comparison) -> str:
    clusters = found.difference.clusters
    together = "" if clusters == found.pairs else f", in {clusters:,} clusters"
    few = ": few" if clusters < _FEW_CLUSTERS else ""
    return f"{counted(found.pairs, 'example')} that both have scored{together}{few}"


def _few_scored(found: Comparison) -> str:
    """Names the sides with low coverage; empty if there are none."""
    low = [
        f"{percent(side.coverage)} of the planned rollouts of the {name}"
        for name, side in (("baseline", found.baseline), ("candidate", found.candidate))
        if has_low_coverage(side.coverage)
    ]
    return f"only {' and '.join(low)}; the examples that failed may be harder than the others" if low else ""


def _ways(found: Comparison) -> str:
    """Describes how the pairs were found; empty if all are by content."""
    by = found.paired_by
    if set(by) == {"content"}:
        return ""
    parts = [f"{by[way]:,} {text}" for way, text in _PAIRED_BY.items() if way in by]
    return "; ".join(parts)


def _missing(found: Comparison) -> str:
    """Describes the examples that are not in the pairs, and how much they could have changed."""
    parts = [f"{counted(found.unscored, 'example')} that one of the runs has not scored"] if found.unscored else []
    parts += [_unpaired(one) for one in found.unpaired]
    lowest, highest = found.difference.if_failed_wrong, found.difference.if_failed_right
    if lowest != highest:
        parts.append(f"depending on the failed rollouts, the difference could be from {lowest:+.4f} to {highest:+.4f}")
    return "; ".join(parts)


def _unpaired(one: Unpaired) -> str:
    other = "candidate" if one.side == "baseline" else "baseline"
    shown = ", ".join(map(str, one.first)) + (", …" if one.count > len(one.first) else "")
    why = _UNPAIRED[one.reason].format(other=other)
    return f"{counted(one.count, 'example')} that only the {one.side} has ({why}: {shown})"


def _named(flips: Sequence[Flip]) -> str:
    if not flips:
        return ""
    shown = ", ".join(str(flip.example_id) for flip in flips[:_FLIPS])
    return f"examples {shown}" + (f" and {len(flips) - _FLIPS:,} more" if len(flips) > _FLIPS else "")


def _mean(side: Side) -> str:
    return "" if side.mean is None else f"{side.mean:.4f} {interval(side.interval)}".rstrip()


def _scored(side: Side) -> str:
    return f"{side.scored:,} of {side.rollouts or side.scored:,}"


def _seconds(time_ms: float | None) -> str:
    return "" if time_ms is None else duration(time_ms / 1000)


def _figures(label: str, before: float | None, after: float | None, form: str) -> tuple[str, str, str, str]:
    was, is_now = ("" if value is None else f"{value:{form}}" for value in (before, after))
    return label, was, is_now, _share(before, after)


def _share(before: float | None, after: float | None) -> str:
    return "" if not before or after is None else f"{after / before - 1:+.1%}"


def _value(value: Any) -> str:
    return "none" if value in (None, "", []) else str(value)


@dataclass(frozen=True)
class Chart:
    """An interval of a difference, and the limit, in percent of the width. An infinite end is drawn at the edge.

    ``ends`` are the finite ends. ``beyond_from`` and ``beyond_width`` give the area beyond the limit. ``zero_anchor``
    and ``limit_anchor`` are the values of SVG's ``text-anchor`` for the labels.
    """

    low: float
    high: float
    mean: float
    ends: list[float]
    zero: float
    limit: float
    limit_text: str
    beyond_from: float
    beyond_width: float
    zero_anchor: str
    limit_anchor: str
    label: str


@dataclass(frozen=True)
class ComparisonPage:
    found: Comparison
    name: str
    chart: Chart
    shared_chart: Chart
    sides: list[tuple[str, str, str, str]]
    findings: dict[str, str]
    differs: list[tuple[str, str, str]]
    categories: list[tuple[tuple[str, ...], str, Chart]]
    broken: list[Flip]
    fixed: list[Flip]


def comparison_page(compared: Comparisons) -> str:
    shared = [one.difference for one in compared.found]
    return render(
        "comparison.html",
        decision=compared.decision,
        is_single=compared.is_single,
        verdict=verdict(compared),
        one_sided=one_sided(compared),
        pages=[page_of(one, shared) for one in compared.found],
        level=f"{100 * (1 - compared.found[0].terms.alpha):g} %" if compared.found else "",
        version=__version__,
    )


def page_of(found: Comparison, shared: list[Difference], shown_flips: int = SHOWN_FLIPS) -> ComparisonPage:
    shown = findings(found)
    shown.pop("Differs", None)
    of_categories = [one.difference for one in found.categories]
    return ComparisonPage(
        found=found,
        name=evaluation_name(found),
        chart=draw(found.difference, found.terms, [found.difference]),
        shared_chart=draw(found.difference, found.terms, shared),
        sides=side_rows(found),
        findings=shown,
        differs=differing_rows(found),
        categories=[
            (row, one.change, draw(one.difference, found.terms, of_categories))
            for row, one in zip(category_rows(found), found.categories, strict=True)
        ],
        broken=found.broken[:shown_flips],
        fixed=found.fixed[:shown_flips],
    )


def comparison_chart(found: Comparison) -> str:
    """Returns the interval of the difference beside the limit, as SVG for a page."""
    return fragment("comparison_parts.html", "chart", draw(found.difference, found.terms, [found.difference]), False)


def draw(difference: Difference, terms: Terms, beside: Iterable[Difference]) -> Chart:
    limit = terms.max_drop if terms.direction == "lower" else -terms.max_drop
    shown = [value for one in beside for value in (one.interval.low, one.interval.high, one.mean) if isfinite(value)]
    lowest, highest = min(0.0, limit, *shown), max(0.0, limit, *shown)
    width = (highest - lowest) or 1.0
    lowest, width = lowest - _MARGIN * width, width * (1 + 2 * _MARGIN)

    def place(value: float) -> float:
        return round(100 * min(1.0, max(0.0, (value - lowest) / width)), 2)

    low, high = difference.interval.low, difference.interval.high
    at_limit, at_zero = place(limit), place(0.0)
    return Chart(
        low=place(low),
        high=place(high),
        mean=place(difference.mean),
        ends=[place(end) for end in (low, high) if isfinite(end)],
        zero=at_zero,
        limit=at_limit,
        limit_text=f"{limit:+g}",
        beyond_from=at_limit if terms.direction == "lower" else 0.0,
        beyond_width=round(100 - at_limit, 2) if terms.direction == "lower" else at_limit,
        zero_anchor=_anchor(at_zero),
        limit_anchor=_anchor(at_limit),
        label=f"Difference {_difference(difference, terms)}, limit {limit:+g}",
    )


def _anchor(place: float) -> str:
    return "start" if place < _NEAR_END else "end" if place > 100 - _NEAR_END else "middle"

"""A comparison of two runs, in words: the lines of the terminal, and markdown for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from nightjar.comparison import Category, Comparison, Comparisons, Difference, Flip, Side
from nightjar.reports.finite import finite
from nightjar.reports.markdown import cell, table
from nightjar.reports.statistics import of_retries
from nightjar.stats.intervals import Interval

_FLIPS = 10
"""So many are named each way."""
_FEW_CLUSTERS = 30


def side_rows(found: Comparison) -> list[tuple[str, str, str, str]]:
    """Returns what is known of each run: a label, the baseline's, the candidate's, and the change where it is a number.

    Rows in which both have nothing are left out.
    """
    a, b = found.baseline, found.candidate
    rows = [
        ("Run", a.run_id, b.run_id, ""),
        ("Environment", a.env_id or "", b.env_id or "", ""),
        ("Model", a.model or "", b.model or "", ""),
        (f"Avg {found.terms.metric}", _mean(a), _mean(b), _change(a.mean, b.mean, "+.4f")),
        ("Scored", _scored(a), _scored(b), ""),
        ("Runtime", _seconds(a.time_ms), _seconds(b.time_ms), _share(a.time_ms, b.time_ms)),
        ("Tokens in", _count(a.input_tokens), _count(b.input_tokens), _share(a.input_tokens, b.input_tokens)),
        ("Tokens out", _count(a.output_tokens), _count(b.output_tokens), _share(a.output_tokens, b.output_tokens)),
        ("Cost", _cost(a.cost), _cost(b.cost), _share(a.cost, b.cost)),
    ]
    return [row for row in rows if row[1] or row[2]]


def findings(found: Comparison) -> dict[str, str]:
    """Returns label to what was found over the pairs, the most important first."""
    difference = found.difference
    p_both = min(1.0, 2 * min(difference.p_worse, difference.p_better))
    told = {
        "Difference": _difference(difference),
        "Pairs": _pairs(found),
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
    return {label: text for label, text in told.items() if text}


def differing_rows(found: Comparison) -> list[tuple[str, str, str]]:
    """Returns the settings in which the runs differ: what each is called, the baseline's and the candidate's."""
    return [(name, _value(was), _value(now)) for name, (was, now) in found.differs.items()]


def category_rows(found: Comparison) -> list[tuple[str, str, str, str, str]]:
    """Returns each category: its name, pairs, baseline's and candidate's mean, and the difference with its interval."""
    return [
        (one.name, f"{one.pairs:,}", f"{one.baseline:.4f}", f"{one.candidate:.4f}", _of_category(one))
        for one in found.categories
    ]


def evaluation_rows(found: Comparisons) -> list[tuple[str, str, str, str]]:
    """Returns each evaluation: the decision, what it is, the difference with its interval, and the pairs."""
    return [(one.decision, evaluation_name(one), _difference(one.difference), f"{one.pairs:,}") for one in found.found]


def evaluation_name(found: Comparison) -> str:
    """Returns what was compared: the candidate's evaluation, and its model."""
    return " of ".join(text for text in (found.candidate.name, found.candidate.model) if text)


def verdict(found: Comparisons) -> str:
    """Returns what several evaluations came to together, in a sentence."""
    decisions = [one.decision for one in found.found]
    parts = [
        f"{decisions.count(decision)} {words}"
        for decision, words in (("REGRESSION", "worse"), ("INCONCLUSIVE", "undecided"), ("PASS", "passed"))
        if decision in decisions
    ]
    parts += [f"{len(found.missing)} of the baseline not compared"] if found.missing else []
    parts += [f"{len(found.new)} of the candidate alone"] if found.new else []
    return f"Of {len(decisions) + len(found.missing) + len(found.new)} evaluations: {', '.join(parts)}."


def comparison_report(found: Comparison) -> str:
    """Returns the comparison as markdown."""
    rows = [" | ".join(map(cell, row)) for row in side_rows(found)]
    lines = [f"- **{label}**: {text.replace('|', '¦')}" for label, text in findings(found).items()]
    parts = [f"## {found.decision}", found.reason, table(" | baseline | candidate | change", rows), "\n".join(lines)]
    if found.categories:
        categories = [" | ".join(map(cell, row)) for row in category_rows(found)]
        parts.append(table(f"{cell(found.terms.by)} | pairs | baseline | candidate | difference", categories))
    return "\n\n".join(parts)


def comparisons_report(found: Comparisons) -> str:
    """Returns several evaluations as markdown: a table, and the comparison of each."""
    rows = [" | ".join(map(cell, row)) for row in evaluation_rows(found)]
    parts = [f"# {found.decision}", verdict(found), table("decision | evaluation | difference | pairs", rows)]
    if sided := one_sided(found):
        parts.append("\n".join(f"- {cell(line)}" for line in sided))
    parts += [f"# {evaluation_name(one)}\n\n{comparison_report(one)}" for one in found.found]
    return "\n\n".join(parts)


def one_sided(found: Comparisons) -> list[str]:
    """Returns a line for each evaluation that was not compared."""
    return [f"{name}: {why}" for name, why in found.missing.items()] + [
        f"{name}: The baseline has no run of it" for name in found.new
    ]


def comparison_record(found: Comparison | Comparisons) -> dict[str, Any]:
    """Returns a comparison, or several, as JSON can hold it: None where an interval has no end."""
    decision = {"decision": found.decision} if isinstance(found, Comparisons) else {}
    return {**decision, **{name: finite(value) for name, value in asdict(found).items()}}


def _of_category(one: Category) -> str:
    return f"{_difference(one.difference)}{f' {one.change}' if one.change else ''}"


def _difference(difference: Difference) -> str:
    return f"{difference.mean:+.4f} {_interval(difference.interval, '+.4f')}"


def _pairs(found: Comparison) -> str:
    clusters = found.difference.clusters
    together = "" if clusters == found.pairs else f", in {clusters:,} clusters"
    return f"{found.pairs:,} examples that both have scored{together}" + (": few" if clusters < _FEW_CLUSTERS else "")


def _missing(found: Comparison) -> str:
    """Says what is not in the pairs, and what it could have changed."""
    parts = [
        f"{count:,} examples {where}"
        for count, where in (
            (found.unscored, "that one of them has not scored"),
            (found.only_baseline, "of the baseline alone"),
            (found.only_candidate, "of the candidate alone"),
        )
        if count
    ]
    lowest, highest = found.difference.if_failed_wrong, found.difference.if_failed_right
    if lowest != highest:
        parts.append(f"with what failed the difference could be {lowest:+.4f} to {highest:+.4f}")
    return "; ".join(parts)


def _named(flips: Sequence[Flip]) -> str:
    if not flips:
        return ""
    shown = ", ".join(str(flip.example_id) for flip in flips[:_FLIPS])
    return f"examples {shown}" + (f" and {len(flips) - _FLIPS:,} more" if len(flips) > _FLIPS else "")


def _mean(side: Side) -> str:
    return "" if side.mean is None else f"{side.mean:.4f} {_interval(side.interval, '.3f')}".replace(" [-inf, inf]", "")


def _interval(interval: Interval, form: str) -> str:
    return f"[{interval.low:{form}}, {interval.high:{form}}]"


def _scored(side: Side) -> str:
    return f"{side.scored:,} of {side.rollouts or side.scored:,}"


def _seconds(time_ms: float | None) -> str:
    return "" if time_ms is None else f"{time_ms / 1000:,.1f} s"


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _cost(cost: float | None) -> str:
    return "" if cost is None else f"{cost:.4g}"


def _change(before: float | None, after: float | None, form: str) -> str:
    return "" if before is None or after is None else f"{after - before:{form}}"


def _share(before: float | None, after: float | None) -> str:
    return "" if not before or after is None else f"{after / before - 1:+.1%}"


def _value(value: Any) -> str:
    return "none" if value in (None, "", []) else str(value)

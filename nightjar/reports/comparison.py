"""A comparison of two runs, in words: the lines of the terminal, and markdown for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from nightjar.comparison import Comparison, Flip, Side
from nightjar.reports.markdown import cell, table
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
        ("Avg reward", _reward(a), _reward(b), _change(a.avg_reward, b.avg_reward, "+.4f")),
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
        "Difference": f"{difference.mean:+.4f} {_interval(difference.interval, '+.4f')}",
        "Pairs": _pairs(found),
        "Interval": f"{100 * (1 - found.alpha):g} %: {difference.method}",
        "Effect": "" if difference.effect is None else f"{difference.effect:+.3f} standard deviations of a pair",
        "McNemar": "" if difference.p_mcnemar is None else f"p = {difference.p_mcnemar:.2g}, exact",
        "Sign flips": f"p = {p_both:.2g}",
        "Flips": f"{len(found.broken):,} broken, {len(found.fixed):,} fixed; "
        f"{found.both_right:,} right and {found.both_wrong:,} wrong in both",
        "Broken": _named(found.broken),
        "Fixed": _named(found.fixed),
        "Missing": _missing(found),
        "Differs": "; ".join(f"{name}: {_value(was)} → {_value(now)}" for name, (was, now) in found.differs.items()),
    }
    return {label: text for label, text in told.items() if text}


def comparison_report(found: Comparison) -> str:
    """Returns the comparison as markdown."""
    rows = [" | ".join(map(cell, row)) for row in side_rows(found)]
    lines = [f"- **{label}**: {text.replace('|', '¦')}" for label, text in findings(found).items()]
    parts = [f"## {found.decision}", found.reason, table(" | baseline | candidate | change", rows), "\n".join(lines)]
    return "\n\n".join(parts)


def comparison_record(found: Comparison) -> dict[str, Any]:
    """Returns the comparison as JSON can hold it: None where an interval has no end."""
    return {name: _finite(value) for name, value in asdict(found).items()}


def _pairs(found: Comparison) -> str:
    clusters = found.difference.clusters
    together = "" if clusters == found.pairs else f", in {clusters:,} clusters"
    return f"{found.pairs:,} examples that both have scored{together}" + (": few" if clusters < _FEW_CLUSTERS else "")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


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


def _reward(side: Side) -> str:
    return "" if side.avg_reward is None else f"{side.avg_reward:.4f} {_interval(side.interval, '.3f')}"


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

"""A leaderboard as rows and sentences."""

from __future__ import annotations

from nightjar.analysis.ranking import Leaderboard
from nightjar.reports.formats import interval, percent
from nightjar.statistics.coverage import LEAST_COVERAGE

HEADINGS = ("model", "rank", "mean", "interval", "group", "run")


def leaderboard_rows(found: Leaderboard) -> list[tuple[str, ...]]:
    return [
        (
            str(row.model),
            str(row.ranks[0]) if row.ranks[0] == row.ranks[1] else f"{row.ranks[0]}-{row.ranks[1]}",
            f"{row.mean:.4f}",
            interval(row.interval) or "–",
            row.letters,
            row.run_id,
        )
        for row in found.rows
    ]


def leaderboard_findings(found: Leaderboard) -> dict[str, str]:
    first, *_ = found.rows
    lines = {"First": f"{first.model}, without a tie", "Examples": f"{found.examples:,} that all models have scored"}
    if len(found.rows) == 1:
        lines["First"] = f"{first.model}, the only model"
    elif len(best := [str(row.model) for row in found.rows if row.ranks[0] == 1]) > 1:
        lines["First"] = f"{', '.join(best)} are tied: any of them may be the best"
    if found.low_coverage:
        shares = (f"{model} ({percent(coverage)} scored)" for model, coverage in found.low_coverage.items())
        lines["Not ranked"] = f"{', '.join(shares)}: less than {percent(LEAST_COVERAGE)} of the rollouts are scored"
    if found.left_out:
        shares = (f"{model} ({count:,} of them)" for model, count in found.left_out.items())
        lines["Left out"] = f"{', '.join(shares)}: they ran too few of these examples"
    if found.differs:
        lines["Not the same"] = f"{', '.join(found.differs)}: these runs differ in more than the model"
    wrong = f"any two equal models are told apart with a chance of at most {found.alpha:g}"
    lines["Groups"] = f"models that share a letter are tied. Ranks and intervals hold for all models at once: {wrong}"
    return lines

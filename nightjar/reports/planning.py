"""A plan as rows and sentences."""

from __future__ import annotations

import shlex

from scipy import stats

from nightjar.analysis.planning import PILOT, Plan
from nightjar.core.text import counted

HEADINGS = ("rollouts each", "examples", "rollouts", "time", "cost", "smallest drop")


def plan_rows(found: Plan) -> list[tuple[str, ...]]:
    return [
        (
            str(row.rollouts_per_example),
            f"{row.examples:,}" + ("" if found.dataset is None or row.examples <= found.dataset else " (too many)"),
            f"{row.rollouts:,}",
            _time(row.seconds),
            "–" if row.cost is None else f"{row.cost:.3g}",
            "–" if row.smallest_drop is None else f"{row.smallest_drop:.4f}",
        )
        for row in found.rows
    ]


def plan_findings(found: Plan) -> dict[str, str]:
    known = found.variances
    lines = {
        "Drop": f"{found.detect:g}, detected with a power of {found.power:.0%} by an interval of {1 - found.alpha:.0%}"
    }
    if known.runs:
        runs = "run" if known.runs == 1 else f"{known.runs} runs"
        lines["Model"] = f"{found.model}, from its newest {runs}"
    lines["Between"] = f"variance of {known.between:.4f} between examples, which pairing removes"
    lines["Within"] = f"variance of {known.within:.4f} of one rollout from run to run" + _unless_known(found)
    lines["Difference"] = f"variance of {known.difference:.4f} between two runs on an example, {_source(found)}"
    lines["Dataset"] = "" if found.dataset is None else counted(found.dataset, "example")
    lines["Advice"] = advice(found)
    return {label: text for label, text in lines.items() if text}


def advice(found: Plan) -> str:
    one = found.rows[0]
    if not found.variances.runs:
        examples, rollouts = PILOT
        less, more = (examples / stats.chi2.ppf(share, examples) - 1 for share in (0.975, 0.025))
        return (
            f"A pilot of {examples} examples × {rollouts} rollouts estimates the variance within to about {less:+.0%} "
            f"to {more:+.0%}, and so the number of examples."
        )
    if found.dataset is None:
        return (
            f"{one.examples:,} examples, one rollout each. If the dataset has fewer, use more rollouts of each. "
            "The size of the dataset is unknown, because no run had all examples."
        )
    if one.examples <= found.dataset:
        return (
            f"{one.examples:,} of the {found.dataset:,} examples, once each. Fewer with more rollouts would cost more."
        )
    if found.rollouts_for_dataset:
        return (
            f"All {found.dataset:,} examples, {found.rollouts_for_dataset} rollouts each. With fewer rollouts, the "
            "dataset has too few examples."
        )
    return (
        f"The {found.dataset:,} examples are too few, and more rollouts do not help: they reduce only the variance "
        f"within. With {found.rows[-1].rollouts_per_example} rollouts each, they detect a drop of "
        f"{found.rows[-1].smallest_drop:.4f}."
    )


def next_command(found: Plan) -> str:
    examples, rollouts = found.rows[0].examples, 1
    if not found.variances.runs:
        examples, rollouts = PILOT
    elif found.dataset is not None and examples > found.dataset:
        examples, rollouts = -1, found.rollouts_for_dataset or found.rows[-1].rollouts_per_example
    model = "MODEL" if found.model is None else shlex.quote(found.model)
    return f"nightjar eval run {shlex.quote(found.env_id)} -m {model} -n {examples} -r {rollouts}"


def _unless_known(found: Plan) -> str:
    known = found.variances
    if not known.runs:
        return ", the largest possible for binary rewards: there is no run of this environment"
    return "" if known.is_within_known else ", or less: no example has two rollouts"


def _source(found: Plan) -> str:
    models = found.variances.models
    if models:
        return f"as seen beside {', '.join(models)}" + (": the median" if len(models) > 1 else "")
    return "assuming that some examples lose everything: no other model has the same examples"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"  # noqa: PLR2004

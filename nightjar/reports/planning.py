"""A plan in words."""

from __future__ import annotations

import shlex

from scipy import stats

from nightjar.comparison.planning import PILOT, Plan

HEADINGS = ("rollouts each", "examples", "rollouts", "time", "cost", "smallest drop")


def plan_rows(found: Plan) -> list[tuple[str, ...]]:
    """Returns a row of cells for each number of rollouts, below ``HEADINGS``; a dash for what is not known."""
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
    """Returns label to what the plan is made of, and what to do."""
    known = found.variances
    told = {"Drop": f"{found.detect:g}, seen {found.power:.0%} of the time by an interval of {1 - found.alpha:.0%}"}
    if known.runs:
        runs = "run" if known.runs == 1 else f"{known.runs} runs"
        told["Model"] = f"{found.model}, from its newest {runs}"
    told["Between"] = f"variance of {known.between:.4f} between examples, which pairs are free of"
    told["Within"] = f"{known.within:.4f} of one rollout from run to run" + _unless_known(found)
    told["Difference"] = f"{known.difference:.4f} between what two runs come to on an example, {_source(found)}"
    told["Dataset"] = "" if found.dataset is None else f"{found.dataset:,} examples"
    told["Advice"] = advice(found)
    return {label: text for label, text in told.items() if text}


def advice(found: Plan) -> str:
    """Returns what to run, in a sentence."""
    one = found.rows[0]
    if not found.variances.runs:
        examples, rollouts = PILOT
        less, more = (examples / stats.chi2.ppf(share, examples) - 1 for share in (0.975, 0.025))
        return (
            f"A pilot of {examples} examples × {rollouts} rollouts tells the variance within to about {less:+.0%} to "
            f"{more:+.0%}, and with it the number of examples."
        )
    if found.dataset is None:
        return (
            f"{one.examples:,} examples once each, if the dataset has as many; of fewer, more rollouts. No run asked "
            "all examples, so it is not known how many there are."
        )
    if one.examples <= found.dataset:
        return f"{one.examples:,} of the {found.dataset:,} examples, once each: more rollouts of fewer cost more."
    if found.rollouts_for_dataset:
        return (
            f"All {found.dataset:,} examples, {found.rollouts_for_dataset} rollouts each: with fewer, they are too few."
        )
    return (
        f"The {found.dataset:,} examples are too few, with any number of rollouts: that makes the variance within "
        f"smaller, and the difference varies as before. With {found.rows[-1].rollouts_per_example} each they show a "
        f"drop of {found.rows[-1].smallest_drop:.4f}."
    )


def next_command(found: Plan) -> str:
    """Returns the command that runs what is advised."""
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
        return ", the most that right and wrong can have: there is no run of this environment"
    return "" if known.is_within_known else ", at most: no example was asked twice"


def _source(found: Plan) -> str:
    models = found.variances.models
    if models:
        return f"as seen beside {', '.join(models)}" + (": the median" if len(models) > 1 else "")
    return "as of a drop that takes some examples whole: no other model was asked the same"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"  # noqa: PLR2004

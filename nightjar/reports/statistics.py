"""The statistics of a run as sentences and rows."""

from __future__ import annotations

from math import isinf

from nightjar.analysis.run_statistics import Mean, PassRate, Retries, RunStatistics, Runtime
from nightjar.core.text import counted
from nightjar.reports.formats import durations, interval


def run_findings(found: RunStatistics, *, is_headed: bool = True) -> dict[str, str]:
    """Returns findings by label, the most important first. With ``is_headed``, the run comes before the findings."""
    reward, variance = found.reward, found.variance
    head = {
        "Run": f"{found.run_id} ({found.status})" if found.status != "completed" else found.run_id,
        "Environment": found.env_id or "",
        "Model": found.model or "",
    }
    lines = {
        **(head if is_headed else {}),
        "Avg reward": mean(reward),
        "Interval": "" if isinf(reward.interval.low) else f"{100 * (1 - found.alpha):g} %: {reward.method}",
        "Scored": f"{reward.scored:,} of {counted(found.rollouts, 'rollout')}, "
        f"{counted(reward.examples, 'example')}{_clusters(reward)}",
        "Failed": _failed(found),
        "Spread": ""
        if variance.shared is None
        else f"{variance.shared:.0%} of it between examples "
        f"(variance {variance.between:.4f}), the rest between rollouts of an example ({variance.within:.4f})",
        "Retries": of_retries(found.retries, found.alpha),
        "Model time": _took(found.runtime),
        "Causes": _causes(found.runtime),
    }
    return {label: text for label, text in lines.items() if text}


def mean(found: Mean) -> str:
    return "none" if found.value is None else f"{found.value:.4f} {interval(found.interval)}".rstrip()


def of_retries(found: Retries, alpha: float) -> str:
    effect = found.effect
    if effect is None:
        return ""
    many = f"{counted(found.count, 'rollout')} took more than one attempt"
    apart = f"{effect.difference:+.4f} {interval(effect.interval)}, p = {effect.p_value:.2g}"
    if not found.matter(alpha):
        return f"{many}; their rewards are like those of the other rollouts ({apart})"
    where = "of the same examples" if effect.is_within else "of other examples, which may be harder"
    return f"{many}, and their rewards differ from those of the others {where} ({apart}): retries change the score"


def pass_rows(found: list[PassRate]) -> list[tuple[str, str, str]]:
    return [(str(rate.k), mean(rate.at_k), mean(rate.all_k)) for rate in found]


def _took(found: Runtime | None) -> str:
    if found is None or not found.latency_p50_ms:
        return ""
    times = (found.latency_p50_ms, found.latency_p90_ms, found.latency_p99_ms)
    p50, p90, p99 = durations([milliseconds / 1000 for milliseconds in times])
    counts = {"retried requests": found.retries, "cached responses": found.cached_calls}
    parts = [f"{count:,} {name}" for name, count in counts.items() if count]
    return ", ".join(
        [f"median {p50}, p90 {p90}, p99 {p99} a rollout", f"{found.tokens_per_second:,.0f} tokens/s", *parts]
    )


def _causes(found: Runtime | None) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in found.failures.items()) if found else ""


def _clusters(found: Mean) -> str:
    return "" if found.clusters == found.examples else f" in {found.clusters:,} clusters"


def _failed(found: RunStatistics) -> str:
    missing = found.rollouts - found.reward.scored
    if not missing or found.if_failed_wrong is None:
        return ""
    bounds = f"{found.if_failed_wrong:.4f} if all were wrong, {found.if_failed_right:.4f} if all were right"
    return f"{missing:,} have no reward; the mean would be {bounds}"

"""Stores comparisons and verdicts in the warehouse: the views ``comparisons`` and ``gate_decisions``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from nightjar.analysis.gates.verdict import GatedBenchmark, Verdict, clearest
from nightjar.analysis.measuring import chance_of_damage
from nightjar.analysis.records import Comparison, Difference
from nightjar.statistics.exchange import SEED
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import COMPARISONS, GATE_DECISIONS, GateDecision, RecordedComparison

_OF_COMPARISON = {field.name for field in fields(RecordedComparison)}
_OF_GATE = {field.name for field in fields(GateDecision)}


def record_verdict(warehouse: Warehouse, verdict: Verdict) -> str:
    now, gate_id = _now_and_id()
    values: dict[str, Any] = {name: value for name, value in vars(verdict).items() if name in _OF_GATE}
    values |= {
        "gate_id": gate_id,
        "made_at": now,
        "verdict": verdict.decision,
        "benchmarks": len(verdict.benchmarks),
        "breached": verdict.named("BREACH", "MISSING"),
        "undecided": verdict.named("INSUFFICIENT"),
    }
    rows = [_of_benchmark(one, f"{gate_id}-{number:03}", verdict) for number, one in enumerate(verdict.benchmarks)]
    warehouse.write_rows(COMPARISONS, [RecordedComparison(made_at=now, gate_id=gate_id, **row) for row in rows])
    warehouse.write_rows(GATE_DECISIONS, [GateDecision(**values)])
    return gate_id


def record_comparisons(warehouse: Warehouse, compared: Sequence[Comparison]) -> None:
    warehouse.write_rows(COMPARISONS, [_of_comparison(one) for one in compared])


def _of_comparison(found: Comparison) -> RecordedComparison:
    now, comparison_id = _now_and_id()
    a, b, terms = found.baseline, found.candidate, found.terms
    return RecordedComparison(
        comparison_id=comparison_id,
        made_at=now,
        benchmark=b.env_id or "",
        decision=found.decision,
        reason=found.reason,
        metric=terms.metric_name,
        direction=f"{terms.direction}_is_better",
        baseline_runs=[a.run_id],
        candidate_runs=[b.run_id],
        alpha=terms.alpha,
        margin=terms.max_drop,
        pairs=found.pairs,
        baseline_coverage=a.coverage,
        candidate_coverage=b.coverage,
        p=chance_of_damage(found.difference, terms),
        pairs_needed=found.pairs_needed,
        **_of_difference(found.difference),
    )


def _now_and_id() -> tuple[datetime, str]:
    now = datetime.now(UTC)
    return now.replace(microsecond=0), f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03}-{uuid.uuid4().hex[:6]}"


def _of_benchmark(one: GatedBenchmark, comparison_id: str, verdict: Verdict) -> dict[str, Any]:
    window = clearest(one.windows)
    values = {name: value for name, value in vars(one).items() if name in _OF_COMPARISON}
    values |= {"comparison_id": comparison_id, "benchmark": one.name, "decision": one.outcome, "alpha": verdict.alpha}
    if one.difference is not None:
        values |= _of_difference(one.difference)
    return {**values, "nights": window.nights if window else None}


def _of_difference(difference: Difference) -> dict[str, Any]:
    return {
        "difference": difference.mean,
        "stderr": difference.stderr,
        "low": difference.interval.low,
        "high": difference.interval.high,
        "method": difference.method,
        "seed": SEED,
        "clusters": difference.clusters,
        "p_sign_flips": difference.p_worse,
    }

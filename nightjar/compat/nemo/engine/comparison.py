"""``compare_runs`` and ``gate_runs``: Nightjar's comparison and gate in the format of NeMo Evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nightjar.analysis import Comparison, Flip, GatedBenchmark, Side, gate
from nightjar.analysis import compare_runs as compare
from nightjar.analysis.gates.policy import GatePolicy, GateRule
from nightjar.compat.nemo.engine.artifacts import write_all
from nightjar.compat.nemo.metrics import McNemarResult, PermutationResult, mcnemar_test
from nightjar.core.files import scratch_folder
from nightjar.errors import ConfigError
from nightjar.reports.formats import as_json, finite
from nightjar.reports.html import write_page

Run: TypeAlias = str | Path | Mapping[str, Any]
_REPORT_VERSION = 1
_VERDICTS = {"PASS": "PASS", "REGRESSION": "BLOCK", "INCONCLUSIVE": "INCONCLUSIVE"}
_TESTS = ("auto", "mcnemar", "permutation")
_THRESHOLDS = (0.0, 0.5)
_GATE_REPORT_VERSION = 1
_STATUS = {"INSUFFICIENT": "INSUFFICIENT_EVIDENCE"}


def compare_runs(
    baseline: Run,
    candidate: Run,
    reward_threshold: float = 0.0,
    alpha: float = 0.05,
    min_effect: float = 0.005,
    test: Literal["auto", "mcnemar", "permutation"] = "auto",
) -> dict[str, Any]:
    """Compares two evaluations (anything that ``nightjar compare`` takes) over the problems that both scored.

    The report's ``verdict`` is ``PASS`` if the interval of the drop is within ``min_effect``, ``BLOCK`` if it is
    entirely beyond ``min_effect``, else ``INCONCLUSIVE``. ``test`` selects only the p-value to report.
    ``reward_threshold`` may be 0 or 0.5. In both cases, an answer with a reward of 0.5 or more is correct.
    """
    if test not in _TESTS:
        raise ConfigError(f"Unknown test {test!r}. Choose one of: {', '.join(_TESTS)}")
    if reward_threshold not in _THRESHOLDS:
        raise ConfigError(f"reward_threshold: an answer is correct from 0.5 on (found {reward_threshold})")
    with _on_disk(baseline) as a, _on_disk(candidate) as b:
        found = compare(a, b, max_drop=min_effect, alpha=alpha)
    return _report(found, min_effect, test, alpha)


@contextmanager
def _on_disk(run: Run) -> Iterator[str | Path]:
    if not isinstance(run, Mapping):
        yield run
        return
    with scratch_folder() as folder:
        write_all(dict(run), folder)
        yield folder


def _report(found: Comparison, max_drop: float, test: str, alpha: float) -> dict[str, Any]:
    difference = found.difference
    uses_mcnemar = test != "permutation" and difference.p_mcnemar is not None
    flips = _flips(found)
    mcnemar = mcnemar_test(flips["contingency"], found.pairs, alpha) if uses_mcnemar else McNemarResult()
    return {
        "report_version": _REPORT_VERSION,
        "baseline": _side(found.baseline),
        "candidate": _side(found.candidate),
        "score_deltas": {
            "mean_reward": {
                "baseline": found.baseline.mean,
                "candidate": found.candidate.mean,
                "delta": difference.mean,
                "ci_lower": difference.interval.low,
                "ci_upper": difference.interval.high,
                "relative_pct": _percent(difference.mean, found.baseline.mean) or 0.0,
            }
        },
        "verdict": _VERDICTS[found.decision],
        "verdict_reasons": [found.reason],
        "threshold": max_drop,
        "test_used": "mcnemar" if uses_mcnemar else "permutation",
        "p_value": difference.p_mcnemar if uses_mcnemar else difference.p_worse,
        "mcnemar": mcnemar.to_dict(),
        "permutation_test": PermutationResult(
            -difference.mean,
            difference.p_worse,
            difference.p_worse < alpha,
            effect_size=difference.effect and -difference.effect,
        ).to_dict(),
        "flip_report": flips,
        "settings_that_differ": {name: list(values) for name, values in found.differs.items()},
    }


def _flips(found: Comparison) -> dict[str, Any]:
    broken, fixed = len(found.broken), len(found.fixed)
    return {
        "summary": {
            "n_paired": found.pairs,
            "n_regressions": broken,
            "n_improvements": fixed,
            "n_stable_correct": found.both_right,
            "n_stable_wrong": found.both_wrong,
            "regression_rate": broken / found.pairs,
            "improvement_rate": fixed / found.pairs,
        },
        "n_paired": found.pairs,
        "unpaired": {
            "baseline": found.only_baseline,
            "candidate": found.only_candidate,
            "unscored": found.unscored,
        },
        "contingency": {
            "both_correct": found.both_right,
            "baseline_only_correct": broken,
            "candidate_only_correct": fixed,
            "both_wrong": found.both_wrong,
        },
        "regressions": list(map(_flip, found.broken)),
        "improvements": list(map(_flip, found.fixed)),
    }


def _side(side: Side) -> dict[str, Any]:
    names = ("run_id", "model", "mean", "examples", "scored", "failed", "coverage")
    return {"benchmark": side.env_id, **{name: getattr(side, name) for name in names}}


def _flip(flip: Flip) -> dict[str, Any]:
    rewards = {"baseline_reward": flip.baseline, "candidate_reward": flip.candidate}
    return {"problem_idx": flip.example_id, **rewards}


def _percent(delta: float, of: float | None) -> float | None:
    return 100 * delta / abs(of) if of else None


@dataclass
class BenchmarkGateResult:
    """The result of a gate on one benchmark; ``delta`` is the candidate's mean minus the baseline's.

    ``status`` is PASS, BREACH, MISSING or INSUFFICIENT_EVIDENCE. ``max_drop_threshold`` is the allowed drop, including
    the relative limit; None if nothing was measured.
    """

    benchmark: str = ""
    tier: str = ""
    status: str = "PASS"
    metric: str = ""
    baseline_score: float | None = None
    candidate_score: float | None = None
    delta: float | None = None
    relative_drop_pct: float | None = None
    delta_ci_lower: float | None = None
    delta_ci_upper: float | None = None
    n_paired: int = 0
    max_drop_threshold: float | None = None
    max_relative_drop_threshold: float | None = None
    absolute_breached: bool = False
    relative_breached: bool = False
    direction: str = "higher_is_better"
    reasons: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = finite(asdict(self))
        return told


@dataclass
class GateReport:
    """The result of a gate; ``warnings`` names the benchmarks that only one side has, which are not gated."""

    report_version: int = _GATE_REPORT_VERSION
    verdict: str = "INCONCLUSIVE"
    verdict_reasons: list[str] = field(default_factory=list)
    benchmarks: list[BenchmarkGateResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "benchmarks": [one.to_dict() for one in self.benchmarks]}


def gate_runs(baseline_dir: str | Path, candidate_dir: str | Path, policy: GatePolicy | str | Path) -> GateReport:
    """Checks a candidate against the limits of a policy; baseline and candidate are as for ``nightjar gate``."""
    policy = policy if isinstance(policy, GatePolicy) else GatePolicy.read(Path(policy))
    found = gate(policy, baseline_dir, candidate_dir)
    return GateReport(
        verdict=found.decision,
        verdict_reasons=[found.reason],
        benchmarks=[_result(one, policy.rule(one.name)) for one in found.benchmarks],
        missing=[one.name for one in found.benchmarks if one.outcome == "MISSING"],
        warnings=[f"{name!r} is only on one side and is not gated" for name in found.not_gated],
    )


def write_regression(report: Mapping[str, Any], output_path: str | Path) -> Path:
    """Writes the report of ``compare_runs`` as JSON."""
    return write_text(output_path, as_json(report))


def write_gate_report(report: GateReport, output_path: str | Path) -> Path:
    return write_text(output_path, as_json(report.to_dict()))


def write_text(output_path: str | Path, text: str) -> Path:
    path = Path(output_path)
    write_page(path, text, makes_folder=True)
    return path


def _result(one: GatedBenchmark, rule: GateRule) -> BenchmarkGateResult:
    difference, sign = one.difference, 1 if one.direction == "lower_is_better" else -1
    worsening = sign * difference.mean if difference else 0.0
    percent = _percent(worsening, one.baseline_mean) if difference else None
    is_breach, limit, relative = one.outcome == "BREACH", rule.max_drop, rule.max_relative_drop
    return BenchmarkGateResult(
        benchmark=one.name,
        tier=one.tier,
        status=_STATUS.get(one.outcome, one.outcome),
        metric=one.metric,
        baseline_score=one.baseline_mean,
        candidate_score=one.candidate_mean,
        delta=difference.mean if difference else None,
        relative_drop_pct=percent,
        delta_ci_lower=difference.interval.low if difference else None,
        delta_ci_upper=difference.interval.high if difference else None,
        n_paired=one.pairs,
        max_drop_threshold=one.margin,
        max_relative_drop_threshold=relative,
        absolute_breached=is_breach and limit is not None and worsening > limit,
        relative_breached=is_breach and None not in (relative, percent) and (percent or 0) > 100 * (relative or 0),
        direction=one.direction,
        reasons=[one.reason] if one.reason else [],
    )

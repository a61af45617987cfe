"""``compare_runs``: is one evaluation worse than another? Nightjar's comparison, in the words of NeMo Evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nightjar.comparison import Comparison, Side
from nightjar.comparison import compare_runs as compare
from nightjar.errors import ConfigError
from nightjar.nemo.engine.artifacts import write_all
from nightjar.scratch import scratch_folder

Run: TypeAlias = str | Path | Mapping[str, Any]

_REPORT_VERSION = 1
_VERDICTS = {"PASS": "PASS", "REGRESSION": "BLOCK", "INCONCLUSIVE": "INCONCLUSIVE"}
_TESTS = ("auto", "mcnemar", "permutation")
_THRESHOLDS = (0.0, 0.5)


def compare_runs(
    baseline: Run,
    candidate: Run,
    reward_threshold: float = 0.0,
    alpha: float = 0.05,
    min_effect: float = 0.005,
    test: Literal["auto", "mcnemar", "permutation"] = "auto",
) -> dict[str, Any]:
    """Compares two evaluations over the problems that both have scored.

    Args:
        baseline, candidate: a bundle, its path, a pattern with ``*``, a folder, or whatever ``nightjar compare`` takes.
        reward_threshold: accepted: an answer is correct from 0.5 on, on both sides.
        alpha: the chance that the interval of the difference misses, over many.
        min_effect: by how much the mean may drop.
        test: which p-value is told beside the interval, which decides.

    Returns:
        ``verdict`` is ``PASS`` where the interval of the drop is within ``min_effect``, ``BLOCK`` where all of it is
        beyond, else ``INCONCLUSIVE``; ``verdict_reasons`` says why in words.

    Raises:
        ConfigError: there is nothing to compare, or an argument makes no sense.
        WarehouseError: a file is damaged.
    """
    if test not in _TESTS:
        raise ConfigError(f"Unknown test {test!r}. Choose one of: {', '.join(_TESTS)}")
    if reward_threshold not in _THRESHOLDS:
        raise ConfigError(f"reward_threshold: an answer is correct from 0.5 on (found {reward_threshold})")
    with _on_disk(baseline) as a, _on_disk(candidate) as b:
        found = compare(a, b, max_drop=min_effect, alpha=alpha)
    return _report(found, min_effect, test)


@contextmanager
def _on_disk(run: Run) -> Iterator[str | Path]:
    if not isinstance(run, Mapping):
        yield run
        return
    with scratch_folder() as folder:
        write_all(dict(run), folder)
        yield folder


def _report(found: Comparison, max_drop: float, test: str) -> dict[str, Any]:
    difference = found.difference
    uses_mcnemar = test != "permutation" and difference.p_mcnemar is not None
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
                "relative_pct": _percent(difference.mean, found.baseline.mean),
            }
        },
        "verdict": _VERDICTS[found.decision],
        "verdict_reasons": [found.reason],
        "threshold": max_drop,
        "test_used": "mcnemar" if uses_mcnemar else "permutation",
        "p_value": difference.p_mcnemar if uses_mcnemar else difference.p_worse,
        "flip_report": {
            "n_paired": found.pairs,
            "unpaired": {
                "baseline": found.only_baseline,
                "candidate": found.only_candidate,
                "unscored": found.unscored,
            },
            "contingency": {
                "both_correct": found.both_right,
                "baseline_only_correct": len(found.broken),
                "candidate_only_correct": len(found.fixed),
                "both_wrong": found.both_wrong,
            },
            "regressions": [_flip(asdict(flip)) for flip in found.broken],
            "improvements": [_flip(asdict(flip)) for flip in found.fixed],
        },
        "settings_that_differ": {name: list(values) for name, values in found.differs.items()},
    }


def _side(side: Side) -> dict[str, Any]:
    names = ("run_id", "model", "mean", "examples", "scored", "failed", "coverage")
    return {"benchmark": side.env_id, **{name: getattr(side, name) for name in names}}


def _flip(flip: dict[str, Any]) -> dict[str, Any]:
    rewards = {"baseline_reward": flip["baseline"], "candidate_reward": flip["candidate"]}
    return {"problem_idx": flip["example_id"], **rewards}


def _percent(delta: float, of: float | None) -> float | None:
    return 100 * delta / abs(of) if of else None

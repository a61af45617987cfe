"""Does what is said of a difference hold? Runs whose truth is known, thousands of them, and how often each method errs.

python tests/performance/simulation.py           # make simulation; some ten minutes on two cores
python tests/performance/simulation.py 200       # quicker: 200 of each kind in place of 2,000

An example has a difficulty; a rollout is right by chance of it, or has a reward near it. Two runs over the same 300
examples differ in nothing but luck, or by a planted drop of three points. Printed are

- false alarms where nothing has changed, of the interval (5 % promised), McNemar's test, the sign flips (5 %), and of
  REGRESSION with nothing that may drop (2.5 %); "so many ± so much" is what 2,000 pairs can tell;
- coverage of the interval where something has changed (95 %), and how often the drop is seen, beside the same two runs
  without pairing (Welch's test of the examples' means);
- coverage of the intervals of one run;
- years of nights of ten benchmarks, gated with one false alarm a year: nights that are stopped although nothing has
  changed, and how many nights a benchmark that has lost three points goes unseen.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from figures import shares
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from nightjar.analysis.measuring import Paired, decide, measure
from nightjar.statistics import clustered_mean, pass_at_k
from nightjar.statistics.exchange import holm
from nightjar.statistics.intervals import clopper_pearson, cluster_bootstrap, t_interval, wilson
from nightjar.statistics.windows import chance_of_so_much_damage, window_tests

PAIRS, EXAMPLES, ALPHA, DROP = 2_000, 300, 0.05, 0.03
PASSAGE = 5
"""So many examples ask about the same passage, where they are clustered."""
BENCHMARKS, QUIET, ACCEPTED, REMEMBERED = 10, 40, 28, 62
"""Of the nights: benchmarks, nights before a drop, accepted nights that one is compared with, nights looked at."""


@dataclass(frozen=True)
class Kind:
    name: str
    is_binary: bool = True
    rollouts: int = 1
    is_clustered: bool = False
    missing: float = 0.0


KINDS = [
    Kind("binary"),
    Kind("binary, 4 rollouts", rollouts=4),
    Kind("binary, 5 % missing", missing=0.05),
    Kind("binary, clustered", is_clustered=True),
    Kind("binary, 4 rollouts, clustered, 5 % missing", rollouts=4, is_clustered=True, missing=0.05),
    Kind("continuous", is_binary=False),
    Kind("continuous, 4 rollouts, 5 % missing", is_binary=False, rollouts=4, missing=0.05),
    Kind("continuous, clustered", is_binary=False, is_clustered=True),
]


def run(draw: np.random.Generator, kind: Kind, difficulty: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the rewards of a run, examples × rollouts; NaN for what failed. Passages have their luck together."""
    chance = np.repeat(difficulty[:, None], kind.rollouts, axis=1)
    if kind.is_clustered:
        luck = draw.normal(0, 0.15, size=len(difficulty) // PASSAGE)
        chance = chance + np.repeat(luck, PASSAGE)[:, None] * np.minimum(chance, 1 - chance)
    rewards = (draw.random(chance.shape) < chance) * 1.0 if kind.is_binary else draw.beta(4 * chance, 4 * (1 - chance))
    return np.where(draw.random(chance.shape) < kind.missing, np.nan, rewards)


def paired(kind: Kind, before: NDArray[np.float64], after: NDArray[np.float64]) -> Paired:
    scored = [np.count_nonzero(~np.isnan(one), axis=1) for one in (before, after)]
    with np.errstate(invalid="ignore"):
        means = [np.nansum(one, axis=1) / count for one, count in zip((before, after), scored, strict=True)]
    number = np.arange(len(before))
    passage = np.array([f"passage {n // PASSAGE}" if kind.is_clustered else "" for n in number], dtype=object)
    right = [mean >= 0.5 for mean in means]
    failed = [before.shape[1] - count for count in scored]
    return Paired(number, passage, passage, passage, *means, *right, *scored, *failed, passage, passage)


def difficulties(draw: np.random.Generator) -> NDArray[np.float64]:
    """Returns how likely each example is answered: many are easy or hard, as in real benchmarks."""
    return np.clip(draw.beta(0.9, 0.5, size=EXAMPLES), 0.04, 0.97)


def errors(kind: Kind, seed: int) -> tuple[bool, ...]:
    """Returns which claims about two runs are wrong where nothing has changed: interval, McNemar, signs, REGRESSION."""
    draw = np.random.default_rng(seed)
    hard = difficulties(draw)
    found = measure(paired(kind, run(draw, kind, hard), run(draw, kind, hard)), ALPHA)
    p_signs = 2 * min(found.p_worse, found.p_better)
    is_missed = not found.interval.low <= 0 <= found.interval.high
    is_mcnemar_wrong = found.p_mcnemar is not None and found.p_mcnemar < ALPHA
    return is_missed, is_mcnemar_wrong, p_signs < ALPHA, decide(found, 0.0) == "REGRESSION"


def findings(kind: Kind, seed: int) -> tuple[bool, ...]:
    """Returns, of two runs of which one is worse: whether the interval has the truth, and who sees the drop."""
    draw = np.random.default_rng(seed)
    hard = difficulties(draw)
    dropped = np.clip(hard - DROP, 0.01, 1)
    pair = paired(kind, run(draw, kind, hard), run(draw, kind, dropped))
    found, truth = measure(pair, ALPHA), float((dropped - hard).mean())
    unpaired = stats.ttest_ind(pair.value_b, pair.value_a, nan_policy="omit", equal_var=False)
    is_seen_unpaired = unpaired.pvalue < ALPHA and unpaired.statistic < 0
    return found.interval.low <= truth <= found.interval.high, found.interval.high < 0, is_seen_unpaired


def single_run(seed: int) -> tuple[bool, ...]:
    """Returns which intervals of a run of 100 examples have the truth, which is known over all such examples."""
    draw = np.random.default_rng(seed)
    hard = draw.beta(0.9, 0.5, size=100)
    once = (draw.random(100) < hard).sum()
    groups = (draw.random((100, 4)) < hard[:, None]).astype(float)
    right = groups.sum(axis=1).astype(int)
    at_2 = [[pass_at_k(4, int(count), 2)] for count in right]
    skewed = np.where(
        draw.random((100, 1)) < 0.8, 0.0, draw.exponential(size=(100, 2)) + draw.exponential(size=(100, 1))
    )
    truth = 0.9 / 1.4
    square = truth * 1.9 / 2.4
    intervals = [
        (wilson(once, 100), truth),
        (clopper_pearson(once, 100), truth),
        (t_interval(clustered_mean(groups.tolist()), 100), truth),
        (t_interval(clustered_mean(at_2), 100), 2 * truth - square),
        (t_interval(clustered_mean(skewed.tolist()), 100), 0.4),
        (cluster_bootstrap(skewed.tolist()), 0.4),
    ]
    return tuple(interval.low <= value <= interval.high for interval, value in intervals)


def percent(share: float, count: int) -> str:
    return f"{share:.1%} ± {2 * (max(share, 1 / count) * (1 - share) / count) ** 0.5:.1%}"


def pairs_table(count: int) -> Table:
    table = Table("300 examples", "interval ≤ 5 %", "McNemar ≤ 5 %", "signs ≤ 5 %", "REGRESSION ≤ 2.5 %",
                  "coverage ≥ 95 %", "drop of 0.03 seen", "unpaired")  # fmt: skip
    for kind in KINDS:
        wrong, right = shares(partial(errors, kind), count), shares(partial(findings, kind), count)
        cells = [percent(share, count) for share in (*wrong, *right)]
        is_single = kind.is_binary and kind.rollouts == 1 and not kind.is_clustered
        table.add_row(kind.name, cells[0], cells[1] if is_single else "–", *cells[2:])
    return table


def runs_table(count: int) -> Table:
    table = Table("one run of 100 examples", "coverage ≥ 95 %")
    names = ("Wilson", "Clopper and Pearson", "Student's t by example, 4 rollouts", "pass@2 of 4, Student's t",
             "skewed, 2 rollouts: Student's t", "skewed, 2 rollouts: cluster bootstrap")  # fmt: skip
    for name, share in zip(names, shares(single_run, count), strict=True):
        table.add_row(name, percent(share, count))
    return table


def nights(seed: int, *, examples: int, drop: float, margin: float, count: int) -> list[bool]:
    """Returns of each night of a suite whether the gate stops it; from night 40 on one benchmark has lost ``drop``.

    Args:
        seed: of the draws.
        examples: of each benchmark, one rollout each.
        drop: how much one of the ten has lost.
        margin: ``max_drop`` of the policy.
        count: how many nights; where something has dropped, at most, for it ends with the first that is stopped.
    """
    draw = np.random.default_rng(seed)
    chances = [np.clip(draw.beta(0.9, 0.5, size=examples), 0.04, 0.97) for _ in range(BENCHMARKS)]
    rows: list[list[NDArray[np.float64]]] = [[] for _ in chances]
    stopped: list[bool] = []
    for night in range(count):
        lost = [drop if night >= QUIET and number == 0 else 0.0 for number in range(BENCHMARKS)]
        for row, chance, less in zip(rows, chances, lost, strict=True):
            row.append((draw.random(examples) < chance - less).astype(float))
        p_values = [_p_value(row, stopped, margin) for row in rows]
        stopped.append(bool(min(holm(p_values)) <= 1 / 365))
        if drop and stopped[-1] and night >= QUIET:
            break
    return stopped


def _p_value(row: list[NDArray[np.float64]], stopped: list[bool], margin: float) -> float:
    """Returns the chance that the gate gives to a benchmark's last night, as it asks for that of a warehouse."""
    last = slice(-REMEMBERED, None)
    is_normal = [*(not one for one in stopped[last]), False][last]
    tests = window_tests(np.array(row[last]), is_normal, count=ACCEPTED, margin=margin)
    return chance_of_so_much_damage(tests, margin)


def nights_table(years: int) -> Table:
    table = Table("ten benchmarks", "max_drop", "false NO-GO a year ≤ 1", "nights until 0.03 is found", "90 %")
    with ProcessPoolExecutor() as pool:
        for examples, margin in ((300, 0.0), (300, 0.015), (1_000, 0.0), (1_000, 0.015)):
            settings = {"examples": examples, "margin": margin}
            quiet = list(pool.map(partial(nights, drop=0.0, count=365, **settings), range(years)))
            fallen = pool.map(partial(nights, drop=DROP, count=QUIET + 90, **settings), range(5 * years))
            waits = np.sort([len(night) - QUIET if night[-1] else 91 for night in fallen])
            found = [f"{wait}" if wait <= 90 else "more than 90" for wait in np.quantile(waits, [0.5, 0.9]).astype(int)]
            false = [sum(night) for night in quiet]
            error = 2 * float(np.std(false)) / years**0.5
            table.add_row(f"{examples:,} examples", f"{margin:g}", f"{np.mean(false):.2f} ± {error:.2f}", *found)
    return table


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    console = Console(width=170)
    console.print(f"{count:,} of each kind")
    console.print(pairs_table(count))
    console.print(runs_table(count))
    console.print(nights_table(count // 50))

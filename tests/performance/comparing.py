"""How long it takes to compare two runs of 100,000 rollouts in a warehouse of a million.

Run it::

    make bench-compare                              # two minutes, 1 GB
    make bench-compare ARGS="--keep outputs/bench"  # keeps what was built, and uses it again

Ten runs of one environment, one rollout an example, made up by ``warehouse_data.py``. Times are of calls in this
process: the first one, then the best and the median of five more. What is asked for is 1 s.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import seconds_of
from rich.console import Console
from rich.table import Table
from warehouse_data import MODELS, Nights, Shape

from nightjar.analysis import Terms, compare_all, compare_runs
from nightjar.warehouse import Warehouse

RUNS, WARM = 10, 5
SHAPE = Shape(1, 100_000, 1, system=0, question=45, solution=0, completion=24)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a folder for what is built")
    kept = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as temporary:
        measure(kept or Path(temporary))


def measure(folder: Path) -> None:
    nights, warehouse = Nights(SHAPE), Warehouse(folder / "warehouse")
    runs = [nights.run_id(number) for number in range(RUNS)]
    for number, run_id in enumerate(runs):
        if not (folder / "outputs" / run_id / "metadata.json").exists():
            warehouse.publish(nights.write_run(folder / "outputs", number).path, tidies=number == RUNS - 1)
    before, after = runs[0], runs[len(MODELS)]
    cases: dict[str, Callable[[], Any]] = {
        "compare_runs": lambda: compare_runs(before, after, warehouse=warehouse),
        "a metric, by cluster": lambda: compare_runs(
            before, after, warehouse=warehouse, metric="format", cluster="source"
        ),
        "with texts for a page": lambda: compare_all(before, after, Terms(), warehouse=warehouse, excerpts=20),
        "regressions of one model": lambda: warehouse.query(
            "SELECT count(*) FROM regressions WHERE model = ?", [MODELS[0]]
        ),
    }
    table = Table("case", "first", "best", "median", title=f"{RUNS} runs of {SHAPE.rollouts:,} rollouts")
    for case, run in cases.items():
        first, *others = [seconds_of(run) for _ in range(WARM + 1)]
        table.add_row(case, f"{first:.2f} s", f"{min(others):.2f} s", f"{statistics.median(others):.2f} s")
    Console().print(table)


if __name__ == "__main__":
    main()

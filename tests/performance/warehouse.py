"""What the warehouse takes, each figure beside plain DuckDB with the same data in the same run.

Run it::

    make bench-warehouse                                                  # all cases: half an hour, 10 GB
    make bench-warehouse ARGS="publish questions --rollouts 20000"        # two cases, little data
    .venv/bin/python tests/performance/warehouse.py --keep outputs/bench  # keeps what was built, and uses it again

The data is made up by ``warehouse_data.py``: rollouts of 3 KB, and for ten times as many of short texts. Plain DuckDB
is one file with ordinary tables and the views of the warehouse, asked the same SQL; where files are read, DuckDB's
``read_json`` into two tables. A question is asked in a new process: once cold (the operating system may have the file
in memory), then five times warm; times are ``cold / best / median``. Memory is the peak of a process that does nothing
but publish.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import duckdb
import httpx
import psutil
from figures import Row, print_table, seconds_of, view
from made_up_text import text
from warehouse_builds import Built, alone, build, plain_database, progress
from warehouse_data import MODELS, REALISTIC, SHORT, Nights, Shape, env_id_of

from nightjar.analysis import Terms, compare_all, compare_runs
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.folder import Folder

WARM = 5
ONE_BY_ONE = 20
_MEGABYTE = 1_000_000

_RESULTS = {
    "example_id": "BIGINT", "rollout_index": "INTEGER", "example_hash": "VARCHAR", "prompt": "JSON",
    "completion": "JSON", "answer": "VARCHAR", "info": "JSON", "reward": "DOUBLE", "advantage": "DOUBLE",
    "metrics": "MAP(VARCHAR, DOUBLE)", "error": "JSON",
    "timing": "STRUCT(generation_ms DOUBLE, scoring_ms DOUBLE, total_ms DOUBLE)", "is_completed": "BOOLEAN",
    "is_truncated": "BOOLEAN", "stop_condition": "VARCHAR",
    "token_usage": "STRUCT(input_tokens BIGINT, output_tokens BIGINT)", "attempts": "INTEGER", "model": "VARCHAR",
}  # fmt: skip
_ATTEMPTS = {
    "example_id": "BIGINT", "rollout_index": "INTEGER", "attempt": "INTEGER", "finished_at": "DOUBLE", "error": "JSON",
    "generation_ms": "DOUBLE", "token_usage": "STRUCT(input_tokens BIGINT, output_tokens BIGINT)", "state": "JSON",
}  # fmt: skip
"""The columns that plain DuckDB reads from a run's files, with their types."""


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        folder: where warehouses are built; what is there is used again.
        rollouts: of the realistic warehouse; the one of short texts has ten times as many.
        writers: processes that publish while a warehouse is built.
    """

    folder: Path
    rollouts: int
    writers: int

    def realistic(self) -> Built:
        return build(self.folder / f"realistic-{self.rollouts}", self.shape(REALISTIC), self.rollouts, self.writers)

    def short(self) -> Built:
        rollouts = 10 * self.rollouts
        return build(self.folder / f"short-{rollouts}", self.shape(SHORT), rollouts, self.writers)

    def shape(self, shape: Shape) -> Shape:
        """Returns a shape with fewer environments where there are few rollouts, so that there are still many nights."""
        total = self.rollouts * (10 if shape is SHORT else 1)
        environments = total // (shape.rollouts * len(MODELS) * 20)
        return replace(shape, environments=max(1, min(shape.environments, environments)))


@dataclass(frozen=True)
class Published:
    seconds: float
    peak_megabytes: float


@dataclass(frozen=True)
class Asked:
    """How long a question took, in milliseconds, and how many rows came back."""

    cold: float
    best: float
    median: float
    rows: int

    def __str__(self) -> str:
        return f"{self.cold:,.0f} / {self.best:,.0f} / {self.median:,.0f} ms"


@dataclass(frozen=True)
class Question:
    name: str
    sql: str
    parameters: tuple[object, ...]
    reach: str


def publish(plan: Plan) -> Iterator[Row]:
    """One large run directory into an empty warehouse, in a process that does nothing else."""
    rollouts = min(100_000, plan.rollouts)
    shape = replace(REALISTIC, environments=1, rollouts=rollouts)
    with tempfile.TemporaryDirectory(dir=plan.folder) as name:
        progress(f"writing a run of {rollouts:,} rollouts")
        folder = Path(name)
        run = Nights(shape).write_run(folder, 0)
        progress("publishing it")
        ours = _best(lambda attempt: alone(publish_alone, folder / f"warehouse-{attempt}", run.path))
        plain = _best(lambda attempt: alone(publish_plainly, folder / f"{attempt}.duckdb", run.path))
    yield Row(
        f"publish {rollouts:,} rollouts from a run directory",
        _speed(plain, rollouts),
        _speed(ours, rollouts),
        f"{ours.seconds / plain.seconds:.1f} ×",
        "≥ 15,000/s, ≤ 1 GB",
    )


def publish_alone(warehouse: Path, run_dir: Path) -> Published:
    return Published(seconds_of(lambda: Warehouse(warehouse).publish(run_dir)), _peak_megabytes())


def publish_plainly(database: Path, run_dir: Path) -> Published:
    """Reads the lines of a run directory into a new DuckDB file."""
    started = time.perf_counter()
    with closing(duckdb.connect(str(database))) as connection:
        connection.execute(f"CREATE TABLE results AS {_lines('results', run_dir)}")
        connection.execute(f"CREATE TABLE ledger AS {_lines('attempts', run_dir)}")
    return Published(time.perf_counter() - started, _peak_megabytes())


def _lines(name: str, run_dir: Path) -> str:
    columns = _RESULTS if name == "results" else _ATTEMPTS
    return f"SELECT '{run_dir.name}' AS run_id, * FROM read_ndjson('{run_dir}/{name}.jsonl', columns = {columns})"


def _best(publish_once: Callable[[int], Published]) -> Published:
    """Repeats a publish and returns the least of each figure: noise only adds."""
    tries = [publish_once(attempt) for attempt in range(3)]
    return Published(min(one.seconds for one in tries), min(one.peak_megabytes for one in tries))


def _peak_megabytes() -> float:
    """Returns the peak of this process; the operating system's ``ru_maxrss`` would count its parent's memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / _MEGABYTE


def _speed(took: Published, rollouts: int) -> str:
    return f"{rollouts / took.seconds:,.0f}/s, {took.peak_megabytes:,.0f} MB"


def size(plan: Plan) -> Iterator[Row]:
    """What the files take, and how fast many runs come in."""
    built = plan.realistic()
    jsonl = (
        f"results.jsonl {built.results_bytes / _MEGABYTE:,.0f} MB, ledger {built.attempts_bytes / _MEGABYTE:,.0f} MB"
    )
    plain = plain_database(built).stat().st_size
    catalog = Folder(built.warehouse).catalog()
    live = sum(segment.size for name, segment in catalog.segments.items() if name not in catalog.retired)
    what = f"{built.rollouts:,} rollouts in {built.runs:,} runs"
    yield Row(f"{what}: size ({jsonl})", f"{plain / _MEGABYTE:,.0f} MB", f"{live / _MEGABYTE:,.0f} MB",
              f"{live / plain:.2f} ×", f"≤ {700 * built.rollouts / _MEGABYTE:,.0f} MB")  # fmt: skip
    yield Row(f"{what}: publishing them, {plan.writers} processes", "", f"{built.rollouts / built.seconds:,.0f}/s",
              "", "")  # fmt: skip


def questions(plan: Plan) -> Iterator[Row]:
    """Aggregates, the texts of a run, and a search in all texts."""
    built, nights = plan.realistic(), Nights(plan.shape(REALISTIC))
    run_id = nights.run_id(built.runs // 2)
    asked = [
        *aggregates("≤ 100 ms warm"),
        Question(
            f"all {nights.shape.rollouts} rollouts of one run, with prompt and completion",
            "SELECT example_id, rollout_index, reward, prompt, completion FROM rollouts WHERE run_id = ? ORDER BY ALL",
            (run_id,),
            "≤ 50 ms",
        ),
        Question(
            "search in all completions",
            "SELECT count(*) FROM rollouts WHERE contains(completion, ?)",
            (text().rare_word,),
            "≤ 1,000 ms",
        ),
    ]
    yield from _compared(built, plain_database(built), asked)


def aggregates(reach: str) -> list[Question]:
    env_id, model = env_id_of(0), MODELS[2]
    return [
        Question("leaderboard", "FROM leaderboard", (), reach),
        Question("history of an environment", "FROM history WHERE env_id = ?", (env_id,), reach),
        Question("pass@k of an environment", "FROM pass_at_k WHERE env_id = ?", (env_id,), reach),
        Question(
            "regressions of the last two runs",
            "FROM regressions WHERE env_id = ? AND model = ?",
            (env_id, model),
            reach,
        ),
    ]


def _compared(built: Built, plain: Path, asked: Sequence[Question]) -> Iterator[Row]:
    for question in asked:
        progress(f"asking: {question.name}")
        ours = alone(ask, built.warehouse, question)
        theirs = alone(ask_plainly, plain, question)
        if ours.rows != theirs.rows or not ours.rows:
            raise SystemExit(f"{question.name}: {ours.rows} rows, but {theirs.rows} from plain DuckDB.")
        yield Row(f"{built.rollouts:,} rollouts: {question.name}", str(theirs), str(ours),
                  f"{ours.median / theirs.median:.1f} ×", question.reach)  # fmt: skip


def ask(warehouse: Path, question: Question) -> Asked:
    asked = Warehouse(warehouse)
    return _timed(lambda: asked.query(question.sql, question.parameters).rows)


def ask_plainly(database: Path, question: Question) -> Asked:
    """Asks a DuckDB file, which stays open."""
    connection: list[duckdb.DuckDBPyConnection] = []

    def rows() -> Sized:
        if not connection:
            connection.append(duckdb.connect(str(database), read_only=True))
        return connection[0].execute(question.sql, question.parameters).fetchall()

    return _timed(rows)


def _timed(ask: Callable[[], Sized]) -> Asked:
    rows: list[int] = []
    cold, *warm = (1000 * seconds_of(lambda: rows.append(len(ask()))) for _ in range(1 + WARM))
    return Asked(cold, min(warm), statistics.median(warm), rows[-1])


def growth(plan: Plan) -> Iterator[Row]:
    """One more run, from the call of publish until a query counts it: into much, and into nothing."""
    built, nights = plan.realistic(), Nights(plan.shape(REALISTIC))
    plain = plain_database(built)
    with tempfile.TemporaryDirectory(dir=built.folder) as name:
        folder = Path(name)
        runs = [nights.write_run(folder, built.runs + number).path for number in range(ONE_BY_ONE)]
        shutil.copytree(built.warehouse, folder / "large", copy_function=os.link)  # files of a warehouse never change
        progress("publishing one run more, several times")
        large, empty = (alone(publish_until_counted, folder / name, runs) for name in ("large", "empty"))
        theirs = alone(insert_until_counted, plain, runs)
    case = f"one more run of {nights.shape.rollouts} until it counts"
    yield Row(f"{case}, in {built.rollouts:,} rollouts", _median_and_most(theirs), _median_and_most(large),
              f"{statistics.median(large) / statistics.median(theirs):.1f} ×", "≤ 0.5 s")  # fmt: skip
    yield Row(f"{case}, in an empty warehouse", "", _median_and_most(empty),
              f"{statistics.median(large) / statistics.median(empty):.1f} × when large", "not growing")  # fmt: skip


def publish_until_counted(folder: Path, run_dirs: Sequence[Path]) -> list[float]:
    """Returns how long each run took until all its rollouts are found, in seconds."""
    warehouse, seconds = Warehouse(folder), []
    for run_dir in run_dirs:
        started = time.perf_counter()
        rollouts = warehouse.publish(run_dir).rollouts
        while warehouse.query("SELECT count(*) FROM rollouts WHERE run_id = ?", [run_dir.name]).rows != [(rollouts,)]:
            pass
        seconds.append(time.perf_counter() - started)
    return seconds


def insert_until_counted(database: Path, run_dirs: Sequence[Path]) -> list[float]:
    """Returns how long each run took to be read into tables that are beside much data, in seconds."""
    seconds = []
    for run_dir in run_dirs:
        started = time.perf_counter()
        with closing(duckdb.connect(str(database))) as connection:
            for name, table in (("results", "more_results"), ("attempts", "more_attempts")):
                lines = _lines(name, run_dir)
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table} AS {lines} LIMIT 0; INSERT INTO {table} {lines}"
                )
            connection.execute("SELECT count(*) FROM more_results WHERE run_id = ?", [run_dir.name]).fetchall()
        seconds.append(time.perf_counter() - started)
    with closing(duckdb.connect(str(database))) as connection:
        connection.execute("DROP TABLE more_results; DROP TABLE more_attempts")
    return seconds


def _median_and_most(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s"


def shell(plan: Plan) -> Iterator[Row]:
    """A question typed into a shell, from the start of its process to its end."""
    built = plan.realistic()
    question = "FROM leaderboard"
    ask = f"import duckdb; print(duckdb.connect({str(plain_database(built))!r}, read_only=True).sql({question!r}))"
    commands = [
        [sys.executable, "-c", ask],
        [sys.executable, "-P", "-m", "nightjar", "sql", "--warehouse", str(built.warehouse), question],
    ]
    pairs = [[seconds_of(partial(subprocess.run, one, check=True, capture_output=True)) for one in commands]
             for _ in range(2 * WARM)]  # fmt: skip
    raw, locked = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    yield Row("a question from the shell", f"{raw:.2f} s", f"{locked:.2f} s", f"{locked / raw:.1f} ×", "≤ 0.4 s")


def short(plan: Plan) -> Iterator[Row]:
    """The aggregates of ten times as many rollouts."""
    built = plan.short()
    yield Row(f"{built.rollouts:,} rollouts in {built.runs:,} runs: publishing them, {plan.writers} processes", "",
              f"{built.rollouts / built.seconds:,.0f}/s", "", "")  # fmt: skip
    yield from _compared(built, plain_database(built, has_texts=False), aggregates("≤ 1,500 ms"))


def compare(plan: Plan) -> Iterator[Row]:
    """Comparisons of two runs of a tenth of the rollouts each, in this process."""
    nights = Nights(replace(SHORT, environments=1, rollouts=plan.rollouts // 10))
    warehouse = Warehouse(plan.folder / "ten-runs")
    runs = [nights.run_id(number) for number in range(10)]
    for number, run_id in enumerate(runs):
        if not (plan.folder / "outputs" / run_id / "metadata.json").exists():
            warehouse.publish(nights.write_run(plan.folder / "outputs", number).path, tidies=number == 9)
    before, after = runs[0], runs[len(MODELS)]
    cases: dict[str, Callable[[], object]] = {
        "compare_runs": lambda: compare_runs(before, after, warehouse=warehouse),
        "a metric, by cluster": lambda: compare_runs(
            before, after, warehouse=warehouse, metric="format", cluster="source"
        ),
        "with texts for a page": lambda: compare_all(before, after, Terms(), warehouse=warehouse, excerpts=20),
    }
    for case, run in cases.items():
        asked = _timed(lambda run=run: [run()])  # type: ignore[misc]
        yield Row(f"two runs of {nights.shape.rollouts:,} rollouts: {case}", "", str(asked), "", "≤ 1,000 ms")


def pages(plan: Plan) -> Iterator[Row]:
    """Pages of the view, and the memory of its server and of the processes that answer its queries."""
    with view(plan.realistic().warehouse) as (pid, address), httpx.Client(base_url=address, timeout=60) as client:
        run, other, *_ = sorted(set(re.findall(r'/runs/([0-9a-f]{12})"', client.get("/?env=algebra-00").text)))
        asked = (
            "/", "/?env=algebra-00&sort=reward", "/?q=logic", f"/runs/{run}", f"/runs/{run}/samples",
            *(f"/runs/{run}/samples?{choice}" for choice in ("show=wrong&sort=spread", "where=output_tokens>200")),
            *(f"/runs/{run}/samples?{choice}" for choice in (f"against={other}", "q=therefore")), f"/runs/{run}/3/0",
            f"/runs/{run}/3/0?beside={other}", f"/compare?run={run}&run={other}", "/history?env=algebra-00", "/nights",
            "/notes", "/search?q=xyzzy",
        )  # fmt: skip
        for path in asked:
            took = _timed(lambda path=path: client.get(path).raise_for_status().content)  # type: ignore[misc]
            yield Row(f"page {path}", "", str(took), "", "")
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        server, *queries = (process.memory_full_info().pss / _MEGABYTE for process in processes)
        yield Row("memory after them", "", f"server {server:,.0f} MB, queries {sum(queries):,.0f} MB", "", "")


CASES: dict[str, Callable[[Plan], Iterator[Row]]] = {
    "publish": publish, "size": size, "questions": questions, "growth": growth, "short": short, "shell": shell,
    "compare": compare, "pages": pages,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="What the warehouse takes, beside plain DuckDB.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all without")
    parser.add_argument("--rollouts", type=int, default=1_000_000, help="of the warehouse (default: %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is built there, and use it again")
    parser.add_argument(
        "--writers", type=int, default=os.cpu_count() or 1, help="processes that publish while building"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.cases) - set(CASES):
        parser.error(f"unknown case {', '.join(map(repr, unknown))}: choose from {', '.join(CASES)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(folder, arguments.rollouts, arguments.writers)
        wanted = arguments.cases or list(CASES)
        print_table("plain DuckDB", (row for name in wanted for row in CASES[name](plan)))


if __name__ == "__main__":
    main()

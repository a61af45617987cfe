"""Queries that would take all of a machine are stopped within their limits, and the next one is answered."""

import os
import subprocess
import sys

import pytest

from nightjar.warehouse import Warehouse

MOST_BYTES = 5_000_000_000
"""What a query may take in all: DuckDB's share, the answer, and what the process has anyway."""

ASK = """
import resource
import sys
from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
warehouse = Warehouse(sys.argv[1])
ask = getattr(warehouse, sys.argv[2])
try:
    ask(sys.argv[3], timeout_seconds=8)
except WarehouseError as error:
    print(error)
assert warehouse.query("SELECT count(*) FROM runs", timeout_seconds=8).rows == [(1,)]
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]  # ru_maxrss has the parent's, too
print(1024 * int(peak.split()[1]))
print(resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY)
"""

QUERIES = {
    "a huge list": "SELECT list(i) FROM range(10_000_000_000) t(i)",
    "a huge value": "SELECT range(1_000_000_000)",
    "a value that is large in Python": "SELECT range(300_000_000)",
    "a huge text": "SELECT repeat('x', 4_000_000_000)",
    "many large texts": "SELECT repeat('x', 1_000_000) FROM range(100_000)",
    "many large lists": "SELECT range(1_000_000) FROM range(10_000)",
    "a huge answer": "FROM range(1_000_000_000_000)",
    "a sorted cross join": "SELECT a.i FROM range(100_000) a(i), range(100_000) b(i) ORDER BY hash(a.i + b.i)",
    "a group for every row": "SELECT i, count(*) FROM range(10_000_000_000) t(i) GROUP BY i",
    "a recursion that grows": "WITH RECURSIVE r(t) AS (SELECT 'x' UNION ALL SELECT t || t FROM r) SELECT max(t) FROM r",
    "a text from many": "SELECT string_agg(repeat('x', 1_000_000), '') FROM range(1_000_000)",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_writer):
    folder = tmp_path_factory.mktemp("queries")
    Warehouse(folder / "warehouse").publish(run_writer.write(folder / "run"))
    return folder / "warehouse"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone")
@pytest.mark.parametrize("method", ["query", "query_arrow"])
@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES.keys())
def test_no_query_takes_the_machine(folder, method, sql):
    done = subprocess.run(
        [sys.executable, "-c", ASK, folder, method, sql],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *refusal, taken, is_unbounded_again = done.stdout.splitlines()
    print(refusal, f"{int(taken) / 1e9:.1f} GB")
    [message] = refusal
    assert message.startswith(("The query ", "The answer is larger than 2 GB."))
    assert int(taken) < MOST_BYTES
    assert is_unbounded_again == "True"

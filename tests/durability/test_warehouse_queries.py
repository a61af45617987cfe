"""Queries that would take all of a machine are stopped within their limits, and the next one is answered."""

import sys
from subprocess import PIPE

import pytest
from drawing import drawn

from nightjar.warehouse import Warehouse

ANSWER = """
import sys
from nightjar.warehouse import answering
from nightjar.warehouse.reading import querying
def shrunk(limit):
    return f"{1000 * int(limit.removesuffix('GB')) // share}MB"

share = int(sys.argv[1])
querying.MEMORY_LIMIT, querying.SPILL_LIMIT = shrunk(querying.MEMORY_LIMIT), shrunk(querying.SPILL_LIMIT)
querying.LARGEST_ANSWER_BYTES //= share
answering.LARGEST_PROCESS_BYTES //= share
answering.main(sys.argv[2])
"""

ASK = """
import resource
import sys
from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading import process
location, method, sql, share, seconds, answer = sys.argv[1:]
process.COMMAND[1:] = ["-P", "-c", answer, share]
warehouse = Warehouse(location)
try:
    getattr(warehouse, method)(sql, timeout_seconds=float(seconds))
except WarehouseError as error:
    print(error)
assert warehouse.query("SELECT count(*) FROM runs", timeout_seconds=8).rows == [(1,)]
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]  # ru_maxrss has the parent's, too
print(1024 * int(peak.split()[1]))
process._processes.end()
print(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""

WITH_THE_REAL_LIMITS = {
    "a huge value": "SELECT range(1_000_000_000)",
    "a value that is large in Python": "SELECT range(300_000_000)",
    "a huge text": "SELECT repeat('x', 4_000_000_000)",
    "many large texts": "SELECT repeat('x', 1_000_000) FROM range(100_000)",
}
"""What is refused soon."""

WITH_AN_EIGHTH = {
    "a huge list": "SELECT list(i) FROM range(10_000_000_000) t(i)",
    "many rather large texts": "SELECT repeat('x', 125_000) FROM range(100_000)",
    "many large lists": "SELECT range(125_000) FROM range(10_000)",
    "a huge answer": "FROM range(1_000_000_000_000)",
    "a sorted cross join": "SELECT a.i FROM range(100_000) a(i), range(100_000) b(i) ORDER BY hash(a.i + b.i)",
    "a group for every row": "SELECT i, count(*) FROM range(10_000_000_000) t(i) GROUP BY i",
    "a recursion that grows": "WITH RECURSIVE r(t) AS (SELECT 'x' UNION ALL SELECT t || t FROM r) SELECT max(t) FROM r",
    "a text from many": "SELECT string_agg(repeat('x', 125_000), '') FROM range(1_000_000)",
}
"""What takes as long as its limits are large: the same, in less time."""

ANYWAY_BYTES = 300_000_000
"""What the process that answers takes beyond DuckDB's share and the answer."""

OWN_BYTES = 500_000_000
"""What the one that asks may take, whatever is asked."""

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone"), pytest.mark.long]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_writer):
    folder = tmp_path_factory.mktemp("queries")
    Warehouse(folder / "warehouse").publish(run_writer.write(folder / "run"))
    return folder / "warehouse"


@pytest.fixture
def ask(fork, folder):
    """Asks in a program of its own, within a share of the limits; what answers stays below that share of 4 GB."""

    def ask(method, sql, *, share=1, seconds=8):
        with fork.python(ASK, folder, method, sql, share, seconds, ANSWER, stdout=PIPE, stderr=PIPE) as process:
            printed, errors = process.communicate(timeout=180)
        assert (process.returncode, errors) == (0, "")
        *refusal, own, taken = printed.splitlines()
        print(refusal, f"{int(own) / 1e9:.2f} GB", f"{int(taken) / 1e9:.2f} GB")
        [message] = refusal
        assert message.startswith(("The query ", f"The answer is larger than {2 / share:g} GB."))
        assert int(taken) < 4_000_000_000 / share + ANYWAY_BYTES
        assert int(own) < OWN_BYTES

    return ask


MATRIX = [(method, what) for what in WITH_THE_REAL_LIMITS | WITH_AN_EIGHTH for method in ("query", "query_arrow")]


@pytest.mark.parametrize(("method", "what"), drawn(MATRIX, 6))
def test_no_query_takes_the_machine_or_an_eighth_of_that(ask, method, what):
    if what in WITH_THE_REAL_LIMITS:
        ask(method, WITH_THE_REAL_LIMITS[what])
    else:
        ask(method, WITH_AN_EIGHTH[what], share=8, seconds=2)

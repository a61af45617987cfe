"""The query process: it is killed when the time is up, and ends with the program."""

import json
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from subprocess import PIPE
from types import SimpleNamespace

import psutil
import pytest
from drawing import drawn
from waiting import is_alive, until

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading import process

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"), pytest.mark.long]


def doubling(levels):
    parts = ", ".join(f"t{n} AS (SELECT a.i FROM t{n - 1} a, t{n - 1} b)" for n in range(1, levels))
    return f"WITH t0 AS (SELECT 1 AS i UNION ALL SELECT 2), {parts} SELECT count(*) FROM t{levels - 1}"


ENDLESS = {
    "long numbers": lambda n: f"SELECT repeat('7', {2_000_000 * n})::BIGNUM * repeat('9', 9_000_000)::BIGNUM",
    "many columns by name": lambda n: " UNION BY NAME ".join(f"SELECT {i} AS c{i}" for i in range(1_800 + 200 * n)),
    "tables that double": lambda n: doubling(18 + 4 * n),
    "the distance of texts": lambda n: f"SELECT levenshtein(repeat('ab', {300_000 * n}), repeat('ba', 300_000))",
    "distance": lambda n: f"SELECT damerau_levenshtein(repeat('ab', {9_000 + n}), repeat('ba', 9_000)) FROM range(999)",
    "similarity": lambda n: f"SELECT jaro_winkler_similarity(repeat('ab', {600_000 * n}), repeat('ba', 900_000))",
    "brackets": lambda n: f"SELECT {'(' * (90_000 * n)}1{')' * (90_000 * n)}",
    "lists in lists": lambda n: f"SELECT {'[' * (90_000 * n)}1{']' * (90_000 * n)}",
    "an order": lambda n: f"SELECT i FROM range({n}00_000_000_000) t(i) ORDER BY hash(i) LIMIT 1",
    "conditions": lambda n: "SELECT 1 WHERE " + " OR ".join(f"{i} = random()" for i in range(9_000 * n)),
    "joins": lambda n: f"SELECT count(*) FROM {', '.join(f'range(2) t{i}' for i in range(40 + n))}",
    "a cross join": lambda n: f"SELECT sum(a.i * b.i) FROM range({n}_000_000) a(i), range(10_000_000) b(i)",
    "a join": lambda n: f"SELECT 1 FROM range({n}_000_000) a(i) JOIN range(1_000_000) b(i) ON a.i * b.i % 7 = random()",
    "a recursion": lambda n: f"WITH RECURSIVE r(i) AS (SELECT {n} UNION ALL SELECT i + 1 FROM r) SELECT max(i) FROM r",
    "a long range": lambda n: f"SELECT max(hash(i)) FROM range({n}00_000_000_000) t(i)",
    "lists": lambda n: f"SELECT list_sum([list_sum(range(1_000_000 + x)) FOR x IN range({n}_000_000)])",
    "regexp": lambda n: f"SELECT count(regexp_matches(repeat('a', 999) || i, '(a*)*b')) FROM range({n}00_000_000) t(i)",
    "sleep": lambda n: f"SELECT sleep_ms({100_000 * n})",
    "different texts": lambda n: f"SELECT count(DISTINCT md5(i::VARCHAR)) FROM range({n}00_000_000_000) t(i)",
    "window": lambda n: f"SELECT mode(i) OVER (ORDER BY i ROWS 100_000 PRECEDING) FROM range({n}_000_000) t(i) LIMIT 1",
}
"""Statements that keep a part of DuckDB busy for long: its parser, its planner, one call of a function, an operator."""

SECONDS = 0.5

ASK = f"""
import json, sys, time
from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse
house = Warehouse(sys.argv[1])
for sql in json.load(sys.stdin):
    house.query("SELECT 1")  # has a process started
    start = time.monotonic()
    try:
        said = house.query(sql, timeout_seconds={SECONDS}).rows
    except WarehouseError as error:
        said = str(error)
    print(json.dumps([time.monotonic() - start, said]))
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(1024 * int(peak.split()[1]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_run):
    folder = tmp_path_factory.mktemp("asked")
    Warehouse(folder / "house").publish(write_run(folder, "one"))
    return folder / "house"


@pytest.fixture
def scratch(tmp_path):
    """The folder for temporary files of the programs that a test starts."""
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def start(folder, scratch, fork):
    """Starts programs and commands in processes of their own; what still runs is killed after the test."""
    environment = os.environ | {"TMPDIR": str(scratch), "NIGHTJAR_WAREHOUSE": str(folder)}
    options = {"env": environment, "stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    with ExitStack() as started:
        yield SimpleNamespace(
            python=lambda *words: started.enter_context(fork.python(*words, **options)),
            nightjar=lambda *words: started.enter_context(fork.nightjar(*words, **options)),
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", drawn(ENDLESS, 4))
def test_an_endless_statement_is_stopped_when_its_time_is_over(start, folder, scratch, name):
    statements = [ENDLESS[name](n) for n in (1, 5)]
    printed, errors = start.python(ASK, str(folder)).communicate(json.dumps(statements), timeout=300)
    assert errors == ""
    *answers, peak = map(json.loads, printed.splitlines())
    assert [said for _, said in answers] == [f"The query was stopped after {SECONDS} s. Narrow it, or split it."] * 2
    assert max(seconds for seconds, _ in answers) < 20 * SECONDS
    assert peak < 500_000_000
    assert list(scratch.iterdir()) == []


def asking(start, sql, seconds):
    """Starts a program that asks; returns it and the process that answers, when that is at work."""
    program = start.nightjar("sql", sql, "--timeout", str(seconds))
    [worker] = until(lambda: psutil.Process(program.pid).children())
    until(lambda: worker.cpu_times().user >= 0.8)
    return program, worker.pid


@pytest.mark.parametrize("name", ["the distance of texts", "many columns by name"])
def test_ctrl_c_ends_a_query_at_once(start, scratch, name):
    program, worker = asking(start, ENDLESS[name](5), 600)
    program.send_signal(signal.SIGINT)
    program.wait(60)
    assert not is_alive(worker)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("name", "seconds"), [("the distance of texts", 600), ("many columns by name", 20)])
def test_a_program_that_is_killed_leaves_no_process_and_the_next_query_removes_its_files(start, scratch, name, seconds):
    """Where DuckDB lets no Python code run, the process ends when the time of its query is over."""
    bystander = scratch / "bystander"
    bystander.mkdir()
    program, worker = asking(start, ENDLESS[name](5), seconds)
    program.kill()
    program.wait(60)
    until(lambda: not is_alive(worker))
    for left in set(scratch.iterdir()) - {bystander}:
        os.utime(left, (0, 0))
    assert start.nightjar("sql", "FROM runs").wait(60) == 0
    assert list(scratch.iterdir()) == [bystander]


def test_after_a_process_was_killed_from_outside_the_next_query_is_answered(folder):
    house = Warehouse(folder)
    house.query("SELECT 1")
    running = process._processes._idle[-1]._process
    threading.Thread(target=lambda: until(lambda: process._processes._busy) and running.kill()).start()
    with pytest.raises(WarehouseError, match="ended with status -9, probably because the machine ran out of memory"):
        house.query("SELECT sleep_ms(20_000)")
    assert house.query("SELECT 1").rows == [(1,)]


def test_threads_are_answered_at_once(folder):
    house = Warehouse(folder)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(house.query, "SELECT sleep_ms(100), $n", {"n": number}) for number in range(8)]
        assert [one.result(30).rows[0][1] for one in asked] == list(range(8))


def test_the_time_limit_of_a_query_does_not_count_its_wait_for_others(folder):
    house, others = Warehouse(folder), process.MOST_AT_ONCE
    with ThreadPoolExecutor(others) as pool:
        asked = [pool.submit(house.query, "SELECT sleep_ms(4_000)") for _ in range(others)]
        until(lambda: len(process._processes._busy) == others)
        assert house.query("SELECT 7", timeout_seconds=3).rows == [(7,)]
        assert len([one.result(30) for one in asked]) == others


def test_the_next_query_of_a_busy_thread_does_not_overtake_a_waiting_thread():
    places, order = process._Places(1), []

    def take(name):
        with places.taken(10):
            order.append(name)

    with ThreadPoolExecutor(1) as pool:
        with places.taken(10):
            waiting = pool.submit(take, "waiting")
            until(lambda: places._waiting)
        take("busy")
        waiting.result(10)
    assert order == ["waiting", "busy"]


def test_a_copy_of_a_program_has_its_own_process(start, folder, scratch):
    forked = """
import os, sys
from nightjar.warehouse import Warehouse
house = Warehouse(sys.argv[1])
house.query("SELECT 1")
pid = os.fork()
if pid == 0:
    os._exit(house.query("SELECT 7").rows[0][0])
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(os.listdir(os.environ["TMPDIR"])))
print(house.query("SELECT 8").rows)
"""
    printed, errors = start.python(forked, str(folder)).communicate(timeout=60)
    assert (printed, errors) == ("7 2\n[(8,)]\n", "")  # a scratch folder each: the one of the copy was killed with it


def test_a_location_is_relative_to_where_the_program_was_when_it_was_named(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    house = Warehouse(folder.name)
    monkeypatch.chdir(tmp_path)
    assert house.query("SELECT count(*) FROM runs").rows == [(1,)]
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert Warehouse(folder).query("SELECT count(*) FROM runs").rows == [(1,)]


def test_a_value_that_cannot_be_pickled_and_a_statement_that_is_too_long_are_refused(folder):
    with pytest.raises(WarehouseError, match="a value cannot be passed to the query process") as raised:
        Warehouse(folder).query("SELECT ?", [threading.Lock()])
    assert isinstance(raised.value.__cause__, TypeError | pickle.PicklingError)
    house = Warehouse(folder)
    assert house.query(f"SELECT length('{'x' * 900_000}')").rows == [(900_000,)]
    with pytest.raises(WarehouseError, match=r"has 1,000,017 characters, expected at most 1,000,000\. Pass long texts"):
        house.query(f"SELECT length('{'x' * 1_000_000}')")
    assert house.query("SELECT length(?)", ["x" * 2_000_000]).rows == [(2_000_000,)]

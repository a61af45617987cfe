"""A query in another thread: its answer, its errors, and how its time and Ctrl-C stop it."""

import os
import signal
import threading
import time

import duckdb
import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse.reading import querying
from nightjar.warehouse.reading.process import TimeLimit
from nightjar.warehouse.reading.querying import run_stoppable

ENDLESS = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(10000000) b"


def test_returns_the_answer_or_raises_the_error():
    with duckdb.connect() as connection:
        assert run_stoppable(lambda: 42, connection, TimeLimit()) == 42
        with pytest.raises(ZeroDivisionError):
            run_stoppable(lambda: 1 / 0, connection, TimeLimit())


def test_ctrl_c_stops_a_query_but_not_the_connection():
    with duckdb.connect() as connection:
        for _ in range(2):
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
            with pytest.raises(KeyboardInterrupt):
                run_stoppable(lambda: connection.execute(ENDLESS), connection, TimeLimit())
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_a_query_that_fails_while_its_rows_are_read_stops_working(monkeypatch):
    """DuckDB's other thread is at work on the next 2048 rows then."""
    monkeypatch.setattr(querying, "LARGEST_ANSWER_BYTES", 50_000)
    with duckdb.connect(config={"threads": 2}) as connection:
        with pytest.raises(WarehouseError, match="The answer is larger than"):
            querying.run_query(connection, "SELECT repeat('x', 100_000) FROM range(100_000)", None)
        before = time.process_time()
        time.sleep(0.2)
        assert time.process_time() - before < 0.05

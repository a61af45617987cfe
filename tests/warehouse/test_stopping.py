"""A query in another thread: its answer, its errors, and how Ctrl-C stops it."""

import os
import signal
import threading
import time

import duckdb
import pytest

from nightjar.warehouse.reading.running import TimeLimit, run_stoppable

ENDLESS = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(10000000) b"


def test_the_answer_and_the_error_of_the_work_are_those_of_the_call():
    with duckdb.connect() as connection:
        assert run_stoppable(lambda: 42, connection, TimeLimit()) == 42
        with pytest.raises(ZeroDivisionError):
            run_stoppable(lambda: 1 / 0, connection, TimeLimit())


def test_ctrl_c_stops_a_query_and_the_connection_goes_on():
    with duckdb.connect() as connection:
        for _ in range(5):
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                run_stoppable(lambda: connection.execute(ENDLESS), connection, TimeLimit())
            assert time.monotonic() - start < 10
        assert connection.execute("SELECT 1").fetchall() == [(1,)]

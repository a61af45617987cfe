"""Prefect's server goes away while a command runs, for a while or for good: the run goes on, and the command ends.

The command talks to the server through a gate, which a test closes.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from local_services import NIGHTJAR, Services

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

ROLLOUTS = 60


class Gate:
    """Passes on connections to a port while it is open; closed, it refuses them as a port does where nobody listens."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._passing: list[socket.socket] = []
        self.port = 0
        self.open()

    def open(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for each in (self._listening, *self._passing):
            each.close()
        self._passing.clear()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here, _ = listening.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                self._passing += (here, there)
                for source, sink in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), closing(source), closing(sink):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def gate(services: Services) -> Iterator[Gate]:
    gate = Gate(services.port)
    yield gate
    with suppress(OSError):
        gate.close()


def start(services: Services, gate: Gate, server: ModelServer, folder: Path) -> subprocess.Popen[str]:
    """Starts a command, and returns when its first rollouts are scored."""
    environment = services.environment | {"PREFECT_API_URL": f"http://127.0.0.1:{gate.port}/api"}
    size = ("-n", str(ROLLOUTS), "-r", "1", "-c", "2", "--max-shards", "4", "--json")
    command = [*NIGHTJAR, "eval", "run", "arithmetic", "-m", "away", "-b", server.url, *size]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while server.stats().answered < 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


def finish(process: subprocess.Popen[str], server: ModelServer) -> tuple[dict[str, Any], str, float]:
    """Returns the outcome, what was said on stderr, and how many seconds after the last request the command ended."""
    while server.stats().answered < ROLLOUTS:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    since = time.monotonic()
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return json.loads(out), errors, time.monotonic() - since


def test_for_good(services: Services, gate: Gate, tmp_path: Path) -> None:
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=150)) as server:
        process = start(services, gate, server, tmp_path)
        gate.close()
        outcome, errors, seconds = finish(process, server)
    assert (outcome["status"], outcome["scored"]) == ("completed", ROLLOUTS)
    assert seconds < 15
    assert errors.count("WARNING") == 1
    assert "WARNING Prefect's server does not answer: the run continues without it" in errors
    assert "Traceback" not in errors


def test_for_a_while(services: Services, gate: Gate, tmp_path: Path) -> None:
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=300)) as server:
        process = start(services, gate, server, tmp_path)
        gate.close()
        time.sleep(3)
        gate.open()
        outcome, errors, _ = finish(process, server)
    assert (outcome["status"], outcome["scored"]) == ("completed", ROLLOUTS)
    assert "Traceback" not in errors
    assert services.call("GET", f"/flow_runs/{outcome['flow_run_id']}")["state_type"] == "COMPLETED"

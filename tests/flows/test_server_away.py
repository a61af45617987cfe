"""Prefect's server goes away or hangs while a command runs: the run continues, and the command ends.

The command talks to the server through a gate, which a test closes or blocks.
"""

import json
import socket
import threading
import time
from contextlib import closing, suppress

import pytest
from local_services import wait_for_answers

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer

pytestmark = pytest.mark.long

ROLLOUTS = 60


class Gate:
    """Forwards connections to a port while it is open; refuses them while it is closed.

    While it is blocked, it accepts connections and forwards nothing, like a server that hangs.
    """

    def __init__(self, target):
        self._target = target
        self._is_flowing = threading.Event()
        self._is_flowing.set()
        self._passing = []
        self.port = 0
        self.open()

    def open(self):
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        for each in (self._listening, *self._passing):
            each.close()
        self._passing.clear()

    def block(self):
        self._is_flowing.clear()

    def unblock(self):
        self._is_flowing.set()

    def _accept(self, listening):
        with suppress(OSError):
            while True:
                here, _ = listening.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                self._passing += (here, there)
                for source, sink in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source, sink):
        with suppress(OSError), closing(source), closing(sink):
            while data := source.recv(65536):
                self._is_flowing.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def gate(services):
    gate = Gate(services.port)
    yield gate
    gate.unblock()
    with suppress(OSError):
        gate.close()


def start(services, gate, server, folder):
    """Starts a command, and returns when its first rollouts are scored."""
    size = ("-n", str(ROLLOUTS), "-r", "1", "-c", "2", "--max-shards", "4", "--json")
    command = ("eval", "run", "arithmetic", "-m", "away", "-b", server.url, *size)
    variables = {"PREFECT_API_URL": f"http://127.0.0.1:{gate.port}/api", "PREFECT_API_REQUEST_TIMEOUT": "3"}
    process = services.begin(*command, folder=folder, **variables)
    wait_for_answers(server, 5)
    return process


def finish(process, server):
    """Returns the outcome, and the text on stderr."""
    wait_for_answers(server, ROLLOUTS)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    outcome = json.loads(out)
    assert (outcome["status"], outcome["scored"]) == ("completed", ROLLOUTS)
    return outcome, errors


def test_a_run_completes_without_the_server(services, gate, tmp_path):
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=50)) as server:
        process = start(services, gate, server, tmp_path)
        gate.close()
        _, errors = finish(process, server)
    assert errors.count("WARNING") == 1
    assert "WARNING Prefect's server does not answer: the run continues without it" in errors


@pytest.mark.parametrize(("leave", "come_back", "seconds"), [
    (Gate.close, Gate.open, 2), (Gate.block, Gate.unblock, 6),
], ids=["away", "hangs"])  # fmt: skip
def test_a_run_reports_its_end_when_the_server_is_back(services, gate, tmp_path, leave, come_back, seconds):
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=50 * seconds)) as server:
        process = start(services, gate, server, tmp_path)
        leave(gate)
        time.sleep(seconds)
        come_back(gate)
        outcome, _ = finish(process, server)
    assert services.flow_run(outcome["flow_run_id"])["state_type"] == "COMPLETED"


def test_a_server_that_hangs_delays_no_rollout(services, gate, tmp_path):
    with ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=50)) as server:
        process = start(services, gate, server, tmp_path)
        gate.block()
        outcome, errors = finish(process, server)  # though each call to the server takes 3 s
    assert services.end_of(outcome["flow_run_id"]) == "COMPLETED"  # ``nightjar up`` finds the finished run
    assert errors.count("Prefect's server does not answer") == 1

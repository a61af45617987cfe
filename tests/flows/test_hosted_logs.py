"""The log of a run on a server, as ``eval logs -f`` and ``--follow`` show it: no line twice, none lost."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest

from nightjar.hosting.run_logs import RunLog
from nightjar.hosting.server import PrefectApi

pytestmark = pytest.mark.long

START = datetime(2026, 1, 1, tzinfo=UTC)


class Said:
    """The log of a flow run, to which a test writes."""

    def __init__(self, services):
        self._services = services
        self.flow_run_id = str(uuid4())
        self.messages = []

    def write(self, *moments):
        """Writes a line for each moment (seconds from the start) in the given order."""
        lines = []
        for moment in moments:
            self.messages.append(f"line {len(self.messages)}")
            at = (START + timedelta(seconds=moment)).isoformat()
            line = {"name": "test", "level": 20, "message": self.messages[-1], "timestamp": at}
            lines.append({**line, "flow_run_id": self.flow_run_id})
        self._services.call("POST", "/logs/", lines)


@pytest.fixture
def said(services):
    return Said(services)


@pytest.fixture
def log(services, said):
    return RunLog(PrefectApi(services.api), said.flow_run_id)


def new(log):
    return [line.message for line in log.new()]


def test_lines_with_equal_times_and_late_lines_are_returned_once(said, log):
    said.write(*[5.0] * 500)
    assert sorted(new(log)) == sorted(said.messages)
    said.write(*[5.0] * 10, 5.0, 6.0)
    assert Counter(new(log)) == Counter(said.messages[500:])
    said.write(1.0)  # before all that was seen
    assert new(log) == said.messages[-1:]
    said.write(0.5, 5.5, 5.0, 7.0)
    assert new(log) == [said.messages[-4], said.messages[-2], said.messages[-3], said.messages[-1]]
    assert new(log) == []


def test_new_lines_follow_a_tail(said, log):
    said.write(*[1.0] * 300, *[2.0] * 5)
    shown = log.tail(8)
    assert [line.at.second for line in shown] == [1] * 3 + [2] * 5
    assert new(log) == []
    said.write(1.5, 3.0, 0.5)  # the last is older than the tail
    assert new(log) == [said.messages[-3], said.messages[-2]]


@pytest.mark.parametrize(("lines", "shown"), [(10, ["line 1", "line 0"]), (0, [])])
def test_a_tail_may_be_longer_than_the_log_or_empty(said, log, lines, shown):
    said.write(2.0, 1.0)
    assert [line.message for line in log.tail(lines)] == shown
    said.write(3)
    assert new(log) == ["line 2"]


@pytest.fixture
def before(services, http_server):
    """A proxy of a server; while it has a ``refusal``, a status code, it responds only with that."""
    proxy = SimpleNamespace(refusal=None)

    import httpx

    def pass_on(request, body):
        if proxy.refusal:
            return proxy.refusal, b"", {}
        url = services.api.removesuffix("/api") + request.path
        answer = httpx.request(request.command, url, content=body, headers={"Content-Type": "application/json"})
        return answer.status_code, answer.content, {}

    proxy.url = http_server(pass_on)
    return proxy


def test_following_a_log_survives_an_overloaded_server(services, before, said):
    flow = services.call("POST", "/flows/", {"name": "evaluate"})
    flow_run = services.call("POST", "/flow_runs/", {"flow_id": flow["id"], "state": {"type": "RUNNING"}})
    said.flow_run_id = flow_run["id"]
    said.write(*range(300))
    words = ["eval", "logs", flow_run["id"], "-f", "--poll-interval", "0.2", "--prefect-url", before.url, "--json"]
    following = services.begin(*words)
    got = [json.loads(next(following.stdout))["message"] for _ in range(300)]
    for refusal in (429, 503):
        before.refusal = refusal
        assert "Waiting for it" in next(following.stderr)
        said.write(*range(150, 300))
        before.refusal = None
        assert "responds again" in next(following.stderr)
    services.call("POST", f"/flow_runs/{flow_run['id']}/set_state", {"state": {"type": "COMPLETED"}, "force": True})
    shown, _ = following.communicate(timeout=120)
    got += [json.loads(line)["message"] for line in shown.splitlines()]
    assert Counter(got) == Counter(said.messages)
    assert following.returncode == 0

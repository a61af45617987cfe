"""Failed requests are retried; failed attempts are repeated with ``--max-retries``, or kept as failures, never as 0."""

import json
import re
import socket
from collections import Counter, defaultdict

import pytest

from nightjar.model_server import FaultKind, Faults

pytestmark = pytest.mark.long

FIVE_PERCENT = Faults(rate_429=0.02, rate_500=0.02, rate_dropped=0.01, seed=3)
CAUSES = {
    FaultKind.RATE_LIMITED: "RateLimitError",
    FaultKind.SERVER_ERROR: "InternalServerError",
    FaultKind.DROPPED: "APIConnectionError",
}


def test_an_endpoint_with_a_rate_limit_is_asked_as_fast_as_it_accepts(nightjar, serve):
    server = serve(faults=Faults(latency_ms=20, requests_per_second=50))
    assert nightjar.eval("arithmetic", "-n", 400, "-r", 1, server=server).code == 0
    assert (server.stats().answered, nightjar.run.metadata["failed"]) == (400, 0)
    assert server.stats().received - 400 < 100, "refused are those of the first seconds, while the rate is found out"
    assert nightjar.run.metadata["requests"]["pace"]


SPENT = "You exceeded your current quota, please check your plan and billing details."


NO_ANSWERS = [
    (429, {"error": {"message": SPENT, "code": "insufficient_quota"}}, f"Error code: 429 - {SPENT}", 50),
    (500, {"error": {"message": "boom"}}, "Stopped: .*boom", 150),
    (200, b"<html><body>Welcome to our website</body></html>", "Stopped: .*Welcome to our website", 150),
    (200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}}]}, "Stopped: .*no text", 150),
]


def test_an_endpoint_that_gives_no_answer_at_all_stops_the_run(nightjar, http_server, serve):
    for refuses, said in (
        ({"require_key": "another"}, "401 - Incorrect API key provided"),
        ({"only_model": "other"}, "Error code: 404 - The model 'local' does not exist. The server has 'other'."),
    ):
        server = serve(**refuses)
        ended = nightjar.eval("arithmetic", "-n", 80, server=server)
        assert said in ended.error
        assert server.stats().received <= 64, "what is in flight at once, and a few"
        assert nightjar.runs[-1].metadata["status"] == "failed"
    for status, body, said, most in NO_ANSWERS:
        received = []

        def reply(request, _, received=received, status=status, body=body):
            received.append(request.path)
            return status, body, {"Content-Type": "text/html" if isinstance(body, bytes) else "application/json"}

        ended = nightjar.eval("arithmetic", "-n", 80, "-m", "m", "-b", f"{http_server(reply)}/v1")
        assert re.search(said, ended.error)
        assert len(received) < most


def test_with_retries_of_requests_or_rollouts_every_rollout_is_scored(nightjar, serve):
    server = serve(faults=FIVE_PERCENT)
    assert nightjar.eval("arithmetic", "-n", 200, "-r", 1, server=server).code == 0
    stats, requests = server.stats(), nightjar.run.metadata["requests"]
    injected = sum(stats.faults.values())
    assert (nightjar.run.metadata["scored"], stats.answered, len(nightjar.run.attempts)) == (200, 200, 200)
    assert (requests["sent"], requests["again"], requests["refused"]) == (
        200 + injected, injected, stats.faults[FaultKind.RATE_LIMITED]
    )  # fmt: skip

    server.reset_stats()
    ended = nightjar.eval("arithmetic", "-n", 200, "-r", 1, "--request-retries", 0, "--max-retries", 5, server=server)
    assert ended.code == 0
    run, stats = nightjar.runs[1], server.stats()
    assert (run.metadata["scored"], run.metadata["avg_reward"], run.metadata["coverage"]) == (200, 1.0, 1.0)
    injected = sum(stats.faults.values())
    assert injected > 5
    failed = run.failed_attempts
    assert len(run.attempts) == 200 + injected
    assert Counter(attempt["error"]["error_chain_repr"].split(" -> ")[1] for attempt in failed) == {
        CAUSES[kind]: count for kind, count in stats.faults.items() if count
    }
    assert {attempt["error"]["error"] for attempt in failed} == {"ModelError"}
    assert {attempt["state"] for attempt in failed} == {None}
    numbers = defaultdict(list)
    for attempt in run.attempts:
        numbers[_key(attempt)].append(attempt["attempt"])
    assert {_key(row): list(range(1, row["attempts"] + 1)) for row in run.results} == numbers


def test_without_retries_failed_rollouts_have_no_reward_and_a_resume_does_just_these(nightjar, serve):
    server = serve(faults=FIVE_PERCENT)
    ended = nightjar.eval("arithmetic", "-n", 60, "--request-retries", 0, server=server)
    assert ended.code == 1

    run = nightjar.run
    failed = {_key(row) for row in run.results if row["error"]}
    injected = sum(server.stats().faults.values())
    assert len(failed) == injected > 5
    for row in run.results:
        kept = tuple(row[name] for name in ("reward", "advantage", "metrics", "completion"))
        assert (row["error"]["phase"], *kept) == ("generation", None, None, {}, []) if row["error"] else kept[0] == 1.0
    first = next(row for row in run.results if row["error"])
    assert ended.errors == [f"Error: {injected} of 180 rollouts failed. The first: {first['error']['message']}"]
    metadata = run.metadata
    assert (metadata["status"], metadata["scored"], metadata["failed"]) == ("incomplete", 180 - injected, injected)
    assert metadata["avg_reward"] == 1.0, "the mean is over scored rollouts"
    assert metadata["coverage"] == pytest.approx(1 - injected / 180)
    assert metadata["avg_error"] == pytest.approx(injected / 180)
    assert sum(metadata["errors"].values()) == injected
    counts = "count(reward), count(error), min(reward)"
    assert nightjar.sql(f"SELECT {counts} FROM rollouts") == [(180 - injected, injected, 1.0)]

    # The command says how to go on; an endpoint that is well again serves just what failed.
    server.__exit__(None, None, None)
    healed = serve(port=server.port)
    assert nightjar.eval("arithmetic", "-n", 60, "--resume", server=healed).code == 0
    assert healed.stats().received == injected
    assert nightjar.run.metadata["status"] == "completed"
    assert {_key(row) for row in run.results if row["attempts"] == 2} == failed
    assert {row["attempts"] for row in run.results} == {1, 2}
    assert nightjar.sql("SELECT status, scored FROM runs") == [("completed", 180)]
    counts = "count(error), count(*) FILTER (attempts = 2)"
    assert nightjar.sql(f"SELECT {counts} FROM rollouts") == [(0, injected)]


def test_an_endpoint_that_is_not_up_yet_is_waited_for(nightjar, serve):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # nothing listens yet
        port = reserved.getsockname()[1]
        words = ("-n", 30, "-r", 1, "-m", "local", "-b", f"http://127.0.0.1:{port}/v1")
        run = nightjar.start_eval("arithmetic", *words, "--wait-for-endpoint", 2, "--request-retries", 0)
        run.wait_until(lambda: "does not answer yet" in run.stderr)
    serve(port=port)
    assert run.wait().code == 0
    assert nightjar.run.metadata["scored"] == 30

    started = nightjar.eval("arithmetic", *words[:-1], "http://127.0.0.1:1/v1", "--wait-for-endpoint", 0.05)
    assert (started.code, "first 5 requests failed" in started.stderr) == (1, True)


def test_an_endpoint_may_be_away_for_longer_than_all_retries(nightjar):
    """With retries on, an endpoint that has answered before is waited for."""
    server, url = _start_model_server(nightjar, port=0)
    run = nightjar.start_eval("arithmetic", "-n", 30, "-c", 8, "--request-retries", 1, "-m", "local", "-b", url)
    run.wait_until(lambda: nightjar.runs and len(nightjar.run.attempts) > 30)
    server.kill()
    run.wait_until(lambda: re.search(r"\b([6-9]\d|\d{3}) retries", run.stderr))  # 8 in flight, at most 32 that wait
    _start_model_server(nightjar, port=int(url.split(":")[2].split("/")[0]))
    assert run.wait().code == 0
    assert nightjar.run.metadata["scored"] == 90
    assert nightjar.run.metadata["requests"]["again"] > 40


def _start_model_server(nightjar, port):
    server = nightjar.start("model-server", "--port", port, "--latency-ms", 20, "--json")
    server.wait_until(lambda: server.stdout.endswith("\n"))
    return server, json.loads(server.stdout)["url"]


def _key(row):
    return row["example_id"], row["rollout_index"]

"""Benchmarks over HTTP: ``nightjar serve`` with other clients, ``gym://`` with other servers."""

import asyncio
import json
import os
import signal
import socket
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from waiting import until

from nightjar.model_server import Answer, Faults, last_user_text

pytestmark = pytest.mark.long

BENCH = """
    from nightjar.compat.nemo import benchmark, numeric_match, scorer
    ROWS = [{"a": a, "answer": str(a + 1), "category": "odd" if a % 2 else "even"} for a in range(200)]

    @benchmark(name="sums", dataset=ROWS, prompt="What is {a} + 1?", target_field="answer", system_prompt="Be brief.")
    @scorer
    def check(sample):
        assert sample.metadata["category"] in {"odd", "even"}
        return numeric_match(sample) | {"method": "numeric", "a": sample.metadata["a"]}
"""
BROKEN = """
    from nightjar.compat.nemo import EvalEnvironment, register
    @register("broken")
    class Broken(EvalEnvironment):
        async def dataset_size(self):
            return 1
        async def prepare(self):
            raise KeyError("no data")
        async def seed(self, idx): ...
        async def verify(self, response, expected, sandbox=None, **metadata): ...
"""
# As a resources server of NeMo Gym is: it has no problems, and takes the whole of what was asked and answered
NEMO_GYM = """
    import json, os
    from fastapi import FastAPI, Request, Response
    app = FastAPI()

    @app.post("/seed_session")
    async def seed_session(request: Request, response: Response):
        response.set_cookie("session", (await request.json())["gold"]["answer"])
        return {}

    @app.post("/verify")
    async def verify(request: Request):
        body = await request.json()
        assert request.cookies["session"] == body["gold"]["answer"]
        with open("asked.jsonl", "a") as file:
            file.write(json.dumps(body | {"pid": os.getpid()}) + "\\n")
        [message] = body["response"]["output"]
        said = message["content"][0]["text"]
        right = body["gold"]["answer"] in said and body["responses_create_params"]["input"][0]["content"] in said
        return body | {"reward": float(right), "length": len(said)}
"""


class WrongBySize:
    """Solves the sums of this file, except every fifth."""

    def answer(self, messages):
        question = last_user_text(messages)
        number = int(question.split()[2])
        return Answer(question=question, text=str(number + 1 if number % 5 else -1))


@pytest.fixture
def write(nightjar):
    return lambda source, name="bench.py": (nightjar.folder / name).write_text(textwrap.dedent(source))


@pytest.fixture
def served(nightjar, write):
    """Serves the benchmark of this file; returns where."""
    write(BENCH)

    def start(*arguments):
        started = nightjar.start("serve", "bench.py:sums", "--host", "127.0.0.1", "--port", "0", *arguments)
        started.wait_until(lambda: "Serving" in started.stdout)
        return started, started.stdout.split(" at ")[1].split()[0]

    return start


def test_the_protocol_is_as_it_is_written_down_also_for_many_sessions_at_once(served, nightjar):
    import httpx

    server, url = served()
    assert "Serving sums (200 problems) at http://127.0.0.1:" in server.stdout
    with httpx.Client(base_url=url, timeout=60) as client:
        told = {"status": "ok", "benchmark": "sums", "dataset_size": 200, "protocol": "evaluator"}
        assert client.get("/health").json() == told
        assert client.get("/dataset_size").json() == {"size": 200}
        first = client.post("/seed_session")
        assert first.json() == client.post("/seed_session", json={"idx": 0}).json()
        seed = client.post("/seed_session", json={"idx": 4}).json()
        assert seed == {
            "prompt": "What is 4 + 1?", "expected_answer": "5", "messages": None, "system": "Be brief.",
            "metadata": {"a": 4, "answer": "5", "category": "even"}, "sandbox_spec": None,
        }  # fmt: skip
        asked = {"response": "It is 5", "expected": 5, "metadata": seed["metadata"]}
        scored = client.post("/verify", json=asked).json()
        details = {"correct": True, "method": "numeric", "a": 4}
        assert scored == {"reward": 1.0, "extracted_answer": "5", "scoring_details": details, "metadata": {}}
        gym = {"expected_answer": "5", "metadata": seed["metadata"]}
        for response in ("5", {"choices": [{"message": {"role": "assistant", "content": "5"}}]}):
            scored = client.post("/verify", json=gym | {"response": response}).json()
            assert (scored.pop("response", None) is not None) == isinstance(response, dict)
            told = {"reward": 1.0, "expected_answer": "5", "extracted_answer": "5", "scoring_details": details}
            assert scored == told
    host, port = url.partition("//")[2].split(":")
    with socket.create_connection((host, int(port))) as cut_off:  # a client that goes away within its body
        cut_off.sendall(b"POST /verify HTTP/1.1\r\nHost: here\r\nContent-Length: 99\r\n\r\n{")

    async def session(client, places, number):
        async with places:
            seed = (await client.post("/seed_session", json={"idx": number % 200})).json()
            asked = {"response": seed["expected_answer"], "expected": seed["expected_answer"]}
            return (await client.post("/verify", json=asked | {"metadata": seed["metadata"]})).json()["reward"]

    async def sessions():
        places = asyncio.Semaphore(64)
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            return await asyncio.gather(*(session(client, places, number) for number in range(200)))

    rewards = asyncio.run(sessions())
    assert rewards == [1.0] * 200
    assert psutil.Process(server.pid).memory_info().rss < 600_000_000
    taken = nightjar.start("serve", "arithmetic", "--host", "127.0.0.1", "--port", port).wait()
    assert "--port 0" in taken.error
    server.send(signal.SIGINT)
    server.wait()  # without a traceback on stderr
    assert not server.leaves_processes


def test_what_is_asked_wrongly_is_refused_in_json_and_the_server_lives(served):
    import httpx

    server, url = served("--gym-compat")
    wrong = [
        ("/seed_session", b'{"idx": 200}', 400), ("/seed_session", b'{"idx": -1}', 400),
        ("/seed_session", b'{"idx": 9999999999999999999999}', 400), ("/seed_session", b'{"idx": "x"}', 422),
        ("/seed_session", b'{"idx": null}', 422), ("/seed_session", b'{"idx', 400), ("/seed_session", b"[1]", 422),
        ("/seed_session", b"\xff\xfe\x00", 400), ("/verify", b"", 422), ("/verify", b'"text"', 422),
        ("/verify", b'{"response": 4, "expected": "5"}', 422), ("/verify", b'{"response": "5", "expected": true}', 422),
        ("/verify", b'{"response": "5", "expected": "5", "metadata": []}', 422),
        ("/verify", b'{"response": {"said": "5"}, "expected_answer": "5"}', 422),
        ("/seed_session", b'{"idx": true}', 422),
        ("/verify", b"[" * 1_000_000, 400), ("/verify", b" " * 40_000_000, 413), ("/nowhere", b"", 404),
    ]  # fmt: skip
    with httpx.Client(base_url=url, timeout=60) as client:
        for path, body, status in wrong:
            answer = client.post(path, content=body)
            assert (path, body[:60], answer.status_code) == (path, body[:60], status)
            assert answer.json()["detail"]
        assert client.get("/verify").status_code == 405
        raised = client.post("/verify", json={"response": "5", "expected": "5"})  # the scorer misses a column
        assert (raised.status_code, raised.json()) == (500, {"detail": "verify() raised KeyError: 'category'"})
        assert client.get("/health").json()["protocol"] == "gym"
    assert server.is_running


def test_problems_are_exported(write, nightjar):
    write(BENCH)
    ended = nightjar.start("serve", "-b", "bench.py:sums", "--export-data", "data").wait()
    assert (ended.code, ended.stdout) == (0, "Wrote data/sums.jsonl\n")
    rows = [json.loads(line) for line in (nightjar.folder / "data/sums.jsonl").read_text().splitlines()]
    assert len(rows) == 200
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 7 + 1?"}]
    assert rows[7] == {
        "responses_create_params": {"input": asked}, "expected_answer": "8", "uuid": "sums-7",
        "metadata": {"a": 7, "answer": "8", "category": "odd"},
    }  # fmt: skip


def test_a_benchmark_that_cannot_be_served_is_an_error(nightjar, write):
    assert nightjar.start("serve").wait().code == 2
    for source, env, message in (
        ("", "no-such-env", "no-such-env"),
        (BROKEN, "bench.py:broken", "Benchmark 'broken' failed to initialise: KeyError: 'no data'"),
        (BENCH.replace("{a} + 1", "{b} + 1"), "bench.py:sums", "Benchmark 'sums', row 1: "),
        ("", "container://simple-evals#gsm8k", "as a whole, by 'nightjar eval run'"),
    ):
        write(source)
        ended = nightjar.start("serve", env, "--port", "0").wait()
        assert (message in ended.error, ended.stdout) == (True, "")


def test_a_served_benchmark_gives_the_rewards_of_the_benchmark_also_after_a_resume(served, nightjar, serve):
    _, url = served()
    host = url.partition("//")[2]
    kept = ("reward", "metrics", "extracted_answer", "scoring_details", "answer", "prompt", "completion")
    rows = []
    for env in ("bench.py:sums", f"gym://{host}", f"gym://{host}?protocol=native"):
        command = ["eval", "run", env, "-m", "m", "-n", "15", "-r", "2", "--direct"]
        command += ["-b", serve(WrongBySize(), faults=Faults(rate_500=0.3, seed=1)).url]
        assert nightjar.start(*command, "--request-retries", "0").wait().code == 1
        run = nightjar.runs[-1]
        done = [row for row in run.attempts if row["error"] is None]
        assert 0 < len(done) < 30
        assert nightjar.start(*command, "--resume").wait().code == 0
        assert [row for row in run.attempts if row["error"] is None][: len(done)] == done
        found = sorted(run.results, key=lambda row: (row["example_id"], row["rollout_index"]))
        rows.append([{name: row.get(name) for name in kept} for row in found])
    assert rows[0] == rows[1] == rows[2]
    assert [row["reward"] for row in rows[0]] == [0.0 if number // 2 % 5 == 0 else 1.0 for number in range(30)]


@pytest.fixture
def nemo_gym(nightjar, write):
    write(NEMO_GYM, "their_server.py")
    asked = {number: [{"role": "user", "content": f"{number} + 0 = ?"}] for number in range(10)}
    rows = [{"responses_create_params": {"input": asked[n]}, "gold": {"answer": str(n)}} for n in asked]
    write("".join(json.dumps(row) + "\n" for row in rows), "rows.jsonl")
    return nightjar


def asked_of(nightjar):
    path = nightjar.folder / "asked.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("started_by", [
    "module:their_server",
    "cmd:: 1,2 & sleep 1000 & exec python3 -m uvicorn their_server:app --host {host} --port $PORT",
])  # fmt: skip
def test_a_server_of_nemo_gym_is_started_for_a_run_and_is_told_what_was_asked(nemo_gym, serve, started_by):
    before = set(psutil.pids())
    uri = f"gym://{started_by}?protocol=native&data=rows.jsonl"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = nemo_gym.start_eval(uri, "-n", "5", "-r", "1", server=serve(), PATH=path).wait()
    assert (ended.code, ended.errors) == (0, [])
    told = asked_of(nemo_gym)
    said = sorted(body["responses_create_params"]["input"][0]["content"] for body in told)
    assert said == [f"{number} + 0 = ?" for number in range(5)]
    assert nemo_gym.sql("SELECT scored, failed FROM runs") == [(5, 0)]
    assert {row["length"] > 0 for row in (each["metrics"] for each in nemo_gym.run.results)} == {True}
    assert not left_over(before, nemo_gym.folder)


@pytest.mark.parametrize("killed", ["the run", "its guard"])
def test_a_server_ends_with_a_run_that_is_killed(nemo_gym, serve, killed):
    before = set(psutil.pids())
    uri = "gym://module:their_server?protocol=native&data=rows.jsonl"
    run = nemo_gym.start_eval(uri, "-n", "10", "-r", "40", "-c", "2", server=serve(faults=Faults(latency_ms=50)))
    run.wait_until(lambda: asked_of(nemo_gym))
    found = left_over(before, nemo_gym.folder)
    if killed == "its guard":
        [guard] = {psutil.Process(pid).parent().pid for pid in found} & set(found)
        os.kill(guard, signal.SIGKILL)
    run.kill()
    until(lambda: not left_over(before, nemo_gym.folder))


def left_over(before, folder):
    """Gives the processes that were not there before and work in a folder."""
    there = [process.info for process in psutil.process_iter(["pid", "cwd", "cmdline", "status"])]
    new = [each for each in there if each["pid"] not in before and each["status"] != psutil.STATUS_ZOMBIE]
    words = {each["pid"]: " ".join(each["cmdline"] or ()) for each in new if each["cwd"] == str(folder)}
    return [pid for pid, typed in words.items() if "uvicorn" in typed or "sleep 1000" in typed]


def test_a_server_that_does_not_start_and_a_uri_that_leads_nowhere_are_errors(nightjar):
    for uri, message in (
        ("gym://cmd:echo no such data >&2; exit 3", " ended with code 3: no such data"),
        ("gym://", "'gym://' names no server"),
        ("gym://module:", "'gym://module:' names no server"),
        ("container://img:1", "'container://img:1' names no task"),
        ("container://img:1#gsm8k", "needs docker or podman"),
        ("gym://127.0.0.1:9", "http://127.0.0.1:9/dataset_size does not respond"),
    ):
        path = {} if "cmd:" in uri else {"PATH": ""}
        ended = nightjar.eval(uri, "-m", "m", "-b", "http://127.0.0.1:9/v1", **path)
        assert (message in ended.error, nightjar.runs) == (True, []), uri


def test_a_benchmark_is_validated(nightjar, write, serve):
    write(BENCH)
    good = nightjar.start("validate", "bench.py:sums", "-v").wait()
    *_, told, verdict = good.stdout.splitlines()
    assert (good.code, verdict) == (0, "PASS")
    assert told.startswith("sums: 200 examples. Replies of references: 10/10 correct")
    assert good.stdout.splitlines()[3] == "3: What is 3 + 1? | reward 1 | expected '4' | found '4'"
    model = ("--model-url", serve(WrongBySize()).url, "--model-id", "m")
    asked = nightjar.start("validate", "--bench", "bench.py:sums", "--samples", "20", *model).wait()
    assert (asked.code, "Replies of m: 16/20 correct" in asked.stdout) == (0, True)
    typed = nightjar.start("validate", "bench.py:sums", *model, "--api-key", "sk-planted-0123").wait()
    assert (typed.code, "sk-planted" in typed.stderr) == (2, False)
    unset = nightjar.start("validate", "bench.py:sums", *model, "-k", "NO_SUCH_KEY").wait()
    assert (unset.code, "NO_SUCH_KEY" in unset.errors[0]) == (1, True)


def test_a_wrong_benchmark_fails_validation(nightjar, write):
    lenient = "{'correct': sample.target.startswith(sample.response)}"
    for right, wrong, finding in (
        ("numeric_match(sample)", lenient, "FAIL: an empty reply is worth 1 (10×)"),
        ('"odd" if a % 2 else', '"?" if a == 3 else', "Reward function 'verify': AssertionError (1×)"),
        ("{a} + 1", "{b} + 1", "Benchmark 'sums', row 1: "),
    ):
        write(BENCH.replace(right, wrong))
        ended = nightjar.start("validate", "bench.py").wait()
        found = [line for line in ended.stdout.splitlines() if line.startswith("FAIL") and finding in line]
        assert (ended.code, bool(found)) == (1, True), ended.stdout

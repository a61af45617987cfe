"""Suites and several environments: all at once in one process, one that fails stops no other, and --resume."""

import json
import signal
import time

import pytest

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

SUITE = """\
model = "m"
api_base_url = "{url}"
num_examples = 4
rollouts_per_example = 2

[[eval]]
env_id = "arithmetic"

[[eval]]
env_id = "arithmetic"
name = "warm"
num_examples = 6
[eval.sampling]
temperature = 0.7
"""
BROKEN = '\n[[eval]]\nenv_id = "gsm8k"\n[eval.env_args]\ndataset = "none.jsonl"\n'


@pytest.fixture
def typed(nightjar):
    def typed(text, *arguments, **variables):
        (nightjar.folder / "nightly.toml").write_text(text)
        return nightjar.start("eval", "run", "nightly.toml", "--direct", *arguments, **variables)

    return typed


def test_one_that_cannot_start_stops_no_other(nightjar, typed, serve):
    server = serve(keep_requests=100)
    ended = typed(SUITE.format(url=server.url) + BROKEN, "--tag", "night").wait()
    assert ended.code == 1
    assert ended.errors == ["Error: gsm8k: Cannot read dataset 'none.jsonl': No such file or directory"]
    first, second, third = (line.split() for line in ended.stdout.splitlines()[1:4])
    assert (first[0], first[3], first[5]) == ("arithmetic", "8/8", "completed")
    assert (second[0], second[3], second[5]) == ("warm", "12/12", "completed")
    assert third[0] == "gsm8k"
    assert "not started" in ended.stdout
    assert nightjar.sql("SELECT suite, scored, tags FROM runs ORDER BY scored") == [
        ("nightly", 8, ["night"]), ("nightly", 12, ["night"]),
    ]  # fmt: skip
    assert {request.body.get("temperature") for request in server.requests} == {None, 0.7}
    again = typed(SUITE.format(url=server.url) + BROKEN, "--tag", "night", "--resume", "--json").wait()
    first, second, third = json.loads(again.stdout)
    assert [each["name"] for each in (first, second, third)] == ["arithmetic", "warm", "gsm8k"]
    assert (first["avg_reward"], second["status"]) == (1.0, "completed")
    assert (third["status"], third["error"][:19]) == ("not started", "Cannot read dataset")


def test_all_run_at_once_under_one_ceiling_and_resume_after_ctrl_c(nightjar, typed, serve):
    server = serve(faults=Faults(latency_ms=300))
    text = SUITE.format(url=server.url).replace("rollouts_per_example = 2", "max_concurrent = 2")
    started = typed(text)
    started.wait_until(lambda: [bool(run.attempts) for run in nightjar.runs] == [True, True])
    started.send(signal.SIGINT)
    assert started.wait().code == 130
    assert not started.leaves_processes
    assert [run.metadata["status"] for run in nightjar.runs] == ["cancelled", "cancelled"]
    assert server.stats().peak_in_flight == 2, "not two for each"
    before = {run.metadata["run_id"]: run.metadata["scored"] for run in nightjar.runs}
    typed(text.replace("max_concurrent = 2", "max_concurrent = 16"), "--resume").wait().ok()
    assert {run.metadata["run_id"] for run in nightjar.runs} == before.keys()
    assert sorted(run.metadata["scored"] for run in nightjar.runs) == [12, 18]
    assert server.stats().answered <= 30 + 2, "what was in flight when it was stopped is asked again"


def test_what_does_not_go_beside_a_suite_is_refused(typed):
    for arguments, message in (
        (
            ["-a", '{"largest": 9}'],
            "'--env-args' / '-a': belongs to one evaluation of a suite: set it in the suite's file",
        ),
        (["--name", "x"], "'--name': belongs to one evaluation of a suite"),
        (["-c", "0"], "'--max-concurrent' / '-c': Input should be greater than or equal to 1 (found 0)"),
        (["--resume", "outputs/x"], "--resume PATH works with one"),
        (["--hosted", "--follow"], "--follow works with one"),
    ):
        ended = typed(SUITE.format(url="http://127.0.0.1:9/v1"), *arguments).wait()
        [line] = ended.stderr.splitlines()
        assert (ended.code, message in line) == (2, True), line


def test_all_missing_environments_are_named_before_a_missing_key(nightjar, typed):
    text = SUITE.format(url="https://api.example.com/v1").replace('"arithmetic"', '"my-quiz"', 1) + BROKEN.replace(
        "gsm8k", "owner/other"
    )
    ended = typed(f'api_key_var = "NO_SUCH_KEY"\n{text}').wait()
    assert ended.code == 1
    assert "Environments 'my-quiz', 'owner/other' are not installed" in ended.stderr
    assert not nightjar.runs


def test_a_dry_run_says_where_each_value_comes_from_and_what_to_expect(nightjar, typed, serve):
    server = serve()
    text = f"input_price = 1000.0\noutput_price = 0.0\n{SUITE.format(url=server.url)}"
    assert typed(text).wait().code == 0
    [(tokens_in,)] = nightjar.sql("SELECT sum(input_tokens) / sum(scored) FROM runs")
    received = server.stats().received
    ended = typed(text.replace("num_examples = 6", "num_examples = 60"), "--dry-run", "--json").wait().ok()
    first, second = json.loads(ended.stdout)
    sources = (first["sources"]["num_examples"], second["sources"]["num_examples"])
    assert sources == ("suite file nightly.toml", "[[eval]] of nightly.toml")
    assert second["sources"]["sampling_args"] == "[[eval]] of nightly.toml"
    assert first["sources"]["max_retries"] == "built-in"
    assert first["files"] == {"suite": "nightly.toml"}
    assert (second["rollouts"], second["earlier_runs"]) == (120, 2)
    assert second["input_tokens"] == pytest.approx(120 * tokens_in)
    assert second["cost"] == pytest.approx(120 * tokens_in / 1000)
    assert server.stats().received == received
    assert len(nightjar.runs) == 2


def test_a_dry_run_without_history_says_so_and_writes_nothing(nightjar, serve):
    server = serve()
    ended = nightjar.eval("arithmetic", "-n", -1, "--dry-run", server=server).ok()
    assert "no earlier run of this environment and model" in ended.stdout
    assert "num_examples          -1" in ended.stdout
    assert server.stats().received == 0
    assert [path.name for path in nightjar.folder.iterdir()] == ["logs"]


def test_a_dry_run_of_what_is_missing_fails_like_the_run(nightjar):
    tasks = "from inspect_ai import Task, task\n@task\ndef sums():\n    return Task(dataset=[])\n"
    (nightjar.folder / "sums.py").write_text(tasks)
    for env_id, flag, message in (
        ("harbor://missing", "--dry-run", "There are no tasks in 'missing': there is no such folder"),
        ("skills://missing?data_dir=nowhere", "--dry-run", "nowhere"),
        ("nope://missing", "--dry-run", "Unknown scheme 'nope'://. Choose one of: "),
        ("inspect://sums.py@nope", "--dry-run", "has no task 'nope'"),
        ("inspect://sums.py@nope", "--direct", "has no task 'nope'"),
    ):
        assert message in nightjar.eval(env_id, flag, "-m", "m", "-b", "http://127.0.0.1:9/v1").error


def test_heartbeats_come_one_after_the_other_and_stop_nothing(nightjar, serve, http_server):
    beats, at_once = [], []

    def reply(request, _):
        at_once.append(request)
        beats.append(len(at_once))
        time.sleep(0.2)
        at_once.remove(request)
        return 500, b"", {}

    server, url = serve(faults=Faults(latency_ms=400)), f"{http_server(reply)}/secret-path"
    ended = nightjar.eval("arithmetic", "-n", 6, "-r", 1, "-c", 1, "--heartbeat-url", url, server=server).ok()
    assert len(beats) >= 2
    assert set(beats) == {1}
    assert ended.stderr.count("ClientResponseError 500") == 1
    assert "secret-path" not in ended.stderr

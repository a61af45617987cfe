"""Ctrl-C, and SIGTERM as a scheduler sends it: what is finished is kept and published, and nothing stays behind."""

import signal

import pytest

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

SETTINGS = ("-n", 20, "-c", 8)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_a_run_that_is_interrupted_keeps_what_is_finished(nightjar, serve, number):
    server = serve(faults=Faults(latency_ms=60))
    command = nightjar.start_eval("arithmetic", *SETTINGS, server=server)
    command.wait_until(lambda: nightjar.runs and nightjar.run.count_lines("results.jsonl") >= 10)
    command.send(number)
    ended = command.wait()
    assert ended.code == 130
    assert not command.leaves_processes
    run = nightjar.run
    metadata = run.metadata
    assert metadata["status"] == "cancelled"
    assert 10 <= metadata["scored"] < 60
    assert (metadata["failed"], metadata["avg_reward"]) == (0, 1.0)
    assert len(run.results) == metadata["scored"]
    assert nightjar.sql("SELECT status, scored, rollouts FROM runs") == [("cancelled", metadata["scored"], 60)]
    assert f"--resume {run.path.relative_to(nightjar.folder)}" in ended.stdout
    kept = len(run.attempts)
    answered = server.stats().answered
    assert nightjar.eval("arithmetic", *SETTINGS, "--resume", server=server).code == 0
    assert run.metadata["scored"] == 60
    assert server.stats().answered == answered + 60 - kept
    assert nightjar.sql("SELECT status, scored FROM runs") == [("completed", 60)]


def test_requests_that_take_long_do_not_hold_up_the_end(nightjar, serve):
    server = serve(faults=Faults(latency_ms=600_000))
    command = nightjar.start_eval("arithmetic", *SETTINGS, "--max-retries", 3, server=server)
    command.wait_until(lambda: server.stats().in_flight == 8)
    command.send(signal.SIGINT)
    assert command.wait().code == 130
    assert not command.leaves_processes
    assert nightjar.run.metadata["status"] == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_a_slow_dataset_can_be_interrupted(nightjar, serve, number):
    nightjar.write_environment(
        "slow",
        "import pathlib\nimport time\n\n\ndef load_environment():\n"
        "    pathlib.Path('loading').touch()\n    time.sleep(3600)\n",
    )
    command = nightjar.start_eval("slow", server=serve())
    command.wait_until((nightjar.folder / "loading").exists)
    command.send(number)
    ended = command.wait()
    assert ended.code == 130
    assert ended.stderr == "Stopped. To resume, run the same command with --resume.\n"
    assert not nightjar.runs

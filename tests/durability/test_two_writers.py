"""One process writes a run directory at a time."""

import signal

import pytest

from nightjar.model_server import Faults


@pytest.mark.long
def test_the_second_writer_is_told_who_holds_the_run(nightjar, serve):
    server = serve(faults=Faults(latency_ms=20))
    settings = ("-n", 50, "-c", 4)
    first = nightjar.start_eval("arithmetic", *settings, server=server)
    first.wait_until(lambda: nightjar.runs and nightjar.run.attempts)
    first.send(signal.SIGSTOP)  # so that it does not end before the others start
    config = nightjar.run.content["config.json"]
    forms = (["--resume"], ["--resume", nightjar.run])
    others = [nightjar.start_eval("arithmetic", *settings, *form, server=server) for form in forms]
    for second in others:
        ended = second.wait()
        assert f"Run {nightjar.run.path.name!r} is being written by process {first.pid} on " in ended.only_line
    assert nightjar.run.content["config.json"] == config
    first.send(signal.SIGCONT)
    assert first.wait().code == 0
    assert server.stats().answered == 150
    assert nightjar.run.metadata["scored"] == 150

"""``nightjar doctor`` tells what works on this machine, quickly, and shows no secret."""

import json
import os
import time
from socket import create_server
from subprocess import PIPE
from threading import Event

import pytest


@pytest.fixture
def doctor(tmp_path, fork):
    """Runs the command; returns its exit code and what it prints."""

    def doctor(**variables):
        env = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN", "_HOST"))}
        env |= {"NIGHTJAR_HOME": str(tmp_path / "home"), "PREFECT_HOME": str(tmp_path / "prefect"), **variables}
        running = fork.nightjar("doctor", "--json", cwd=tmp_path, env=env, stdout=PIPE)
        said, _ = running.communicate()
        return running.returncode, said

    return doctor


@pytest.mark.slow
def test_keys_are_named_and_no_secret_is_shown_also_of_a_server_that_does_not_answer(doctor):
    from nightjar.cli.doctor.checks import CHECKS

    key, password = "sk-a1b2c3d4e5f6", "s3cretpassw0rd"
    with create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}/api"
        began = time.monotonic()
        code, said = doctor(OPENAI_API_KEY=key, PREFECT_API_URL=f"http://us:{password}@{address}")
        assert time.monotonic() - began < 30  # the check waits 3 s; the rest is for the start on a busy machine
    parts = json.loads(said)["parts"]
    assert parts.keys() == CHECKS.keys()
    assert parts["Keys"]["found"].startswith("OPENAI_API_KEY (set")
    server = parts["Prefect server"]
    told = (code, server["state"], server["disables"])
    assert told == (1, "broken", "schedules, the UI, and runs without --direct")
    assert f"{address} does not answer" in server["found"]
    assert (key in said, password in said) == (False, False)
    _, said = doctor(PREFECT_API_URL=f"http://{address}")  # nothing listens there any more
    assert f"{address} does not answer" in json.loads(said)["parts"]["Prefect server"]["found"]


@pytest.mark.slow
def test_a_machine_without_a_server_and_keys_is_well_and_learns_what_that_disables(doctor, tmp_path):
    code, said = doctor()
    parts = json.loads(said)["parts"]
    assert code == 0, said
    for name in ("Prefect server", "Keys"):
        assert (parts[name]["state"], parts[name]["found"]) == ("absent", "none")
        assert (parts[name]["disables"] > "", parts[name]["advice"] > "") == (True, True)
    assert not (tmp_path / "outputs").exists()


def test_checks_that_raise_or_hang_are_broken_parts_and_the_others_are_reported():
    from nightjar.cli.doctor.checks import Part, State
    from nightjar.cli.doctor.command import examine

    ended = Event()

    def hang() -> Part:
        ended.wait(10)
        return Part(State.READY, "late")

    def fail() -> Part:
        raise OSError(13, "Permission denied", "/evals")

    parts = examine({"good": lambda: Part(State.READY, "here"), "hangs": hang, "fails": fail}, seconds=0.2)
    ended.set()
    assert parts == {
        "good": Part(State.READY, "here"),
        "hangs": Part(State.BROKEN, "no answer in 0.2 s"),
        "fails": Part(State.BROKEN, "[Errno 13] Permission denied: '/evals'"),
    }

"""Runs of agents that are killed: containers go, finished rollouts stay, and a resume does only the rest.

Containers need an engine: ``apt-get install podman``, and the address of its socket in ``DOCKER_HOST``.
"""

import pytest
from waiting import until

from nightjar.model_server import Script, tool_call
from nightjar.sandboxes.ownership import owned_containers

pytestmark = pytest.mark.long

ROLLOUTS = 12
WORK = Script([tool_call("bash", command="sleep 0.5; echo 42 > /answer"), tool_call("submit")])
TESTS = '[ "$(cat /answer)" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt'


@pytest.fixture
def task(tmp_path):
    folder = tmp_path / "killed-task"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.toml").write_text('environment = {docker_image = "docker.io/library/busybox", memory_mb = 128}')
    (folder / "instruction.md").write_text("Write 42 to /answer.")
    (folder / "tests" / "test.sh").write_text(TESTS)
    return folder


def test_containers_of_a_killed_run_go_and_a_resume_does_the_rest(nightjar, serve, engine, task):
    def containers():
        return [each.name for each in owned_containers(engine) if each.task == "killed-task"]

    words = (f"harbor://{task}", "-n", 1, "-r", ROLLOUTS, "-c", 4, "--max-sandboxes", 4, "--resume")
    server = serve(WORK)
    for _ in range(2):
        started = nightjar.start_eval(*words, server=server)
        before = len(nightjar.run.attempts) if nightjar.runs else 0
        started.wait_until(lambda known=before: nightjar.runs and len(nightjar.run.attempts) > known and containers())
        started.kill()
        until(lambda: not containers(), told=lambda: f"still there: {containers()}")
    assert nightjar.eval(*words, server=server).code == 0
    keys = [(row["example_id"], row["rollout_index"]) for row in nightjar.run.attempts if row["error"] is None]
    assert len(keys) == len(set(keys)) == ROLLOUTS
    assert (nightjar.run.metadata["scored"], nightjar.run.metadata["avg_reward"]) == (ROLLOUTS, 1.0)
    assert containers() == []

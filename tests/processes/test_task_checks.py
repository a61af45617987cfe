"""``nightjar env validate harbor://PATH``: tasks that pass, that fail and that cannot run here.

Tests with containers need an engine: ``apt-get install podman``, and the address of its socket in ``DOCKER_HOST``.
"""

import json

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.errors import ConfigError
from nightjar.sandboxes import DockerProvider

IMAGE = "docker.io/library/busybox"
REWARD = "echo {} > /logs/verifier/reward.txt"
IF_SOLVED = f"test -f /solved && {REWARD.format(1)} || {REWARD.format(0)}"
SERVER = f"grep -qs '[3]21' /proc/[0-9]*/cmdline && {REWARD.format(1)} || {REWARD.format(0)}"


@pytest.fixture
def needs_engine():
    if not DockerProvider.is_available(timeout_seconds=20):
        pytest.skip("No container engine answers. Install podman (apt-get install podman) and set DOCKER_HOST")


@pytest.fixture
def add_task(tmp_path):
    def add(name, tests=IF_SOLVED, solve="touch /solved", toml=f'environment = {{docker_image = "{IMAGE}"}}', **files):
        """Writes a task. ``files`` are further files: ``environment__Dockerfile`` is environment/Dockerfile."""
        files = {path.replace("__", "/"): text for path, text in files.items()}
        files |= {"task.toml": toml, "instruction.md": "Solve it.", "tests/test.sh": tests, "solution/solve.sh": solve}
        for path, text in files.items():
            if text is not None:
                (tmp_path / "tasks" / name / path).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "tasks" / name / path).write_text(text)

    return add


@pytest.fixture
def validate(tmp_path):
    def validate(*words):
        command = ["env", "validate", f"harbor://{tmp_path}/tasks", *words]
        return CliRunner().invoke(app, command, env={"COLUMNS": "200"})

    return validate


@pytest.mark.long
def test_tasks_that_pass_and_that_fail(needs_engine, add_task, validate):
    add_task("broken-image", toml="", environment__Dockerfile=f"FROM {IMAGE}\nRUN echo it is broken; false\n")
    add_task("good")
    add_task("lenient", tests=REWARD.format(1))
    add_task("no-reward", tests="echo nothing to say")
    add_task("server", tests=SERVER, solve="sleep 321 >/dev/null 2>&1 &")
    add_task("unsolvable", tests=REWARD.format(0), solve="echo I give up; exit 1")
    add_task("without-solution", solve=None)
    ended = validate("--json", "--max-sandboxes", "2")
    found = {task["name"]: task for task in json.loads(ended.stdout)["tasks"]}
    assert (ended.exit_code, found["good"]["problems"]) == (1, [])
    assert (found["good"]["oracle"]["reward"], found["good"]["nop"]["reward"]) == (1, 0)
    problems = {name: " ".join(task["problems"]) for name, task in found.items() if name != "good"}
    expected = {
        "broken-image": "it is broken",
        "lenient": "nop should get the reward 0: the reward is 1",
        "no-reward": "wrote no reward",
        "server": "passes with keep_processes",
        "unsolvable": "oracle should get the reward 1: the reward is 0",
        "without-solution": "it has no solution/solve.sh, so oracle cannot run",
    }
    assert {name for name, text in expected.items() if text not in problems.pop(name)} == set()
    assert problems == {}
    assert (found["broken-image"]["oracle"], found["unsolvable"]["passes_with_keep_processes"]) == (None, False)
    assert "nothing to say" in found["no-reward"]["nop"]["error"]
    assert "I give up" in found["unsolvable"]["oracle"]["agent_log"]


@pytest.mark.long
def test_a_server_passes_with_the_advice(needs_engine, add_task, validate):
    add_task("server", tests=SERVER, solve="sleep 321 >/dev/null 2>&1 &")
    ended = validate("-a", '{"keep_processes": true}')
    assert (ended.exit_code, ended.stdout.splitlines()[-1]) == (0, "PASS"), ended.output


def test_why_tasks_cannot_run_here(add_task, validate, monkeypatch):
    monkeypatch.delenv("A_VARIABLE", raising=False)
    add_task("bad-file", toml="environment = {cpus = 'many'}")
    add_task("on-windows", toml='environment = {os = "windows"}')
    add_task("variable", toml='environment = {env = {KEY = "${A_VARIABLE}"}}')
    add_task("without-tests", tests=None)
    ended = validate()
    shown = ended.stdout
    assert ended.exit_code == 1
    for name, reason in {
        "bad-file": "cpus is 'many'", "on-windows": "containers here run Linux", "variable": "'A_VARIABLE'",
        "without-tests": "tests/test.sh is missing",
    }.items():  # fmt: skip
        assert any(line.startswith(f"{name}: ") and reason in line for line in shown.splitlines()), shown
    assert shown.splitlines()[-1] == "FAIL: 4 tasks"


def test_without_an_engine_tasks_with_images_cannot_run(add_task, validate, monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    add_task("good")
    found = json.loads(validate("--json").stdout)
    assert (found["passed"], found["size"]) == (False, 1)
    assert "no container engine answers" in found["tasks"][0]["problems"][0]


def test_arguments_that_make_no_sense_are_errors(add_task, validate):
    add_task("good")
    for words, error in (
        ('{"agent": "shell"}', "leave out 'agent'"),
        ('{"tasks": ["other"]}', "No task has the name 'other'"),
    ):
        ended = validate("-a", words)
        assert isinstance(ended.exception, ConfigError)
        assert error in str(ended.exception)
    for words, error in (
        ("harbor://configs --samples 3", '{"tasks": ["NAME"]}'),
        ("harbor://configs --model-url http://x --model-id m", "without a model"),
        ("arithmetic --max-sandboxes 3", "--max-sandboxes"),
    ):
        ended = CliRunner().invoke(app, ["validate", *words.split()])
        assert (ended.exit_code, error in " ".join(ended.output.split())) == (2, True)

"""``HarborEnv``: agents on tasks in Harbor's format, in local sandboxes and, if an engine answers, in containers.

Local sandboxes need bubblewrap. Containers need an engine: ``apt-get install podman``, and the address of its socket in
``DOCKER_HOST``.
"""

import json

import pytest

from nightjar.clients import ClientConfig
from nightjar.environments.agents.harbor_env import HarborEnv
from nightjar.errors import ConfigError, DatasetError
from nightjar.model_server import ModelServer, Script, tool_call
from nightjar.sandboxes import DockerProvider, LocalProvider

IMAGE = "docker.io/library/busybox"
TESTS = '[ "$(cat /app/answer)" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt'
SOLVE = "echo 42 > /app/answer"
SUBMIT = tool_call("submit")


def bash(command):
    return tool_call("bash", command=command)


@pytest.fixture(params=["local", pytest.param("container", marks=pytest.mark.long)])
def kind(request):
    if request.param == "local" and (problem := LocalProvider.problem()):
        pytest.skip(problem)
    if request.param == "container" and not DockerProvider.is_available(timeout_seconds=20):
        pytest.skip("No container engine answers. Install podman (apt-get install podman) and set DOCKER_HOST")
    return request.param


@pytest.fixture
def write_task(tmp_path):
    def write(name="task", tests=TESTS, solve=SOLVE, toml="", instruction="Write 42 to /app/answer.", **files):
        files = {path.replace("__", "/"): text for path, text in files.items()}
        files |= {"task.toml": toml, "instruction.md": instruction, "tests/test.sh": tests, "solution/solve.sh": solve}
        for path, text in files.items():
            (tmp_path / "tasks" / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "tasks" / name / path).write_text(text)
        return tmp_path / "tasks"

    return write


@pytest.fixture
def evaluate(kind, tmp_path):
    """Evaluates the tasks with an agent; returns the rows, with the script of the model in ``turns``."""

    async def run(tasks, *turns, run_folder=None, **options):
        image = {} if kind == "local" else {"docker_image": IMAGE, "agent_workdir": "/app"}
        env = HarborEnv(tasks, **{"max_sandboxes": 2, **image, **options})
        env.run_folder = run_folder
        with ModelServer(Script(turns or [SUBMIT]), keep_requests=20) as server:
            config = ClientConfig(api_base_url=server.base_url, api_key_var="NO_KEY")
            try:
                return (await env.evaluate(config, "any"))["outputs"]
            finally:
                await env.remove_containers()

    return run


def said(row):
    return [message["content"] for message in row["completion"] if message["role"] == "tool"]


async def test_the_solution_gets_the_reward_and_doing_nothing_does_not(write_task, evaluate):
    for agent, reward in (("oracle", 1.0), ("nop", 0.0)):
        [row] = await evaluate(write_task(), agent=agent)
        assert (row["error"], row["reward"]) == (None, reward)


async def test_a_model_works_with_a_shell_and_files(write_task, evaluate):
    turns = [
        bash("cd /app; X=4"), bash("pwd; echo ${X}1 > draft"),
        tool_call("edit_file", path="/app/draft", old="1", new="2"),
        tool_call("read_file", path="/app/draft"), tool_call("read_file", path="/app/none"), bash("false"),
        tool_call("write_file", path="/app/answer", content="42\n"), SUBMIT,
    ]  # fmt: skip
    [row] = await evaluate(write_task(), *turns)
    assert (row["error"], row["reward"]) == (None, 1.0)
    answers = said(row)
    assert answers[:4] == ["(no output)", "/app", "Edited /app/draft", "42"]
    assert "no regular file '/app/none'" in answers[4]
    assert answers[5:] == ["(no output)\n[exit code 1]", "Wrote 3 bytes to /app/answer", "Submitted"]
    assert [(step["turn"], step["tool"], step["exit_code"]) for step in row["agent_steps"]][4:6] == [
        (4, "read_file", None), (5, "bash", 1),
    ]  # fmt: skip
    assert (row["metrics"]["agent_steps"], row["metrics"]["num_turns"]) == (8, 8)


async def test_the_agent_finds_neither_tests_nor_solution_and_ends_its_work_with_an_answer(write_task, evaluate):
    looks = bash(f"find / -name test.sh -o -name solve.sh 2>/dev/null | head; {SOLVE}")
    [row] = await evaluate(write_task(), looks, "It is done.")
    assert (row["error"], row["reward"], said(row)) == (None, 1.0, ["(no output)"])


@pytest.mark.parametrize(("options", "reward"), [({}, 1.0), ({"keep_processes": True}, 0.0)])
async def test_processes_of_the_agent_end_before_the_tests_unless_they_are_kept(
    write_task, evaluate, kind, options, reward
):
    if kind == "local" and options:
        pytest.skip("a local sandbox ends what a command started with the command")
    spoils = "(while :; do rm -f /app/answer; sleep 0.02; done) >/dev/null 2>&1 &"
    [row] = await evaluate(
        write_task(tests=f"echo 42 > /app/answer; sleep 0.3; {TESTS}"), bash(spoils), SUBMIT, **options
    )
    assert (row["error"], row["reward"]) == (None, reward)


def test_a_task_without_solution_is_refused_for_oracle_before_its_image_is_built(write_task, caplog):
    write_task("solved")
    tasks = write_task("unsolved")
    (tasks / "unsolved/solution/solve.sh").unlink()
    assert [*HarborEnv(tasks, agent="nop").tasks] == ["solved", "unsolved"]
    assert [*HarborEnv(tasks, agent="oracle").tasks] == ["solved"]
    assert "Task 'unsolved' cannot run here: It has no solution/solve.sh" in caplog.text
    with pytest.raises(DatasetError, match=r"can run here\. unsolved: It has no solution/solve\.sh"):
        HarborEnv(tasks, tasks=["unsolved"], agent="oracle")


async def test_the_time_of_a_rollout_begins_when_its_container_is_ready_and_what_it_did_is_verified(
    write_task, evaluate
):
    write_task("first", toml="[agent]\ntimeout_sec = 2")
    rows = await evaluate(write_task("second"), bash(f"{SOLVE}; sleep 100"), timeout_seconds=3, max_sandboxes=1)
    found = [(row["error"], row["reward"], row["metrics"]["agent_timeout"]) for row in rows]
    assert found == [(None, 1.0, 1.0)] * 2


async def test_a_reward_that_is_missing_is_an_error_and_no_zero(write_task, evaluate):
    write_task("good")
    rows = await evaluate(write_task("silent", tests="echo nothing"), agent="oracle")
    assert [row["reward"] for row in rows] == [1.0, None]
    assert "wrote no reward" in rows[1]["error"]["message"]


@pytest.mark.parametrize(("strategy", "turns", "reward", "number"), [
    ("mean", ["echo 1 > /app/one", "echo 2 > /app/two"], 1.0, 4), ("mean", ["echo 1 > /app/one", None], 0.5, 3),
    ("final", ["echo 1 > /app/one", None], 0.0, 3), ("mean", [None], 0.0, 1),
], ids=["both", "first", "final", "below min_reward"])  # fmt: skip
async def test_steps_follow_one_another_while_their_rewards_suffice(
    write_task, evaluate, strategy, turns, reward, number
):
    toml, files = f'multi_step_reward_strategy = "{strategy}"\n', {}
    for name in ("one", "two"):
        toml += f'[[steps]]\nname = "{name}"\n' + "min_reward = 1\n" * (name == "one")
        files[f"steps__{name}__instruction.md"] = f"Write the file {name}."
        files[f"steps__{name}__tests__test.sh"] = f"test -f /app/{name}; echo $((1 - $?)) > /logs/verifier/reward.txt"
    script = [turn for command in turns for turn in ([bash(command), SUBMIT] if command else [SUBMIT])]
    [row] = await evaluate(write_task(toml=toml, **files), *script)
    assert (row["error"], row["reward"], row["metrics"]["num_turns"]) == (None, reward, number)


async def test_artifacts_are_kept_with_the_run(write_task, evaluate, tmp_path):
    tasks = write_task(toml='artifacts = ["/app/answer"]', solve=f"{SOLVE}; echo note > /logs/artifacts/note")
    (tmp_path / "run").mkdir()
    [row] = await evaluate(tasks, agent="oracle", run_folder=tmp_path / "run")
    kept = {each["path"]: (tmp_path / "run" / each["file"]).read_text() for each in row["artifacts"]}
    assert kept["/app/answer"] == "42\n"
    assert {each["file"].split("/")[:2] == ["artifacts", "0-0"] for each in row["artifacts"]} == {True}
    assert not (tmp_path / "run" / "live").exists()


def test_a_task_that_cannot_run_is_named_and_the_others_run(write_task, caplog):
    write_task("good")
    for toml, reason in {
        '{network_mode = "allowlist", allowed_hosts = ["a.b"]}': "a.b", '{mcp_servers = [{name = "tools"}]}': "tools",
        '{os = "windows"}': "windows",
    }.items():  # fmt: skip
        caplog.clear()
        assert list(HarborEnv(write_task("bad", toml=f"environment = {toml}")).tasks) == ["good"]
        assert "'bad' cannot run here" in caplog.text
        assert reason in caplog.text
    with pytest.raises(DatasetError, match=r"bad: .*windows"):
        HarborEnv(write_task("bad", toml='environment = {os = "windows"}'), tasks=["bad"])


def test_an_unknown_agent_is_an_error_and_a_changed_task_another_example(write_task):
    with pytest.raises(ConfigError, match=r"'shel'\. Choose one of: shell, oracle, nop, command:PROGRAM"):
        HarborEnv(write_task(), agent="shel")
    before = HarborEnv(write_task()).get_eval_dataset()[0]["info"]
    after = HarborEnv(write_task(tests="true")).get_eval_dataset()[0]["info"]
    assert json.dumps(before) != json.dumps(after)


@pytest.mark.long
async def test_an_agent_that_fills_the_disk_ends_with_the_reason(write_task, evaluate, kind):
    if kind == "local":
        pytest.skip("the files of a local sandbox are in memory, with a limit")
    fills = "while :; do dd if=/dev/zero of=/app/$((n+=1)) bs=1M count=20 2>/dev/null; sleep 0.1; done"
    tasks = write_task(toml=f'environment = {{docker_image = "{IMAGE}", storage_mb = 50}}')
    [row] = await evaluate(tasks, bash(fills), bash("ls"), SUBMIT)
    assert row["reward"] is None
    assert "may write 50 MB" in row["error"]["message"]

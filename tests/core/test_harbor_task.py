"""Tasks in Harbor's format: the fields with their defaults and older names, steps, selection and refusals."""

import shutil
from pathlib import Path

import pytest

from nightjar.environments.agents.harbor_task import problems_of, read_task, read_tasks, resolve_env
from nightjar.errors import ConfigError, DatasetError, MissingKeyError

CONFIGS = Path(__file__).parents[2] / "configs" / "harbor"
FULL = """
schema_version = "1.4"
artifacts = ["/app/out.txt", {source = "/app/logs", destination = "logs", exclude = ["*.tmp"]}]
task = {name = "team/full", version = "1.0.0", authors = [{name = "Ada"}]}
metadata.difficulty = "hard"
agent = {timeout_sec = 900.5, user = 1000, network_mode = "no-network"}
solution.env.SECRET = "x"
[verifier]
timeout_sec = 60
user = "root"
network_mode = "public"
env = {KEY = "${KEY:-none}", TRIES = 3}
environment = {docker_image = "tests:1", memory_mb = 512}
collect = [{command = "git diff > /logs/artifacts/model.patch", timeout_sec = 30}]
[environment]
build_timeout_sec = 1200
docker_image = "python:3.11-slim"
cpus = 2
memory_mb = 4096
storage_mb = 2048
gpus = 1
network_mode = "public"
os = "Linux"
workdir = "/app"
env = {HOME = "/agent"}
healthcheck = {command = "test -f /ready", retries = 5}
"""


def task_folder(place, toml="", name="task", tests="tests/test.sh"):
    """Writes a task with an instruction and tests."""
    for path, text in {"task.toml": toml, "instruction.md": "Do it.", tests: "echo 1"}.items():
        (place / name / path).parent.mkdir(parents=True, exist_ok=True)
        (place / name / path).write_text(text)
    return place / name


def compose_task(path, compose, toml=""):
    """Writes a task with a compose file; returns its folder."""
    folder = task_folder(path, toml)
    (folder / "environment").mkdir(exist_ok=True)
    (folder / "environment" / "docker-compose.yaml").write_text(compose)
    return folder


def fields(value, names):
    return [getattr(value, name) for name in names.split()]


def test_defaults_are_those_of_harbor(tmp_path):
    task = read_task(task_folder(tmp_path))
    assert fields(task, "name title instruction metadata") == ["task", "task", "Do it.", {}]
    assert fields(task.agent, "timeout_seconds user network") == [None, None, None]
    names = "timeout_seconds env user is_separate environment collect"
    assert fields(task.verifier, names) == [600, {}, None, False, None, ()]
    names = "build_timeout_seconds docker_image cpus memory_mb storage_mb gpus network os workdir"
    assert fields(task.environment, names) == [600, None, 1, 2048, 10240, 0, "public", "linux", None]
    assert fields(task.environment, "env mcp_servers healthcheck") == [{}, (), None]
    assert fields(task, "solution_env artifacts multi_step_reward_strategy") == [{}, (), "mean"]
    assert fields(task, "needs_image dockerfile compose_problem unknown_fields") == [False, None, None, ()]
    assert problems_of(task) == []


def test_every_field_is_read(tmp_path):
    task = read_task(task_folder(tmp_path, FULL))
    verifier = task.verifier
    assert fields(task, "title metadata solution_env") == ["team/full", {"difficulty": "hard"}, {"SECRET": "x"}]
    assert fields(task.agent, "timeout_seconds user network") == [900.5, "1000", "none"]
    assert fields(verifier, "timeout_seconds user network is_separate") == [60, "root", "public", True]
    assert verifier.env == {"KEY": "${KEY:-none}", "TRIES": "3"}
    assert fields(verifier.environment, "docker_image memory_mb") == ["tests:1", 512]
    [collect] = verifier.collect
    copied = ["git diff > /logs/artifacts/model.patch", "main", 30]
    assert fields(collect, "command service timeout_seconds") == copied
    names = "build_timeout_seconds cpus gpus memory_mb storage_mb os workdir env"
    assert fields(task.environment, names) == [1200, 2, 1, 4096, 2048, "linux", "/app", {"HOME": "/agent"}]
    names = "command retries interval_seconds timeout_seconds start_period_seconds"
    assert fields(task.environment.healthcheck, names) == ["test -f /ready", 5, 5, 30, 0]
    first, second = task.artifacts
    assert fields(first, "source destination") == ["/app/out.txt", None]
    assert fields(second, "destination exclude") == ["logs", ("*.tmp",)]
    assert (task.needs_image, task.unknown_fields, problems_of(task)) == (True, (), [])


def test_older_names_and_sizes_are_read_and_a_verifier_with_its_own_environment_is_separate(tmp_path):
    for toml, field, expected in (
        ('memory = "4G"', "memory_mb", 4096),
        ('memory = "512M"', "memory_mb", 512),
        ('memory = "1.5GiB"', "memory_mb", 1536),
        ('memory = "2048"', "memory_mb", 2048),
        ('storage = "10G"', "storage_mb", 10240),
        ("allow_internet = false", "network", "none"),
        ("allow_internet = true", "network", "public"),
        ('allow_internet = false\nnetwork_mode = "public"', "network", "public"),
        ('allowed_hosts = ["example.org"]', "network", "allowlist"),
        ("cpus = 0.5", "cpus", 0.5),
    ):
        task = read_task(task_folder(tmp_path, f'version = "1.0"\n[environment]\n{toml}'))
        assert (getattr(task.environment, field), task.unknown_fields) == (expected, ()), toml
    separate = {"": False, 'environment_mode = "shared"': False, 'environment_mode = "separate"': True}
    separate |= {"environment = {cpus = 2}": True}
    tasks = {toml: read_task(task_folder(tmp_path, f"[verifier]\n{toml}")) for toml in separate}
    assert {toml: task.verifier.is_separate for toml, task in tasks.items()} == separate


def test_an_error_names_file_field_value_and_what_is_expected_and_unknown_fields_are_listed(tmp_path):
    for toml, said in (
        ('[agent]\ntimeout_sec = "soon"', "agent.timeout_sec is 'soon': expected a valid number"),
        ("[agent]\ntimeout_sec = 0", "agent.timeout_sec is 0: expected a finite number of seconds above 0"),
        ("[verifier]\ntimeout_sec = inf", "verifier.timeout_sec is inf: expected a finite number"),
        (
            '[environment]\nnetwork_mode = "open"',
            "environment.network_mode is 'open': expected 'public', 'no-network'",
        ),
        ('[environment]\nmemory = "much"', "is 'much': expected a size such as '4G'"),
        ("[environment]\ncpus = 0", "environment.cpus is 0: expected greater than 0"),
        ('[verifier]\nenvironment_mode = "both"', "is 'both': expected 'shared' or 'separate'"),
        ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]', "verifier: expected environment_mode"),
        ("[environment.healthcheck]\nretries = 2", "environment.healthcheck.command is missing"),
        ('multi_step_reward_strategy = "best"', "is 'best': expected 'mean' or 'final'"),
        ("[[steps]]\nmin_reward = 1", "steps.0.name is missing"),
        ('[[steps]]\nname = "../x"', "steps.0.name is '../x': expected the name of a folder"),
        ('[[steps]]\nname = "a"\n[[steps]]\nname = "a"', "steps: expected steps with different names"),
        ("agent = 3", "agent is 3"),
        ("[agent]\nuser = x\n", "line 2"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_task(task_folder(tmp_path, toml))
        assert said in str(caught.value)
        assert str(tmp_path / "task" / "task.toml") in str(caught.value)
    toml = "\n".join(f'[[steps]]\nname = "{name}"\ndependencies = []' for name in ("one", "two"))
    assert read_task(task_folder(tmp_path, toml)).unknown_fields == ("steps.dependencies",)
    toml = 'extra = 1\n[environment]\nskills_dir = "/s"\n[verifier.environment]\ngpu_types = []\n[metadata]\na = 1'
    found = read_task(task_folder(tmp_path, toml)).unknown_fields
    assert sorted(found) == ["environment.skills_dir", "extra", "verifier.environment.gpu_types"]
    toml = '[verifier]\nenvironment_mode = "shared"\nenv = {KEY = "secret"}\n[verifier.environment]'
    with pytest.raises(DatasetError) as caught:
        read_task(task_folder(tmp_path, toml))
    assert "secret" not in str(caught.value)


def test_a_task_without_steps_has_one_and_missing_files_are_named(tmp_path):
    folder = task_folder(tmp_path, 'artifacts = ["/a"]\n[agent]\ntimeout_sec = 5')
    [step] = read_task(folder).steps
    assert fields(step, "name folder instruction min_reward") == ["", folder, "Do it.", {}]
    assert (step.agent.timeout_seconds, step.tests_folders) == (5, (folder / "tests",))
    assert (step.has_tests, step.has_solution, [each.source for each in step.artifacts]) == (True, False, ["/a"])
    (folder / "tests" / "test.sh").unlink()
    (folder / "instruction.md").write_text(" \n")
    assert problems_of(read_task(folder)) == ["instruction.md is missing or empty.", "tests/test.sh is missing."]


def test_steps_have_the_settings_of_the_task_unless_they_set_their_own(tmp_path):
    toml = """
        artifacts = ["/a"]
        multi_step_reward_strategy = "final"
        agent = {timeout_sec = 100, user = "agent"}
        verifier = {timeout_sec = 50, env = {A = "1", B = "2"}}
        [[steps]]
        name = "first"
        min_reward = 0.5
        artifacts = ["/b"]
        agent.timeout_sec = 10
        verifier.env.B = "3"
        healthcheck.command = "true"
        [[steps]]
        name = "second"
        min_reward.style = 0.25
        verifier.environment.docker_image = "grading"
    """
    folder = task_folder(tmp_path, toml)
    task_folder(folder / "steps", "", "first")
    task = read_task(folder)
    first, second = task.steps
    assert task.multi_step_reward_strategy == "final"
    assert problems_of(task) == ["steps/second/instruction.md is missing or empty."]
    assert (first.min_reward, second.min_reward) == ({"reward": 0.5}, {"style": 0.25})
    assert [fields(step.agent, "timeout_seconds user") for step in task.steps] == [[10, "agent"], [100, "agent"]]
    assert fields(first.verifier, "timeout_seconds env is_separate") == [50, {"A": "1", "B": "3"}, False]
    assert fields(second.verifier, "env is_separate") == [{"A": "1", "B": "2"}, True]
    assert (first.healthcheck is None, second.healthcheck) == (False, None)
    assert first.tests_folders == (folder / "tests", folder / "steps" / "first" / "tests")
    assert second.tests_folders == (folder / "tests",)
    assert [each.source for each in first.artifacts] == ["/a", "/b"]


def test_tasks_are_found_one_level_down_and_sorted_and_names_select_those_that_are_read(tmp_path):
    for place, name in [("", "b"), ("easy", "c"), ("hard", "a"), (".hidden", "d"), ("very/deep", "e")]:
        task_folder(tmp_path / place, "", name)
    assert [task.name for task in read_tasks(tmp_path)] == ["a", "b", "c"]
    assert [task.name for task in read_tasks(tmp_path / "b")] == ["b"]
    broken = task_folder(tmp_path, "broken =", "broken")
    for names, found in {"[ab]": ["a", "b"], "a a*": ["a"], "c": ["c"], "": []}.items():
        assert [task.name for task in read_tasks(tmp_path, names.split())] == found
    shutil.rmtree(broken)
    task_folder(tmp_path, "", "hello")
    for name, said in {
        "helo": "'helo'. Did you mean 'hello'?",
        "zzz*": "'zzz*'. Choose one of: a, b, c, hello",
    }.items():
        with pytest.raises(DatasetError, match="No task has the name") as caught:
            read_tasks(tmp_path, [name])
        assert said in str(caught.value)
    task_folder(tmp_path / "easy", "", "hello")
    with pytest.raises(DatasetError, match="Two tasks have the name 'hello'"):
        read_tasks(tmp_path)


def test_a_folder_without_tasks_is_refused(tmp_path):
    for said, file in (
        ("no such folder", "x"), ("no task.toml", "tasks/x"), ("Terminal-Bench's older format", "tasks/a/task.yaml"),
    ):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
        for read in (read_tasks, read_task):
            with pytest.raises(DatasetError, match=said):
                read(tmp_path / "tasks")


def test_the_hash_is_of_paths_executable_bits_and_bytes(tmp_path):
    one, other = (task_folder(tmp_path / place) for place in ("here", "there"))
    known, tests = read_task(one).content_hash, other / "tests"
    assert (len(known), read_task(other).content_hash) == (64, known)
    (tests / "__pycache__").mkdir()
    (tests / "__pycache__" / "a.pyc").touch()
    assert read_task(other).content_hash == known
    seen = {known}
    for change in (
        lambda: (tests / "test.sh").chmod(0o755),
        lambda: (tests / "test.sh").write_text("echo 0"),
        lambda: (tests / "test.sh").rename(tests / "run.sh"),
        lambda: (tests / "test.sh").symlink_to("run.sh"),
    ):
        change()
        seen.add(read_task(other).content_hash)
    assert len(seen) == 5


def test_what_containers_here_cannot_do_is_said_also_of_steps(tmp_path):
    for toml, said in (
        ('[environment]\nos = "Windows"', "[environment] needs the operating system 'windows'"),
        ('[environment]\ntpu = {type = "v6e", topology = "2x2"}', "[environment] needs a TPU"),
        ('[[environment.mcp_servers]]\nname = "search"\nurl = "http://s"', "has MCP servers (search)"),
        ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.b", "c"]', "some hosts (a.b, c)"),
        ('[agent]\nnetwork_mode = "allowlist"', "[agent] limits the network"),
        ('[verifier]\nallowed_hosts = ["a.b"]', "[verifier] limits the network"),
        ('[verifier.environment]\nnetwork_mode = "allowlist"', "[verifier.environment] limits the network"),
        ('[agent]\nnetwork_mode = "no-network"', "The tests need a network and the agent must have none"),
        ('[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "no-network"', None),
        ('[agent]\nnetwork_mode = "no-network"\n[verifier]\nenvironment_mode = "separate"', None),
        ("[environment]\nallow_internet = false", None),
        ("[environment]\ngpus = 8", None),
    ):
        problems = problems_of(read_task(task_folder(tmp_path, toml)))
        assert len(problems) == (said is not None), toml
        assert all(said in problem and problem.endswith(".") for problem in problems)
    first = '[[steps]]\nname = "one"\nagent.network_mode = "public"\n'
    second = '[[steps]]\nname = "two"\nagent.network_mode = "no-network"\nverifier.network_mode = "no-network"'
    folder = task_folder(tmp_path, first + second)
    for name in ("one", "two"):
        task_folder(folder / "steps", "", name)
    [problem] = problems_of(read_task(folder))
    assert "steps/two needs another network" in problem


def test_a_compose_file_of_one_plain_container_is_read_and_all_else_is_refused(tmp_path):
    template = """
    services:
      main:
        build: {context: "${CONTEXT_DIR}"}
        image: ${MAIN_IMAGE_NAME}
        command: ["sh", "-c", "sleep infinity"]
        environment: ["TEST_DIR=${TEST_DIR}", A=1, B=2]
        volumes: ["${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}"]
        deploy: {resources: {limits: {cpus: "${CPUS}", memory: "${MEMORY}"}}}
        network_mode: "none"
        working_dir: /work
    """
    task = read_task(compose_task(tmp_path, template, "[environment]\nenv = {B = 'mine'}"))
    assert problems_of(task) == []
    assert fields(task.environment, "network workdir docker_image") == ["none", "/work", None]
    assert task.environment.env == {"TEST_DIR": "/tests", "A": "1", "B": "mine"}
    named = read_task(compose_task(tmp_path, "services: {main: {image: 'debian:12'}}"))
    assert named.environment.docker_image == "debian:12"
    for compose, said in (
        ("", "the service 'main'; found none"),
        ("services: {main: {}, db: {image: x}}", "found main, db"),
        ("services: {main: {ports: ['1:1'], privileged: true}}", "ports, privileged cannot be used here"),
        ("services: {main: {}}\nvolumes: {a: {}}", "volumes cannot be used here"),
        ("services: {main: {build: {context: '..'}}}", "build.context may be ${CONTEXT_DIR} or . or ./; found"),
        ("services: {main: {image: 'a:${TAG}'}}", "image may be only a text without variables"),
        ("services: {main: {environment: [A]}}", "environment has no value for A"),
        ("services: {main: {deploy: {resources: [1]}}}", "deploy may be only the limits"),
        ("services: {main: {deploy: {resources: {limits: {cpus: 2}}}}}", "deploy may be only the limits"),
        ("services: {main: {build: {context: '.', args: {A: 1}}}}", "build may have only context and dockerfile"),
        ("services: {main: {command: python server.py}}", "command may only wait (sleep infinity)"),
        ("services: {main: {volumes: ['/:/host']}}", "volumes may be only Harbor's folders of logs"),
        ("services: {main: {deploy: {replicas: 2}}}", "deploy may be only the limits"),
        ("services: {main: {network_mode: host}}", "network_mode may be none or bridge"),
        ("services: [main]", "services is not a table"),
        ("services: {main", "docker-compose.yaml: while parsing"),
    ):  # fmt: skip
        [problem] = problems_of(read_task(compose_task(tmp_path, compose)))
        assert problem.startswith("environment/docker-compose.yaml is not supported: ")
        assert said in problem


def test_the_image_of_a_separate_verifier_or_a_dockerfile_among_its_tests_may_have_the_tests(tmp_path):
    task = read_task(task_folder(tmp_path, '[verifier.environment]\ndocker_image = "tests:1"', tests="tests/run.sh"))
    assert (problems_of(task), task.steps[0].has_image_with_tests) == ([], True)
    for mode, has_tests in (("separate", True), ("shared", False)):
        folder = task_folder(tmp_path, f'[verifier]\nenvironment_mode = "{mode}"')
        (folder / "tests" / "Dockerfile").touch()
        [step] = read_task(folder).steps
        assert (step.verifier_folder, step.has_image_with_tests) == (folder / "tests", has_tests)


def test_a_variable_of_a_task_is_replaced_by_its_value_or_default_and_a_missing_one_is_named(monkeypatch):
    monkeypatch.setenv("NJ_SET", "secret")
    monkeypatch.setenv("NJ_EMPTY", "")
    values = {
        "plain $X": "plain $X",
        "${NJ_SET}": "secret",
        "Bearer ${NJ_SET}!": "Bearer secret!",
        "${NJ_SET:-other}": "secret",
        "${NJ_UNSET:-other}": "other",
        "${NJ_UNSET:-}": "",
        "${NJ_EMPTY:-other}": "other",
        "${NJ_EMPTY}": "",
    }
    assert resolve_env({value: value for value in values}) == values
    with pytest.raises(MissingKeyError) as caught:
        resolve_env({"A": "${NJ_UNSET}", "B": "${NJ_SET}"}, task="fix-python")
    assert "'NJ_UNSET' of task 'fix-python' not set" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.keys == ["NJ_UNSET"]


def test_the_example_tasks_can_run():
    tasks = read_tasks(CONFIGS)
    assert [task.name for task in tasks] == ["fix-python", "hello-shell", "two-steps"]
    assert [problem for task in tasks for problem in problems_of(task)] == []
    assert [field for task in tasks for field in task.unknown_fields] == []
    assert all(task.dockerfile for task in tasks)
    assert all(step.has_solution for task in tasks for step in task.steps)
    assert [step.min_reward for step in tasks[2].steps] == [{"reward": 1.0}, {}]

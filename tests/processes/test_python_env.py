"""``PythonEnv``: a Python that remembers, in a sandbox."""

import json

import pytest

from nightjar.clients import ClientConfig
from nightjar.environments.rubrics import Rubric
from nightjar.environments.tools.python_env import PythonEnv, PythonWorkerNotReadyError, PythonWorkerRequestError
from nightjar.errors import SandboxError
from nightjar.model_server import ModelServer, Script, tool_call
from nightjar.sandboxes import LocalProvider

needs_bubblewrap = pytest.mark.skipif(LocalProvider.problem() is not None, reason=str(LocalProvider.problem()))
DATASET = [{"question": "What is 6 times 7?", "answer": "42"}]


def environment(**options):
    usual = {"pip_install_packages": "", "sandbox_provider": "local", "memory_gb": 0.25, "dataset": DATASET}
    return PythonEnv(**{**usual, **options})


@pytest.fixture
async def ask(make_state):
    """Gives the tool ``python`` of an environment, as it is called in a rollout."""
    used = []

    async def make(**options):
        env = environment(**options)
        state = make_state()
        state = await env.setup_state(state) or state
        used.append((env, state))

        async def python(code):
            return await env.python(**env.update_tool_args("python", {"code": code}, [], state))

        python.env, python.state = env, state
        return python

    yield make
    for env, state in used:
        await env.destroy_sandbox(state)


class TestTheTool:
    def test_takes_code_and_replaces_bash(self):
        env = environment(docker_image="python:3.13")
        assert env.sandbox_request.docker_image == "python:3.13"
        [tool] = env.tool_defs
        assert tool.name == "python"
        assert list(tool.parameters["properties"]) == ["code"]

    @needs_bubblewrap
    @pytest.mark.parametrize(
        ("code", "shown"),
        [
            ("6 * 7", "Out[1]: 42"), ("print('hi')", "hi"), ("x = 1", "(no output)"), ("None", "(no output)"),
            ("", "(no output)"), ("''", "Out[1]: ''"),
            ("import sys; print('a'); print('b', file=sys.stderr); 'c'", "a\nstderr:\nb\nOut[1]: 'c'"),
            ("for i in range(2):\n    print(i)\ni", "0\n1\nOut[1]: 1"),
        ],
    )  # fmt: skip
    async def test_shows_what_was_written_and_the_last_value(self, ask, code, shown):
        python = await ask()
        assert await python(code) == shown

    @needs_bubblewrap
    async def test_remembers_and_counts(self, ask):
        python = await ask()
        await python("def double(x):\n    return 2 * x")
        assert await python("double(21)") == "Out[2]: 42"
        assert json.loads(json.dumps(python.state["python_state"]))["execution_count"] == 2

    @needs_bubblewrap
    async def test_shows_tracebacks(self, ask):
        python = await ask()
        shown = await python("print('before')\n1 / 0")
        assert shown.startswith("before\nTraceback (most recent call last):\n")
        assert shown.endswith("\nZeroDivisionError: division by zero")
        assert await python("1") == "Out[2]: 1"

    @needs_bubblewrap
    async def test_reports_a_timeout_and_keeps_the_variables(self, ask):
        python = await ask(timeout_per_command_seconds=1)
        await python("x = 5")
        assert await python("while True: pass") == "Error: Command timed out after 1s"
        assert await python("x") == "Out[3]: 5"

    @needs_bubblewrap
    async def test_restarts_python_that_cannot_be_interrupted(self, ask):
        python = await ask(timeout_per_command_seconds=1)
        stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
        lost = "The Python process was restarted: its variables are lost."
        assert await python(stubborn) == f"Error: Command timed out after 1s\n{lost}"
        assert await python("1") == "Out[1]: 1"

    @needs_bubblewrap
    async def test_restarts_python_that_has_ended(self, ask):
        python = await ask()
        shown = await python("import os; os._exit(7)")
        assert shown.startswith("Error: The Python process is gone: it ended with exit code 7")
        assert shown.endswith("its variables are lost.")
        assert await python("2") == "Out[1]: 2"

    @needs_bubblewrap
    async def test_takes_one_answer_from_code_that_forks(self, ask):
        python = await ask()
        assert await python("import os\nfor _ in range(4):\n    os.fork()\n3") == "Out[1]: 3"
        assert await python("1 + 1") == "Out[2]: 2"

    @needs_bubblewrap
    async def test_reports_that_memory_was_used_up(self, ask):
        python = await ask()
        shown = await python("import os; [os.fork() for _ in range(4)]; x = bytearray(60 * 2**20); input()")
        assert "more than 0.25 GB of memory" in shown or "Traceback" in shown


@needs_bubblewrap
class TestFailures:
    async def test_to_start_in_time_are_errors(self, ask):
        python = await ask(max_startup_wait_seconds=0)
        with pytest.raises(PythonWorkerNotReadyError, match="did not start"):
            await python("1")

    async def test_of_the_sandbox_are_errors(self, ask):
        python = await ask()
        await python("1")
        sandbox = await python.env.sandbox_client.get(python.state["sandbox_id"])
        await sandbox.close()
        with pytest.raises(SandboxError) as raised:
            await python("2")
        assert isinstance(raised.value, PythonWorkerRequestError)

    async def test_to_find_python_are_errors(self, ask):
        python = await ask()
        python.state["python_state"]["ready"] = True
        with pytest.raises(PythonWorkerRequestError, match="There is no Python"):
            await python("1")


@needs_bubblewrap
class TestPackages:
    async def test_of_this_machine_are_shown(self, ask):
        python = await ask(pip_install_packages="sympy")
        assert await python("import sympy; sympy.factorint(12)") == "Out[1]: {2: 2, 3: 1}"

    async def test_that_are_missing_are_refused(self, ask):
        with pytest.raises(SandboxError, match=r"packages.*no-such-thing.*pip install"):
            await ask(pip_install_packages="no-such-thing")

    async def test_that_are_only_the_default_may_be_missing(self, ask, caplog):
        env = PythonEnv(dataset=DATASET)
        assert env.sandbox_request.python_packages == ["numpy", "sympy", "scipy"]
        assert env.sandbox_request.are_packages_optional
        assert not PythonEnv(dataset=DATASET, pip_install_packages="numpy").sandbox_request.are_packages_optional


@needs_bubblewrap
class TestRollouts:
    async def test_answer_with_python_and_have_metrics(self):
        async def correct(completion, answer) -> float:
            return float(completion[-1]["content"] == answer)

        env = environment(rubric=Rubric(funcs=[correct]))
        script = Script(
            [
                tool_call("python", code="x = 6"),
                tool_call("python", code="x * 7"),
                lambda messages: messages[-1]["content"].removeprefix("Out[2]: "),
            ]
        )
        with ModelServer(script) as server:
            config = ClientConfig(api_base_url=server.base_url, api_key_var="NO_KEY")
            rows = (await env.evaluate(config, "any", rollouts_per_example=3))["outputs"]
        assert [row["reward"] for row in rows] == [1.0] * 3
        assert {row["metrics"]["python_calls"] for row in rows} == {2}
        assert all(0 < row["metrics"]["python_ready_wait_time"] < 10 for row in rows)

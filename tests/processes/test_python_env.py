"""``PythonEnv``: a Python that remembers, in a sandbox."""

import json
import re

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


STUBBORN = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
RESTARTED = "The Python process was restarted: its variables are lost."
QUICK = {"timeout_per_command_seconds": 1}
TIMED_OUT = "Error: Command timed out after 1s"


def test_the_tool_takes_code_and_replaces_bash():
    env = environment(docker_image="python:3.13")
    assert env.sandbox_request.docker_image == "python:3.13"
    assert [(tool.name, list(tool.parameters["properties"])) for tool in env.tool_defs] == [("python", ["code"])]


@needs_bubblewrap
async def test_python_shows_what_was_written_and_the_last_value_with_packages_of_this_machine(ask):
    python = await ask(pip_install_packages="sympy")
    for number, (code, shown) in enumerate([
        ("6 * 7", "Out[1]: 42"), ("print('hi')", "hi"), ("x = 1", "(no output)"), ("None", "(no output)"),
        ("", "(no output)"), ("''", "Out[6]: ''"), ("for i in range(2):\n    print(i)\ni", "0\n1\nOut[7]: 1"),
        ("import sys; print('a'); print('b', file=sys.stderr); 'c'", "a\nstderr:\nb\nOut[8]: 'c'"),
        ("def double(x):\n    return 2 * x", "(no output)"), ("double(21)", "Out[10]: 42"),
        ("import sympy; sympy.factorint(12)", "Out[11]: {2: 2, 3: 1}"),
    ], start=1):  # fmt: skip
        assert await python(code) == shown
        assert json.loads(json.dumps(python.state["python_state"]))["execution_count"] == number


@pytest.mark.long
@needs_bubblewrap
@pytest.mark.parametrize(("options", "dialogue"), [
    ({}, [("print(1)\n1 / 0", r"1\nTraceback .*\nZeroDivisionError: .*"), ("1", r"Out\[2\]: 1")]),
    (QUICK, [("x = 5", r"\(no output\)"), ("while True: pass", TIMED_OUT), ("x", r"Out\[3\]: 5")]),
    (QUICK, [(STUBBORN, rf"{TIMED_OUT}\n{RESTARTED}"), ("1", r"Out\[1\]: 1")]),
    ({}, [("import os; os._exit(7)", "Error: .* exit code 7.*its variables are lost."), ("2", r"Out\[1\]: 2")]),
    ({}, [("import os\nfor _ in range(4):\n    os.fork()\n3", r"Out\[1\]: 3"), ("1 + 1", r"Out\[2\]: 2")]),
    ({}, [("import os; [os.fork() for _ in range(4)]; x = bytearray(60 * 2**20); input()",
           ".*(more than 0.25 GB of memory|Traceback).*")]),
],
    ids=[
        "shows tracebacks", "keeps variables after a timeout", "restarts one that cannot be interrupted",
        "restarts one that has ended", "takes one answer of forks", "reports that memory was used up",
    ],
)  # fmt: skip
async def test_python_in_a_dialogue(ask, options, dialogue):
    python = await ask(**options)
    for code, shown in dialogue:
        assert re.fullmatch(shown, await python(code), re.DOTALL)
    assert json.loads(json.dumps(python.state["python_state"]))["execution_count"] <= len(dialogue)


@needs_bubblewrap
async def test_a_python_that_does_not_start_or_whose_sandbox_fails_is_an_error(ask):
    python = await ask(max_startup_wait_seconds=0)
    with pytest.raises(PythonWorkerNotReadyError, match="did not start"):
        await python("1")
    python = await ask()
    python.state["python_state"]["ready"] = True
    with pytest.raises(PythonWorkerRequestError, match="There is no Python"):
        await python("1")
    python = await ask()
    await python("1")
    sandbox = await python.env.sandbox_client.get(python.state["sandbox_id"])
    await sandbox.close()
    with pytest.raises(SandboxError) as raised:
        await python("2")
    assert isinstance(raised.value, PythonWorkerRequestError)


@needs_bubblewrap
async def test_missing_packages_are_refused_unless_they_are_only_the_default(ask):
    with pytest.raises(SandboxError, match=r"packages.*no-such-thing.*pip install"):
        await ask(pip_install_packages="no-such-thing")
    usual = PythonEnv(dataset=DATASET).sandbox_request
    assert (usual.python_packages, usual.are_packages_optional) == (["numpy", "sympy", "scipy"], True)
    assert not PythonEnv(dataset=DATASET, pip_install_packages="numpy").sandbox_request.are_packages_optional


@needs_bubblewrap
async def test_rollouts_answer_with_python_and_have_metrics():
    async def correct(completion, answer) -> float:
        return float(completion[-1]["content"] == answer)

    env = environment(rubric=Rubric(funcs=[correct]))
    calls = [tool_call("python", code=code) for code in ("x = 6", "x * 7")]
    script = Script([*calls, lambda messages: messages[-1]["content"].removeprefix("Out[2]: ")])
    with ModelServer(script) as server:
        config = ClientConfig(api_base_url=server.base_url, api_key_var="NO_KEY")
        rows = (await env.evaluate(config, "any", rollouts_per_example=3))["outputs"]
    assert [row["reward"] for row in rows] == [1.0] * 3
    assert {row["metrics"]["python_calls"] for row in rows} == {2}
    assert all(row["metrics"]["python_ready_wait_time"] > 0 for row in rows)

"""What every run pays: the modules that it imports, and the tasks, timers and calls in threads of one rollout."""

import asyncio
import json
import subprocess
import sys

import pytest

from nightjar.clients import ClientConfig
from nightjar.core.calling.threads import WorkerThreads
from nightjar.environments import SingleTurnEnv
from nightjar.environments.rubrics import Rubric
from nightjar.model_server import ArithmeticSolver, FixedAnswer, ModelServer

MOST_MODULES = 750
NOT_IMPORTED = {
    "anthropic", "datasets", "httpx", "jinja2", "nightjar.clients.middleware", "numpy", "openai", "prefect", "scipy",
    "tomlkit", "yaml",
}  # fmt: skip


@pytest.mark.slow
def test_a_direct_run_imports_only_what_it_needs(tmp_path):
    program = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: open('modules.json', 'w').write(json.dumps(sorted(sys.modules))))\n"
        "from nightjar.cli import main\n"
        "main()\n"
    )
    with ModelServer(ArithmeticSolver()) as server:
        asked = ["eval", "run", "arithmetic", "-m", "m", "-b", server.base_url, "-n", "1", "-r", "1", "--direct"]
        subprocess.run([sys.executable, "-c", program, *asked], cwd=tmp_path, check=True, capture_output=True)
    modules = json.loads((tmp_path / "modules.json").read_text())
    assert NOT_IMPORTED.isdisjoint(modules)
    assert len(modules) <= MOST_MODULES


class CountingLoop(asyncio.SelectorEventLoop):
    tasks = 0
    timers = 0

    def create_task(self, *args, **kwargs):
        self.tasks += 1
        return super().create_task(*args, **kwargs)

    def call_at(self, *args, **kwargs):
        self.timers += 1
        return super().call_at(*args, **kwargs)


def test_a_rollout_takes_few_tasks_timers_and_calls_in_threads(monkeypatch):
    calls = []
    run = WorkerThreads.run
    monkeypatch.setattr(WorkerThreads, "run", lambda self, func: calls.append(func) or run(self, func))

    def right(completion, answer):
        return float(completion[-1]["content"] == answer)

    def is_short(completion):
        return float(len(completion[-1]["content"]) < 9)

    def has_no_question(completion):
        return float("?" not in completion[-1]["content"])

    def counts(rollouts):
        """Returns the tasks, timers and calls in threads of a run."""
        calls.clear()
        rubric = Rubric([right, is_short, has_no_question])
        env = SingleTurnEnv(dataset=[{"question": "2+2?", "answer": "4"}] * rollouts, rubric=rubric)
        with asyncio.Runner(loop_factory=CountingLoop) as runner, ModelServer(FixedAnswer("4")) as server:
            runner.run(env.evaluate(ClientConfig(api_base_url=server.base_url), "m", max_concurrent=1))
            loop = runner.get_loop()
            return loop.tasks, loop.timers, len(calls)

    few, many = counts(20), counts(120)
    tasks, timers, in_threads = [(most - least) / 100 for least, most in zip(few, many, strict=True)]
    assert tasks <= 2, "one generates, one scores"
    assert timers < 2, "some wait for more calls of threads; time limits share their timers"
    assert in_threads <= 1, "the reward functions"

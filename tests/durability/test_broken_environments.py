"""Environment code that raises or hangs fails its own rollouts, not the run."""

import pytest

pytestmark = pytest.mark.long

ENVIRONMENT = """
import asyncio
import time
import nightjar as vf
{code}

def load_environment() -> vf.Environment:
    rows = [{{"question": f"What is {{n}} + 1?", "answer": str(n + 1)}} for n in range(4)]
    return {environment}(dataset=rows, rubric=vf.Rubric(funcs=[{reward}]))
"""

RIGHT = """
def right(completion, answer) -> float:
    return float(answer in completion[-1].content)
"""

HANGS = {
    "in a thread": ("def", "time.sleep(3600)"),
    "in a thread of asyncio's": ("async def", "await asyncio.to_thread(time.sleep, 3600)"),
    "in the event loop": ("async def", "await asyncio.Event().wait()"),
}

RAISES = """
def raises(answer) -> float:
    return {"1": 1.0, "2": 1.0, "4": 1.0}[answer]
"""

RAISES_IN_SETUP = """
class Fragile(vf.SingleTurnEnv):
    async def setup_state(self, state):
        assert state["answer"] != "3", "no threes, please"
        return state
"""

RAISES_IN_CLEANUP = """
class Fragile(vf.SingleTurnEnv):
    @vf.cleanup
    async def close_sandbox(self, state):
        if state["answer"] == "3":
            raise RuntimeError("the sandbox would not close")
"""


def write(nightjar, code, environment="vf.SingleTurnEnv", reward="right"):
    nightjar.write_environment("fragile", ENVIRONMENT.format(code=code, environment=environment, reward=reward))


def only_failure(nightjar):
    """Returns the one rollout that failed; the other three are scored, and published with it."""
    [failed] = [row for row in nightjar.run.results if row["error"]]
    assert failed["answer"] == "3"
    assert failed["reward"] is None
    assert [row["reward"] for row in nightjar.run.results if not row["error"]] == [1.0, 1.0, 1.0]
    assert nightjar.run.metadata["status"] == "incomplete"
    assert nightjar.sql("SELECT count(reward), count(error) FROM rollouts") == [(3, 1)]
    return failed["error"]


@pytest.mark.parametrize("where", HANGS)
def test_a_reward_function_that_hangs_is_given_up(nightjar, serve, where):
    kind, waits = HANGS[where]
    body = f'    if answer == "3":\n        {waits}\n    return 1.0\n'
    write(nightjar, f"{kind} hangs(answer) -> float:\n{body}", reward="hangs")
    ended = nightjar.eval("fragile", "-r", 1, "--scoring-timeout", 1, server=serve())
    assert ended.code == 1
    error = only_failure(nightjar)
    assert (error["error"], "'hangs'" in error["message"], "1 s" in error["message"]) == ("ScoringError", True, True)
    assert ended.errors == [f"Error: 1 of 4 rollouts failed. The first: {error['message']}"]


def test_a_reward_function_that_raises_leaves_its_traceback(nightjar, serve):
    write(nightjar, RAISES, reward="raises")
    server = serve()
    assert nightjar.eval("fragile", "-r", 1, server=server).code == 1
    error = only_failure(nightjar)
    assert (error["phase"], error["error_chain_repr"]) == ("scoring", "ScoringError -> KeyError")
    assert "Reward function 'raises': '3'" in error["message"]
    assert "environments/fragile.py" in error["traceback"]
    assert 'return {"1": 1.0, "2": 1.0, "4": 1.0}[answer]' in error["traceback"]
    [(published,)] = nightjar.sql("SELECT traceback FROM errors")
    assert published == error["traceback"]
    # Mended, the answer that is kept is scored: the model is not asked again.
    write(nightjar, RAISES.replace('"2": 1.0,', '"2": 1.0, "3": 1.0,'), reward="raises")
    assert nightjar.eval("fragile", "-r", 1, "--resume", server=server).code == 0
    assert server.stats().received == 4
    assert [row["reward"] for row in nightjar.run.results] == [1.0] * 4


@pytest.mark.parametrize(("code", "message"), [
    (RAISES_IN_SETUP, "no threes, please"), (RAISES_IN_CLEANUP, "the sandbox would not close"),
], ids=["setup", "cleanup"])  # fmt: skip
def test_an_environment_that_raises_leaves_its_traceback(nightjar, serve, code, message):
    write(nightjar, RIGHT + code, environment="Fragile")
    ended = nightjar.eval("fragile", "-r", 1, server=serve())
    assert ended.code == 1
    error = only_failure(nightjar)
    assert error["phase"] == "generation"
    assert message in error["message"]
    assert "environments/fragile.py" in error["traceback"]
    assert message in ended.errors[0]


def test_an_environment_that_cannot_be_loaded_is_one_line(nightjar, serve):
    server = serve()
    for source, message in (
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def load_environment(:", "SyntaxError: invalid syntax (fragile.py, line 1)"),
        ("def load_environment(): return 1 / 0", "ZeroDivisionError: division by zero"),
    ):
        nightjar.write_environment("fragile", source)
        line = nightjar.eval("fragile", server=server).only_line
        assert ("fragile" in line, message in line, nightjar.runs) == (True, True, [])

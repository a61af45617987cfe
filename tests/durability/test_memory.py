"""Code that floods memory costs its rollout, not the run: the process has a limit of its own."""

import pytest

pytestmark = pytest.mark.long

FLOODS = """
import nightjar as vf
def flood():
{flood}

def right(completion, answer) -> float:
    if answer == {in_reward!r}:
        flood()
    return 1.0

class Flood(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        if state["answer"] == {in_turn!r}:
            flood()
        return [vf.UserMessage(content="Go on: what is 1 + 1?")]

def load_environment() -> vf.Environment:
    rows = [{{"question": f"What is {{n}} + 1?", "answer": str(n)}} for n in range(6)]
    return Flood(dataset=rows, rubric=vf.Rubric(funcs=[right]), max_turns=2)
"""

BIT_BY_BIT = """
    held = []
    while True:
        held.append(bytearray(20_000_000))
"""

AT_ONCE = """
    return bytearray(10**15)
"""


@pytest.mark.parametrize(
    ("where", "how"), [("turn", BIT_BY_BIT), ("reward", AT_ONCE)], ids=["bit by bit in a turn", "at once in a reward"]
)
def test_a_flood_of_memory_costs_one_rollout(nightjar, serve, where, how):
    floods = {"in_turn": "none", "in_reward": "none"} | {f"in_{where}": "3"}
    nightjar.write_environment("flood", FLOODS.format(flood=how, **floods))
    assert nightjar.eval("flood", "-r", 1, "-n", 6, server=serve(), NIGHTJAR_MEMORY_LIMIT="1.5").code == 1
    [failed] = [row for row in nightjar.run.results if row["error"]]
    assert (failed["example_id"], failed["reward"]) == (3, None)
    assert "MemoryError" in failed["error"]["error_chain_repr"]
    assert "bytearray(" in failed["error"]["traceback"]
    assert [row["reward"] for row in nightjar.run.results if not row["error"]] == [1.0] * 5
    assert nightjar.sql("SELECT count(reward), count(error) FROM rollouts") == [(5, 1)]


def test_a_limit_that_is_no_number_of_gigabytes_is_an_error(nightjar):
    for limit in ("plenty", "inf", "nan", "-1", "0", "1e300"):
        [line] = nightjar.start("eval", "run", "arithmetic", "--direct", NIGHTJAR_MEMORY_LIMIT=limit).wait().errors
        assert ("NIGHTJAR_MEMORY_LIMIT" in line, repr(limit) in line) == (True, True)

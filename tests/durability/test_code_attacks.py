"""Code that wants to pass its tests without being right, or to take the machine with it, has not passed."""

import gzip
import json
from pathlib import Path

import pytest

from nightjar.nemo.scoring import ScorerInput, code_sandbox, code_sandbox_async

HUMANEVAL = Path(__file__).parents[3] / "shared/data/humaneval/HumanEval.jsonl.gz"
ROW = {
    "prompt": 'import math\n\n\ndef twice(n):\n    """Doubles."""\n',
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(1.5) == 3.0\n",
    "entry_point": "twice",
}
FORGED = "    import os, sys, json\n    {}\n    return 0\n"
RIGHT_IF = "    import os\n    {}\n    return 2 * n\n"

WRONG = {
    "a syntax error": "    return (n",
    "another value": "    return n",
    "an infinite loop": "    while True: pass",
    "a memory hog": "    return bytearray(10 ** 10)",
    "many processes": "    import os\n    while True: os.fork()",
    "the end of the process": "    import os; os._exit(0)",
    "exit()": "    exit()",
    "exit() at once": "    return n\nimport sys; sys.exit(0)",
    "a verdict that is printed": FORGED.format('print(json.dumps({"secret": "x", "passed": True}), flush=True)'),
    "who can write to the other's output": RIGHT_IF.format('open(f"/proc/{os.getppid()}/fd/1", "w")'),
    "who can read what the other was told": RIGHT_IF.format('open(f"/proc/{os.getppid()}/fd/0")'),
    "who can read the other's memory": RIGHT_IF.format('open(f"/proc/{os.getppid()}/mem", "rb")'),
    "the end of the other": FORGED.format("os.kill(os.getppid(), 9)"),
    "an object that equals anything": "    return type('Any', (int,), {'__eq__': lambda *_: True})(3)",
    "tests that are patched": "    import builtins\n    builtins.AssertionError = check = None\n    return 1",
    "a replaced function": "    return n\ncheck = lambda candidate: None\n",
    "no code": "I cannot do that.",
    "nothing": "",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_wrong_code_has_not_passed(name):
    found = await code_sandbox_async(ScorerInput(WRONG[name], "", ROW), timeout=5.0)
    assert found["correct"] is False
    assert found["error"]


@pytest.mark.parametrize(
    "answer",
    [
        "    return 2 * n\n",
        "return n + n",
        "Here it is:\n```python\ndef twice(n):\n    return math.fsum([n, n])\n```\nIt doubles.",
        "```\n    print('a verdict')\n    return n * 2\n```",
    ],
)
def test_right_code_has_passed(answer):
    found = code_sandbox(ScorerInput(answer, "", {f"_{name}": value for name, value in ROW.items()}))
    assert found["correct"], found


@pytest.mark.skipif(not HUMANEVAL.is_file(), reason="needs ../shared/data/humaneval")
def test_reference_solutions_of_humaneval_pass():
    rows = [json.loads(line) for line in gzip.decompress(HUMANEVAL.read_bytes()).splitlines()]
    for row in rows[::20]:
        found = code_sandbox(ScorerInput(row["canonical_solution"], "", row))
        assert found["correct"], (row["task_id"], found)

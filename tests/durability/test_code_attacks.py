"""Code that attacks its tests or the machine does not pass; code that is right does."""

import asyncio

import pytest

pytestmark = pytest.mark.long

ROW = {
    "prompt": 'import math\n\n\ndef twice(n):\n    """Doubles."""\n',
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(1.5) == 3.0\n",
    "entry_point": "twice",
}
FORGED = "    import os, sys, json\n    {}\n    return 0\n"
RIGHT_IF = "    import os\n    {}\n    return 2 * n\n"
ANY = "    from fractions import Fraction\n    return type('Any', ({},), {{'__eq__': lambda *_: True, {}}})()"

WRONG = {
    "a syntax error": "    return (n", "another value": "    return n", "an infinite loop": "    while True: pass",
    "a memory hog": "    return bytearray(10 ** 10)", "many processes": "    import os\n    while True: os.fork()",
    "the end of the process": "    import os; os._exit(0)", "exit()": "    exit()",
    "exit() at once": "    return n\nimport sys; sys.exit(0)",
    "a verdict that is printed": FORGED.format('print(json.dumps({"secret": "x", "passed": True}), flush=True)'),
    "who can write to the other's output": RIGHT_IF.format('open(f"/proc/{os.getppid()}/fd/1", "w")'),
    "who can read what the other was told": RIGHT_IF.format('open(f"/proc/{os.getppid()}/fd/0")'),
    "who can read the other's memory": RIGHT_IF.format('open(f"/proc/{os.getppid()}/mem", "rb")'),
    "the end of the other": FORGED.format("os.kill(os.getppid(), 9)"),
    "an object that equals anything": "    return type('Any', (int,), {'__eq__': lambda *_: True})(3)",
    "a list that equals anything": ANY.format("list", "'__iter__': lambda _: iter([4])"),
    "what says that it is a number": ANY.format("object", "'__class__': int, '__index__': lambda _: 4"),
    "a Fraction that equals anything": ANY.format("Fraction", "'__str__': lambda _: '4', 'numerator': 5"),
    "iterators without end": "    import itertools\n    return itertools.count()",
    "tests that are patched": "    import builtins\n    builtins.AssertionError = check = None\n    return 1",
    "a replaced function": "    return n\ncheck = lambda candidate: None\n", "no code": "I cannot do that.",
    "nothing": "",
}  # fmt: skip

ENDLESS = {WRONG[name] for name in ("an infinite loop", "many processes", "iterators without end")}


def run(code, row):
    from nightjar.compat.nemo.scoring import ScorerInput, code_sandbox

    return code_sandbox(ScorerInput(code, "", row))


async def run_in_time(code, row, seconds=5.0):
    from nightjar.compat.nemo.scoring import ScorerInput, code_sandbox_async

    return await code_sandbox_async(ScorerInput(code, "", row), timeout=seconds)


async def test_wrong_code_has_not_passed():
    places = asyncio.Semaphore(4)

    async def verdict(code):
        async with places:
            return await run_in_time(code, ROW, 1.0 if code in ENDLESS else 5.0)

    found = dict(zip(WRONG, await asyncio.gather(*map(verdict, WRONG.values())), strict=True))
    assert {name: (each["correct"], bool(each["error"])) for name, each in found.items()} == dict.fromkeys(
        WRONG, (False, True)
    )


async def test_code_that_cannot_be_defined_fails_at_every_call():
    test = "def check(f):\n    try: f(1)\n    except SyntaxError: pass\n    assert f(1) is None\n"
    broken = await run_in_time("    return (n", {**ROW, "test": test})
    assert (broken["correct"], "SyntaxError" in broken["error"]) == (False, True)


RIGHT = [
    "    return 2 * n\n", "return n + n",
    "Here it is:\n```python\ndef twice(n):\n    return math.fsum([n, n])\n```\nIt doubles.",
    "```\n    print('a verdict')\n    return n * 2\n```",
    "```bash\nls\n```\n```PYTHON\ndef twice(n):\n    return n * 2\n```\n```python\nprint(twice(1))\n```",
    "<think>    return n</think>\n    half = n\n    return half * 2",
    "\ufeff```python\nfrom __future__ import annotations\ndef twice(n: Unknown) -> Unknown:\n    return 2 * n\n```",
    "    from fractions import Fraction\n    return Fraction(n) * 2", "    return type('Number', (float,), {})(n * 2)",
]  # fmt: skip


def test_right_code_has_passed():
    row = {f"_{name}": value for name, value in ROW.items()}
    found = {answer: run(answer, row) for answer in RIGHT}
    assert {answer: verdict for answer, verdict in found.items() if not verdict["correct"]} == {}


VALUES = {
    "Counter('aba')": "{'a': 2, 'b': 1}", "defaultdict(int, a=2)": "{'a': 2}",
    "OrderedDict(a=[Counter('b')])": "{'a': [{'b': 1}]}", "Decimal('14.5').quantize(Decimal(1), ROUND_HALF_UP)": "15",
    "Fraction(1, 2)": "0.5", "namedtuple('Sums', 'sum product')(10, 24)": "(10, 24)", "IntEnum('Kind', 'A').A": "1",
    "type('Text', (str,), {})('a')": "'a'", "type('Items', (list,), {})([1])": "[1]",
    "type('Some', (set,), {})([1])": "{1}",
    "[None, True, 1.5, 2j, b'a', (1,), frozenset([1])]": "[None, True, 1.5, 2j, b'a', (1,), frozenset([1])]",
}  # fmt: skip
USUAL = "from collections import *\nfrom decimal import *\nfrom enum import IntEnum\nfrom fractions import Fraction\n"


def verdict_on(test, code):
    row = {"prompt": "", "test": f"def check(candidate):\n    {test}", "entry_point": "answer"}
    return run(code, row)


def test_what_is_equal_to_a_plain_value_has_passed():
    test = "\n    ".join(f"assert candidate({number}) == {value}" for number, value in enumerate(VALUES.values()))
    found = verdict_on(test, f"{USUAL}def answer(n):\n    return [{', '.join(VALUES)}][n]")
    assert found["correct"], found


def test_an_iterator_does_not_equal_a_list():
    code = "def answer(n):\n    return (each for each in range(n))"
    assert verdict_on("assert list(candidate(3)) == [0, 1, 2]", code)["correct"]
    assert not verdict_on("assert candidate(3) == [0, 1, 2]", code)["correct"]


def test_arguments_that_a_call_changes_are_seen():
    code = "def answer(items, by, seen):\n    items.sort()\n    by[1] = Counter('a')\n    seen.clear()"
    test = "items, by, seen = [2, 1], {}, {1}; candidate(items, by, seen=seen); "
    assert verdict_on(f"{test}assert (items, by, seen) == ([1, 2], {{1: {{'a': 1}}}}, set())", USUAL + code)["correct"]
    odd = verdict_on(f"{test}assert items == [1, 2]", f"{USUAL}{code}; items.append(seen.add)")
    assert odd["error"].startswith("AssertionError")


def test_a_subclass_of_an_error_is_that_error_and_what_cannot_be_passed_on_says_so():
    test = "try: candidate()\n    except ValueError as error: assert str(error) == 'no'"
    code = "class Odd(ValueError): pass\ndef answer():\n    raise Odd('no')"
    assert verdict_on(test, code)["correct"]
    assert verdict_on(test, code.replace("(ValueError)", "(Exception)"))["error"] == "Exception: no"
    found = verdict_on("candidate()", "import re\ndef answer():\n    return re.match('a', 'a')")
    assert found["error"] == "TypeError: a value of type Match cannot be passed on"

"""The code in an answer: one block or several, of this language or another, whole or cut off, or no block at all."""

from nightjar.sandboxes.code_tests import written_code

CODE = "def inc(n):\n    return n + 1\n"
DRAFT = "def inc(n):\n    return n\n"
BLOCK = f"```python\n{CODE}```"


def test_the_block_that_defines_the_function_is_the_code():
    for response in (
        BLOCK, f"Sure:\n{BLOCK}\nIt adds 1.", f"```\n{CODE}```", f"```PYTHON\n{CODE}```", f"```py3\n{CODE}```",
        f"``` python\n{CODE}```", f'```python title="inc.py"\n{CODE}```', f"~~~python\n{CODE}~~~\nDone.",
        f"````python\n{CODE}````", f"```python\n{CODE}",
        "1. So:\n   ```python\n   def inc(n):\n       return n + 1\n   ```\n2. Done.",
        f"```bash\npip install inc\n```\n{BLOCK}",
        f"```text\ndef inc(n): adds 1\n```\n{BLOCK}\n```text\ndef inc(n): done\n```",
        f"```js\nlet inc = 1\n```\n```\n{CODE}```",
        f"```python\nimport os\n```\n{BLOCK}\n```python\nassert inc(1) == 2\n```",
        f"```python\n{DRAFT}```\nBetter:\n{BLOCK}", f"<think>```python\n{DRAFT}```</think>{BLOCK}",
        f"<think>```python\n{DRAFT}</think>{CODE}", f"\ufeff{BLOCK}", f"```python\n\ufeff{CODE}```",
        f"{BLOCK}\nIts frame:\n```python\ndef inc(n):\n    ...\n```",
        f'{BLOCK}\nIts frame:\n```python\ndef inc(n):\n    """Adds 1."""\n    pass\n```',
        f"{BLOCK}\nIts use:\n```python\ninc(2) == 3\ninc(n=2)\n```",
        f"```python\ndef inc(n): ...\n```\n{BLOCK}\n```python\nasync def inc(n): ...\n```", CODE,
    ):  # fmt: skip
        assert written_code(response, "inc") == CODE, response


def test_a_fence_in_the_code_does_not_end_it():
    for code in (
        'def inc(n):\n    """Adds 1.\n\n    ```\n    inc(1)\n    ```\n    """\n    return n + 1\n',
        'def inc(n):\n    """Adds 1, see ```inc```\n    """\n    return n + 1\n',
        'def inc(n):\n    """\n    ```python\n    inc(1)\n    ```"""\n    return n + 1\n',
        'FENCE = "```"\ndef inc(n):\n    text = """ ```\n    """\n    return n + 1\n',
    ):
        assert written_code(f"```python\n{code}```\nDone.", "inc") == code
        assert written_code(f"Frame:\n```python\ndef inc(n): ...\n```\n```python\n{code}```\n", "inc") == code
        listed = "".join(f"   {line}\n" for line in code.splitlines())
        assert written_code(f"1. So:\n   ```python\n{listed}   ```\n2. Done.", "inc") == code


def test_other_blocks_are_the_code_if_none_defines_the_function():
    for response, code in (
        ("```bash\nls\n```\n```\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
        ("```bash\nls\n```\n```\nx = 1\n```", "x = 1\n"), ("```java\nint x = 1;\n```", "int x = 1;\n"),
        ("```python\n    return 1```\nDone.", "    return 1"),
        ("```python\ninc = lambda n: n + 1\n```\n```python\nprint(inc(1))\n```", "inc = lambda n: n + 1\n"),
        ("```python\ndef inc(n): ...\n```", "def inc(n): ...\n"),
        ("```python\n    return 1```\nSo\n```python\ninc(1)\n```", "    return 1"),
        ("```python\n    return 1\n  ```\nDone.", "    return 1\n  "),
        ("```python\ninc: int = 1\n```", "inc: int = 1\n"), ("    return n + 1\n", "    return n + 1\n"),
        ("Use ```inc```.", "Use ```inc```."), ("", ""), (f"<think>So:\n{BLOCK}\nOr else", ""),
        (f"\n<think>{CODE}</think> <think>{CODE}", ""),
    ):  # fmt: skip
        assert (written_code(response, "inc"), written_code(response)) == (code, code), response

"""Code that a model wrote, run against tests in a sandbox of its own, or in one that is there."""

from __future__ import annotations

import ast
import json
import re
import secrets
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files

from nightjar.sandboxes.choosing import choose_provider
from nightjar.sandboxes.permission import check_sandbox_access
from nightjar.sandboxes.request import CreateSandboxRequest
from nightjar.sandboxes.sandbox import CommandResult, Sandbox
from nightjar.syntax import parse_python

SECONDS = 30.0
_MEMORY_GB = 0.25
_PROCESSES = 64
_AT_START = r"(?!(?P=indent)[^\S\n])[^\S\n]*(?P=fence)"
_BLOCK = re.compile(  # up to a fence at the start of a line, at most as far in as the first; else at any line's end
    r"^(?P<indent>[^\S\n]*)(?P<fence>`{3,}|~{3,})[^\S\n]*(?P<language>[^\s`{]*)[^\n`]*\n"
    rf"(?P<code>(?:(?!{_AT_START})[^\n]*\n)*(?={_AT_START}[`~]*[^\S\n]*$)|.*?(?=(?<![`~])(?P=fence)[`~]*[^\S\n]*$|\Z))"
    r"[^\S\n]*(?:(?P=fence)[`~]*)?",
    re.DOTALL | re.MULTILINE,
)
_OTHER_LANGUAGE = 2
_PYTHON = re.compile(r"(?i)(?:i?py|i?python)[\d.]*")
_BYTE_ORDER_MARK = "\ufeff"
_LONGEST = 500
_START = 'exec "$(command -v python3 || command -v python || echo python3)" -I -c "$1"'


@dataclass(frozen=True)
class CodeTest:
    """A function that is to be written, and its tests, as HumanEval has them.

    Attributes:
        prompt: what comes before the code.
        test: defines ``check(candidate)``, which raises where the function is wrong.
        entry_point: the function's name.
    """

    prompt: str
    test: str
    entry_point: str


def written_code(response: str, entry_point: str | None = None) -> str:
    r"""Returns the code of an answer, less what comes before ``</think>``; all of it where it has no fenced block.

    Of several blocks it is the last that defines the entry point, and not as a stub where another does more; or else
    the first of Python, or else of no language; blocks of another language count where there are no others. One that is
    cut off is taken as far as it goes. Thoughts that do not end have no code.

    Example:
        >>> written_code("Sure:\n```bash\npip install x\n```\n```python\nx = 1\n```\nDone.")
        'x = 1\n'
    """
    said = response.rpartition("</think>")[2].replace(_BYTE_ORDER_MARK, "")
    if said.lstrip().startswith("<think>"):
        return ""
    fenced = list(_BLOCK.finditer(said))
    blocks = [block for block in fenced if _strangeness(block) < _OTHER_LANGUAGE] or fenced
    if not blocks:
        return said
    defining = [code for code in map(_code, blocks) if entry_point and _defines(code, entry_point)]
    found = [code for code in defining if not _is_stub(code, entry_point)] or defining
    return found[-1] if found else _code(min(blocks, key=_strangeness))


def _code(block: re.Match[str]) -> str:
    return re.sub(rf"(?m)^{block['indent']}", "", block["code"])


def _defines(code: str, name: str) -> bool:
    assigned = rf"^{re.escape(name)}[^\S\n]*(?::[^\n=]*)?=(?!=)"
    return bool(re.search(rf"(?m)^(?:async[^\S\n]+)?def[^\S\n]+{re.escape(name)}\b|{assigned}", code))


def _is_stub(code: str, name: str | None) -> bool:
    """Says whether code is whole, and its function does nothing: a docstring, ``...`` or ``pass`` alone."""
    try:
        statements = parse_python(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    functions = (one for one in statements if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    bodies = [function.body for function in functions if function.name == name]
    return bool(bodies) and all(map(_is_idle, bodies[-1]))


def _is_idle(statement: ast.stmt) -> bool:
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant or isinstance(statement, ast.Pass)


def _strangeness(block: re.Match[str]) -> int:
    language = block["language"]
    return 0 if _PYTHON.fullmatch(language) else _OTHER_LANGUAGE if language else 1


async def failed_test(
    code: str, test: CodeTest, sandbox: Sandbox | None = None, seconds: float = SECONDS
) -> str | None:
    """Runs code against its tests, and returns why it has not passed; None where it has.

    Args:
        code: what was written: the whole function, or what follows the prompt.
        test: its tests.
        sandbox: where it runs; one of its own unless given.
        seconds: for all of it.

    Raises:
        SandboxError: there is no sandbox: that says nothing about the code.
    """
    secret = secrets.token_hex()
    task = {**asdict(test), "code": code, "secret": secret, "source": _tester()}
    done = await (_run(sandbox, task, seconds) if sandbox is not None else _run_apart(task, seconds))
    return _error(done, secret, seconds)


async def _run_apart(task: dict[str, str], seconds: float) -> CommandResult:
    check_sandbox_access()
    request = CreateSandboxRequest(
        name="code", memory_gb=_MEMORY_GB, disk_size_gb=_MEMORY_GB, max_processes=_PROCESSES, timeout_minutes=5
    )
    sandbox = choose_provider().new_sandbox(request)
    try:
        await sandbox.start()
        return await _run(sandbox, task, seconds)
    finally:
        await sandbox.close()


async def _run(sandbox: Sandbox, task: dict[str, str], seconds: float) -> CommandResult:
    command = ["/bin/sh", "-c", _START, "sh", task["source"]]
    return await sandbox.exec(command, timeout=seconds, stdin=json.dumps(task).encode() + b"\n")


def _error(done: CommandResult, secret: str, seconds: float) -> str | None:
    if done.is_timed_out:
        return f"it ran for longer than {seconds:g} s"
    try:
        verdict = json.loads(done.stdout.strip().splitlines()[-1])
        is_known = secrets.compare_digest(verdict["secret"], secret)
    except (ValueError, IndexError, KeyError, TypeError):
        is_known = False
    if not is_known:
        return f"the tests did not come to their end: {done.stderr.strip()[-_LONGEST:] or 'it was ended'}"
    return None if verdict["passed"] is True else str(verdict["error"])


@cache
def _tester() -> str:
    return files("nightjar.sandboxes").joinpath("code_tester.py").read_text(encoding="utf-8")

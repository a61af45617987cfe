"""Tests for code that a model wrote, run in a sandbox."""

from __future__ import annotations

import ast
import json
import re
import secrets
from dataclasses import asdict, dataclass
from math import ceil

from nightjar.core.syntax import parse_python
from nightjar.sandboxes.providers import choose_provider
from nightjar.sandboxes.request import CreateSandboxRequest, check_sandbox_access
from nightjar.sandboxes.sandbox import CommandResult, Sandbox, program_source, python_command

SECONDS = 30.0
_MEMORY_GB = 0.25
_PROCESSES = 64
_LIFETIME_MINUTES = 5
_AT_START = r"(?!(?P=indent)[^\S\n])[^\S\n]*(?P=fence)"
# A block ends at a fence that starts a line and is indented at most like the first fence, else at any line's end.
_BLOCK = re.compile(
    r"^(?P<indent>[^\S\n]*)(?P<fence>`{3,}|~{3,})[^\S\n]*(?P<language>[^\s`{]*)[^\n`]*\n"
    rf"(?P<code>(?:(?!{_AT_START})[^\n]*\n)*(?={_AT_START}[`~]*[^\S\n]*$)|.*?(?=(?<![`~])(?P=fence)[`~]*[^\S\n]*$|\Z))"
    r"[^\S\n]*(?:(?P=fence)[`~]*)?",
    re.DOTALL | re.MULTILINE,
)
_OTHER_LANGUAGE = 2  # after Python and blocks without a language
_PYTHON = re.compile(r"(?i)(?:i?py|i?python)[\d.]*")
_BYTE_ORDER_MARK = "\ufeff"
_LONGEST = 500


@dataclass(frozen=True)
class CodeTest:
    """A function to write, in HumanEval's format. ``test`` defines ``check(candidate)``, which raises on an error."""

    prompt: str
    test: str
    entry_point: str


def written_code(response: str, entry_point: str | None = None) -> str:
    """Returns the code of a response, after ``</think>``. Without a fenced block, returns the whole text.

    The last block that defines the entry point is used. A stub is used only if there is no other block. If no block
    defines the entry point, the first Python block is used, else the first block without a language, else the first
    block. A truncated block is used without changes. A response that never ends its reasoning has no code.
    """
    text = response.rpartition("</think>")[2].replace(_BYTE_ORDER_MARK, "")
    if text.lstrip().startswith("<think>"):
        return ""
    fenced = list(_BLOCK.finditer(text))
    blocks = [block for block in fenced if _language_rank(block) < _OTHER_LANGUAGE] or fenced
    if not blocks:
        return text
    defining = [code for code in map(_code, blocks) if entry_point and _defines(code, entry_point)]
    found = [code for code in defining if not _is_stub(code, entry_point)] or defining
    return found[-1] if found else _code(min(blocks, key=_language_rank))


def _code(block: re.Match[str]) -> str:
    return re.sub(rf"(?m)^{block['indent']}", "", block["code"])


def _defines(code: str, name: str) -> bool:
    assigned = rf"^{re.escape(name)}[^\S\n]*(?::[^\n=]*)?=(?!=)"
    return bool(re.search(rf"(?m)^(?:async[^\S\n]+)?def[^\S\n]+{re.escape(name)}\b|{assigned}", code))


def _is_stub(code: str, name: str | None) -> bool:
    """Returns whether code is complete and the body of its function is only a docstring, ``...`` or ``pass``."""
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


def _language_rank(block: re.Match[str]) -> int:
    language = block["language"]
    return 0 if _PYTHON.fullmatch(language) else _OTHER_LANGUAGE if language else 1


async def failed_test(
    code: str,
    test: CodeTest,
    sandbox: Sandbox | None = None,
    seconds: float = SECONDS,
    docker_image: str | None = None,
) -> str | None:
    """Returns why the code failed, or None if it passed. Raises ``SandboxError`` if the tests could not run.

    Without ``sandbox``, the tests run in a new one: a container of ``docker_image``, or if this is None, the usual
    kind of sandbox.
    """
    secret = secrets.token_hex()
    task = {**asdict(test), "code": code, "secret": secret, "source": program_source("code_tester.py")}
    if sandbox is not None:
        done = await _run(sandbox, task, seconds)
    else:
        done = await _run_in_new_sandbox(task, seconds, docker_image)
    return _error(done, secret, seconds)


async def _run_in_new_sandbox(task: dict[str, str], seconds: float, docker_image: str | None) -> CommandResult:
    check_sandbox_access()
    request = CreateSandboxRequest(
        name="code",
        memory_gb=_MEMORY_GB,
        disk_size_gb=_MEMORY_GB,
        max_processes=_PROCESSES,
        timeout_minutes=_LIFETIME_MINUTES + ceil(seconds / 60),
        **({"docker_image": docker_image} if docker_image else {}),
    )
    sandbox = choose_provider("docker" if docker_image else None).new_sandbox(request)
    try:
        await sandbox.start()
        return await _run(sandbox, task, seconds)
    finally:
        await sandbox.close()


async def _run(sandbox: Sandbox, task: dict[str, str], seconds: float) -> CommandResult:
    command = python_command("-I", task["source"])
    return await sandbox.exec(command, timeout=seconds, stdin=json.dumps(task).encode() + b"\n")


def _error(done: CommandResult, secret: str, seconds: float) -> str | None:
    if done.is_timed_out:
        return f"the tests ran for longer than {seconds:g} s"
    try:
        verdict = json.loads(done.stdout.strip().splitlines()[-1])
        is_known = secrets.compare_digest(verdict["secret"], secret)
    except (ValueError, IndexError, KeyError, TypeError):
        is_known = False
    if not is_known:
        return f"the tests did not finish: {done.stderr.strip()[-_LONGEST:] or 'their process was killed'}"
    return None if verdict["passed"] is True else str(verdict["error"])

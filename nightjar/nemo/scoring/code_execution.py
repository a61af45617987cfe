"""``code_sandbox``: runs the code of an answer against tests, in a sandbox.

What the row has to say: ``prompt`` (what comes before the code), ``test`` (which defines ``check(candidate)``) and
``entry_point`` (the function that is tested), as HumanEval has them; also as ``_prompt``, ``_test``, ``_entry_point``.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import cache
from importlib.resources import files
from typing import Any

from nightjar.calling import run_sync
from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.errors import ScoringError
from nightjar.sandboxes import CommandResult, CreateSandboxRequest, Sandbox, choose_provider
from nightjar.sandboxes.permission import check_sandbox_access

_SECONDS = 30.0
_MEMORY_GB = 0.25
_PROCESSES = 64
_BLOCK = re.compile(r"```(?:[Pp]ython3?|py)?[^\S\n]*\n(.*?)```", re.DOTALL)
_LONGEST = 500
_START = 'exec "$(command -v python3 || command -v python || echo python3)" -I -c "$1"'


def code_sandbox(sample: ScorerInput) -> dict[str, Any]:
    """Runs the code of an answer against the tests of its row.

    Raises:
        SandboxError: there is no sandbox: that says nothing about the answer.
        ScoringError: the row has no tests.
    """
    return run_sync(code_sandbox_async(sample))


async def code_sandbox_async(
    sample: ScorerInput,
    sandbox: Sandbox | None = None,
    timeout: float = _SECONDS,  # noqa: ASYNC109 - the seed's name
) -> dict[str, Any]:
    """Does what ``code_sandbox`` does, in a sandbox that is there, or in one of its own."""
    code = written_code(sample.response)
    task = {**_told(sample), "code": code, "secret": secrets.token_hex(), "source": _tester()}
    given = sandbox or sample.sandbox
    done = await (_run(given, task, timeout) if given is not None else _run_apart(task, timeout))
    error = _error(done, task["secret"], timeout)
    return {"correct": error is None, "extracted": code[:_LONGEST], **({"error": error} if error else {})}


def written_code(response: str) -> str:
    r"""Returns the first fenced block of code in an answer; all of it where there is none.

    Example:
        >>> written_code("Sure:\n```python\nx = 1\n```\nDone.")
        'x = 1\n'
    """
    found = _BLOCK.search(response)
    return found.group(1) if found else response


def _told(sample: ScorerInput) -> dict[str, str]:
    row, told = sample.metadata, {}
    for name in ("prompt", "test", "entry_point"):
        value = row.get(f"_{name}", row.get(name))
        if value is None and name != "prompt":
            raise ScoringError(
                f"The row has no {name!r}, which code is tested with. It has: {', '.join(map(str, row))}"
            )
        told[name] = str(value or "")
    return told


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
    """Returns why the code has not passed; None where it has."""
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
    return files("nightjar.nemo.scoring").joinpath("code_tester.py").read_text(encoding="utf-8")

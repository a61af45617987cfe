"""``code_sandbox``: runs the code of an answer against tests, in a sandbox.

What the row has to say: ``prompt`` (what comes before the code), ``test`` (which defines ``check(candidate)``) and
``entry_point`` (the function that is tested), as HumanEval has them; also as ``_prompt``, ``_test``, ``_entry_point``.
"""

from __future__ import annotations

from typing import Any

from nightjar.calling import run_sync
from nightjar.envs.seeded.scorer_input import ScorerInput
from nightjar.errors import ScoringError
from nightjar.sandboxes import Sandbox
from nightjar.sandboxes.code_tests import SECONDS, CodeTest, failed_test, written_code

_LONGEST = 500


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
    timeout: float = SECONDS,  # noqa: ASYNC109 - the seed's name
) -> dict[str, Any]:
    """Does what ``code_sandbox`` does, in a sandbox that is there, or in one of its own."""
    test = _told(sample)
    code = written_code(sample.response, test.entry_point)
    error = await failed_test(code, test, sandbox or sample.sandbox, timeout)
    return {"correct": error is None, "extracted": code[:_LONGEST], **({"error": error} if error else {})}


def _told(sample: ScorerInput) -> CodeTest:
    row, told = sample.metadata, {}
    for name in ("prompt", "test", "entry_point"):
        value = row.get(f"_{name}", row.get(name))
        if value is None and name != "prompt":
            raise ScoringError(
                f"The row has no {name!r}, which code is tested with. It has: {', '.join(map(str, row))}"
            )
        told[name] = str(value or "")
    return CodeTest(**told)

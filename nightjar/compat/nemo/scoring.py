"""Scorers under the names of ``nemo_evaluator.scoring``: each returns a dict with ``correct`` and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from nightjar.core.calling import run_sync
from nightjar.environments.scorers.texts import extract_json
from nightjar.environments.seeded.eval_environment import ScorerInput
from nightjar.environments.seeded.judge import (
    JudgeScoringConfig,
    build_judge_prompt,
    judge_score,
    needs_judge,
    parse_judge_response,
)
from nightjar.environments.seeded.scorers import (
    answer_line,
    exact_match,
    fuzzy_match,
    get_scorer,
    list_scorers,
    mcq_extract,
    multichoice_regex,
    numeric_match,
)
from nightjar.errors import ConfigError, ScoringError
from nightjar.sandboxes import Sandbox
from nightjar.sandboxes.code_tests import SECONDS, CodeTest, failed_test, written_code

__all__ = [
    "JudgeScoringConfig", "ScorerInput", "answer_line", "build_judge_prompt", "code_sandbox", "code_sandbox_async",
    "exact_match", "extract_json", "fuzzy_match", "get_scorer", "judge_score", "list_scorers", "mcq_extract",
    "multichoice_regex", "needs_judge", "numeric_match", "parse_judge_response", "validate_json_schema",
]  # fmt: skip

_LONGEST = 500


def validate_json_schema(response: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the JSON in a response against a schema; ``error`` is the first violation."""
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ConfigError(f"Invalid JSON schema: {error.message}") from error
    value = extract_json(response)
    if value is None and response.strip() != "null":
        return {"correct": False, "valid": False, "error": "the response contains no JSON"}
    problem = next(iter(sorted(kind(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))), None)
    place = "" if problem is None else f"{problem.json_path}: "
    return {"correct": problem is None, "valid": problem is None, "error": problem and f"{place}{problem.message}"}


def code_sandbox(sample: ScorerInput) -> dict[str, Any]:
    return run_sync(code_sandbox_async(sample))


async def code_sandbox_async(
    sample: ScorerInput,
    sandbox: Sandbox | None = None,
    timeout: float = SECONDS,  # noqa: ASYNC109 - the seed's name
) -> dict[str, Any]:
    """Scores like ``code_sandbox``. Uses ``sandbox``, else the sample's sandbox, else a new one."""
    test = _test_of(sample)
    code = written_code(sample.response, test.entry_point)
    error = await failed_test(code, test, sandbox or sample.sandbox, timeout)
    return {"correct": error is None, "extracted": code[:_LONGEST], **({"error": error} if error else {})}


def _test_of(sample: ScorerInput) -> CodeTest:
    row, fields = sample.metadata, {}
    for name in ("prompt", "test", "entry_point"):
        value = row.get(f"_{name}", row.get(name))
        if value is None and name != "prompt":
            raise ScoringError(
                f"The row has no {name!r}, which the tests of the code need. It has: {', '.join(map(str, row))}"
            )
        fields[name] = str(value or "")
    return CodeTest(**fields)

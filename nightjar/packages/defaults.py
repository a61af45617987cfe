"""How an environment wants to be evaluated, unless somebody says otherwise.

::

    [tool.nightjar.eval]        # or [tool.verifiers.eval]
    num_examples = 50
    rollouts_per_example = 4
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from nightjar.errors import EnvironmentNotFoundError, EnvironmentPackageError
from nightjar.packages.catalog import find_environment
from nightjar.packages.names import ENVIRONMENTS_DIR
from nightjar.packages.package import Project

ALL_EXAMPLES = -1


def _one_or_more_or_all(value: int) -> int:
    if value < 1 and value != ALL_EXAMPLES:
        raise ValueError("must be 1 or more, or -1 for all examples")
    return value


ExampleCount = Annotated[int, AfterValidator(_one_or_more_or_all)]
RolloutCount = Annotated[int, Field(ge=1)]


class EvalDefaults(BaseModel):
    """What a run takes where it is not told. None leaves it to Nightjar's own default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    num_examples: ExampleCount | None = None
    """How many examples; -1 for all."""
    rollouts_per_example: RolloutCount | None = None
    """Rollouts of each example."""


def eval_defaults(env_id: str, environments_dir: Path = ENVIRONMENTS_DIR) -> EvalDefaults:
    """Returns the defaults that an environment's ``pyproject.toml`` sets; none where it has none or is not there.

    ``[tool.nightjar.eval]`` wins over ``[tool.verifiers.eval]``, key by key. Nothing of the environment is run.

    Raises:
        EnvironmentPackageError: a value is wrong; file and key are named.
        EnvironmentVersionError: the environment is there, but not in this version.
    """
    try:
        project = find_environment(env_id, environments_dir).project
    except EnvironmentNotFoundError:
        return EvalDefaults()
    return EvalDefaults() if project is None else _defaults_of(project)


def _defaults_of(project: Project) -> EvalDefaults:
    ours, theirs = _table(project, "nightjar"), _table(project, "verifiers")
    known = {name: value for name, value in theirs.items() if name in EvalDefaults.model_fields}
    try:
        return EvalDefaults.model_validate({**known, **ours})
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(str(part) for part in found["loc"])
        message = found["msg"].removeprefix("Value error, ")
        raise EnvironmentPackageError(
            f"{project.path}: {place} of [tool.nightjar.eval] or [tool.verifiers.eval]: {message} "
            f"(found {found['input']!r})"
        ) from error


def _table(project: Project, tool: str) -> dict[str, Any]:
    value = project.tool.get(tool, {})
    table = value.get("eval", {}) if isinstance(value, dict) else value
    if not isinstance(table, dict):
        raise EnvironmentPackageError(f"{project.path}: [tool.{tool}.eval] must be a table, found {table!r}")
    return table

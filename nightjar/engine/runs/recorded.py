"""The schema of the fields that Nightjar reads in a run directory, and the reader of lines that checks them.

It finds damage before requests cost money.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from nightjar.core.messages import UserMessage
from nightjar.core.rollout.records import restore_state
from nightjar.core.rollout.state import new_state
from nightjar.engine.runs.index import LARGEST_ROLLOUT_INDEX
from nightjar.engine.runs.jsonl import Line, RawLine, parse_line, whole_lines
from nightjar.errors import RunDirectoryError

_LARGEST_INTEGER = (1 << 63) - 1
_LARGEST_EXACT_FLOAT = 1 << 53
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=_LARGEST_INTEGER)]
_Tokens = Annotated[float, Field(ge=0, le=_LARGEST_EXACT_FLOAT)]
_NEEDED = ("status", "rollouts", "rollouts_per_example", "pass_threshold")
_Messages = str | list[dict[str, Any]] | None


class _Recorded(BaseModel):
    model_config = ConfigDict(strict=True, defer_build=True)


class _Error(_Recorded):
    error: str
    message: str
    error_chain_repr: str


class _Rollout(_Recorded):
    example_id: _Count
    rollout_index: int = Field(ge=0, le=LARGEST_ROLLOUT_INDEX)
    example_hash: str | None = None
    error: _Error | None
    token_usage: dict[str, _Tokens | None] | None = None


class _Step(_Recorded):
    prompt: int | list[dict[str, Any]]
    completion: int | list[dict[str, Any]]
    response: dict[str, Any] | None
    is_truncated: bool
    reward: _Number | None
    extras: dict[str, Any]


class _State(_Recorded):
    extras: dict[str, Any]
    completion: _Messages
    trajectory: list[_Step]
    stop_condition: str | None
    is_completed: bool
    is_truncated: bool


class RecordedAttempt(_Rollout):
    attempt: _Count | None = None
    finished_at: _Number | None = None
    generation_ms: _Number
    state: _State | None

    @model_validator(mode="after")
    def _check_state(self) -> Self:
        if self.error is None and self.state is None:
            raise ValueError("the line has neither an error nor a state")
        return self


class RecordedResult(_Rollout):
    prompt: _Messages
    completion: _Messages
    reward: _Number | None
    advantage: _Number | None
    metrics: dict[str, _Number]
    timing: dict[str, _Number | None] | None = None
    is_completed: bool | None = None
    is_truncated: bool | None
    stop_condition: str | None
    attempts: _Count | None = None
    model: str | None


class RecordedConfig(_Recorded):
    format: int = 1
    run_id: str | None = None
    selected_examples: _Count
    dataset_fingerprint: str | None


class RecordedMetadata(_Recorded):
    format: int = 1
    run_id: str | None = None
    status: str | None = None
    env_id: str | None = None
    model: str | None = None
    num_examples: _Count | None = None
    rollouts_per_example: _Count | None = None
    rollouts: _Count | None = None
    pass_threshold: _Number | None = None
    state_columns: list[str] | None = None
    tags: list[str] | None = None
    scored: _Count | None = None
    failed: _Count | None = None
    avg_reward: _Number | None = None
    stderr: _Number | None = None
    started_at: Annotated[AwareDatetime | None, Strict(False)] = None
    finished_at: Annotated[AwareDatetime | None, Strict(False)] = None
    time_ms: _Number | None = None
    errors: dict[str, Any] | None = None
    version_info: dict[str, Any] | None = None
    digests: dict[str, str] | None = None
    published_at: str | None = None
    cost: _Number | None = None

    @model_validator(mode="after")
    def _check_needed(self) -> Self:
        missing = [name for name in _NEEDED if getattr(self, name) is None]
        if missing and self.env_id is not None:
            raise ValueError(f"{', '.join(missing)}: field required")
        return self


def read_lines(path: Path, kind: type[_Rollout], *, is_guarded: bool = False) -> Iterator[Line]:
    """Yields the complete lines of a ledger or of results. Raises ``RunDirectoryError`` for the first damaged line."""
    for raw in whole_lines(path, is_guarded=is_guarded):
        yield read_line(raw, path, kind)


def read_line(raw: RawLine, path: Path, kind: type[_Rollout]) -> Line:
    line = Line(raw.number, raw.place, parse_line(raw.text, path, raw.number))
    try:
        kind.model_validate(line.row)
    except ValidationError as error:
        raise RunDirectoryError(f"{path}, line {line.number} is damaged: {first_fault(error)}") from error
    if raw.is_changed:
        raise RunDirectoryError(f"{path}, line {line.number} is damaged: it is not what the run wrote")
    return line


def check_restorable(line: Line, path: Path) -> None:
    steps = line.row["state"]["trajectory"]
    length = steps[0]["prompt"] if steps and isinstance(steps[0]["prompt"], int) else 0
    nothing_yet = new_state({"prompt": [UserMessage(content="")] * length, "example_id": line.row["example_id"]})
    try:
        restore_state(nothing_yet, line.row)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise RunDirectoryError(f"{path}, line {line.number} is damaged: state cannot be restored: {reason}") from error


def first_fault(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    message = found["msg"].removeprefix("Value error, ").partition(" or instance of ")[0]
    message = f"{message[:1].lower()}{message[1:]}"
    return f"{place}: {message}" if place else message

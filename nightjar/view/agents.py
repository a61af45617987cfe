"""What the page of a rollout shows of an agent: commands, logs, changed files and artifacts.

Environments of agents write the columns of ``COLUMNS`` to the results. A column of another shape is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from nightjar.view.diffs import LONGEST_DIFF, ChangedFile, changed_files
from nightjar.view.passages import output_passages, passages
from nightjar.view.room import Room
from nightjar.view.terminal import Screen, screen
from nightjar.view.tool_calls import LONGEST_NAME, Call, ReadCall, arguments_of, shown_arguments

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class AgentStep(BaseModel):
    """The time of a tool call, without the model's time. ``exit_code`` is None for tools that run no program."""

    turn: int
    tool: str
    seconds: Seconds
    exit_code: int | None = None


class Artifact(BaseModel):
    """A file that a rollout left. ``file`` is its path in the run directory, below ``artifacts/``."""

    path: str
    file: str
    bytes: Annotated[int, Field(ge=0)]


COLUMNS: Mapping[str, TypeAdapter[Any]] = {
    "agent_steps": TypeAdapter(list[AgentStep]),
    "agent_log": TypeAdapter(str),
    "verifier_log": TypeAdapter(str),
    "verifier_seconds": TypeAdapter(Seconds),
    "changed_files": TypeAdapter(str),
    "artifacts": TypeAdapter(list[Artifact]),
    "image_digest": TypeAdapter(str),
    "task_name": TypeAdapter(str),
}
"""The columns of agents, and their types."""
_FOLDER = "artifacts"
_MOST_LISTED = 1_000
_SHELLS = ("command", "cmd")


@dataclass(frozen=True)
class Command(Call):
    """A tool call as in a terminal: the line of the command, and the result below it."""

    line: str = ""
    is_shell: bool = False
    seconds: float | None = None
    exit_code: int | None = None


@dataclass(frozen=True)
class Download:
    path: str
    bytes: int
    number: int
    is_here: bool


@dataclass(frozen=True)
class Agent:
    steps: Sequence[AgentStep] = ()
    log: Screen | None = None
    verifier_log: Screen | None = None
    verifier_seconds: float | None = None
    changed_files: Sequence[ChangedFile] = ()
    diff_left_out: int = 0
    artifacts: Sequence[Download] = ()
    more_artifacts: int = 0
    image_digest: str | None = None
    task_name: str | None = None
    columns: frozenset[str] = field(default_factory=frozenset)


def read_columns(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of an agent that have the right type."""
    found = {}
    for name in COLUMNS.keys() & state.keys():
        with suppress(ValidationError):
            found[name] = COLUMNS[name].validate_python(state[name])
    return found


def agent_of(state: Mapping[str, Any], run_dir: Path | None) -> Agent | None:
    """Returns what is shown of an agent, or None if the rollout has no column of an agent."""
    found = read_columns(state)
    if not found:
        return None
    diff, artifacts = found.get("changed_files", ""), found.get("artifacts", [])
    return Agent(
        steps=found.get("agent_steps", ()),
        log=_log(found.get("agent_log")),
        verifier_log=_log(found.get("verifier_log")),
        verifier_seconds=found.get("verifier_seconds"),
        changed_files=changed_files(diff) if diff.strip() else (),
        diff_left_out=max(0, len(diff) - LONGEST_DIFF),
        artifacts=[
            Download(each.path, each.bytes, number, artifact_path(run_dir, each.file) is not None)
            for number, each in enumerate(artifacts[:_MOST_LISTED])
        ],
        more_artifacts=max(0, len(artifacts) - _MOST_LISTED),
        image_digest=found.get("image_digest"),
        task_name=found.get("task_name"),
        columns=frozenset(found),
    )


def _log(text: str | None) -> Screen | None:
    return screen(text, shows_end=True) if text else None


def artifact_path(run_dir: Path | None, file: str) -> Path | None:
    """Returns the path of an artifact, or None if it is no file below ``artifacts/`` of the run directory."""
    if run_dir is None:
        return None
    with suppress(OSError, ValueError, RuntimeError):
        folder = run_dir.resolve() / _FOLDER
        path = (run_dir / file).resolve()
        return path if path.is_relative_to(folder) and path.is_file() else None
    return None


def run_directory(run_dir: str | None, run_id: str) -> Path | None:
    """Returns the run directory if it is on this machine and still has this run."""
    with suppress(OSError, ValueError, AttributeError):
        if run_dir:
            metadata = orjson.loads((Path(run_dir) / "metadata.json").read_bytes())
            return Path(run_dir) if metadata.get("run_id", Path(run_dir).name) == run_id else None
    return None


def commands(steps: Sequence[AgentStep] = ()) -> ReadCall:
    """Returns a reader that shows calls as commands, with the time of each step."""
    following = iter(steps)

    def read(call: Mapping[str, Any], result: Mapping[str, Any] | None, room: Room) -> Command:
        return _command(call, result, room, next(following, None))

    return read


def _command(call: Mapping[str, Any], result: Mapping[str, Any] | None, room: Room, step: AgentStep | None) -> Command:
    name, arguments = str(call.get("name"))[:LONGEST_NAME], arguments_of(call)
    shell = next((key for key in _SHELLS if isinstance(arguments.get(key), str)), None)
    is_path = shell is None and isinstance(arguments.get("path"), str)
    short, long = shown_arguments(name, arguments, room, hidden=shell or ("path" if is_path else None))
    return Command(
        name,
        short,
        long,
        None if result is None else passages(result.get("content"), room, output_passages),
        line=room.beginning(arguments[shell] if shell else f"{name} {arguments['path']}" if is_path else name),
        is_shell=shell is not None,
        seconds=step.seconds if step else None,
        exit_code=step.exit_code if step else None,
    )

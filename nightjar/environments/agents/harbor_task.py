"""Tasks in Harbor's format. A task is a folder, a data set is a folder of tasks.

::

    fix-python/
    ├── task.toml        limits, image, network, verifier
    ├── instruction.md   the text for the agent
    ├── environment/     Dockerfile and the files that it copies
    ├── tests/           test.sh writes the reward; copied to /tests after the agent has ended
    ├── solution/        solve.sh, for the agent "oracle" alone
    └── steps/NAME/      instruction, tests, solution and working files of a step, for tasks with [[steps]]

https://harborframework.com/docs/tasks describes the format. The older format of Terminal-Bench (``task.yaml``) is not
supported. :mod:`nightjar.environments.agents.harbor_settings` has the tables of ``task.toml``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from nightjar.core.folder_hash import hash_of_folder
from nightjar.core.text import nearest, one_line
from nightjar.core.toml_files import TomlFile
from nightjar.environments.agents.compose import Compose, read_compose
from nightjar.environments.agents.harbor_settings import (
    AgentLimits,
    Artifact,
    EnvironmentSettings,
    Healthcheck,
    RewardStrategy,
    StepTable,
    TaskFile,
    VerifierSettings,
    unknown_fields,
)
from nightjar.errors import DatasetError, MissingKeyError

__all__ = [
    "AgentLimits", "Artifact", "EnvironmentSettings", "HarborStep", "HarborTask", "Healthcheck", "RewardStrategy",
    "VerifierSettings", "find_tasks", "problems_of", "read_task", "read_tasks", "resolve_env",
]  # fmt: skip

TASK_FILE = "task.toml"
COMPOSE_FILES = ("docker-compose.yaml", "docker-compose.yml")
_INSTRUCTION = "instruction.md"
_OLD_TASK_FILE = "task.yaml"
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_LONGEST_VALUE = 80


class HarborStep(BaseModel):
    """A step with its own instruction and tests. ``agent`` and ``verifier`` include the settings of the task."""

    model_config = ConfigDict(frozen=True)

    name: str
    folder: Path
    instruction: str
    """Empty if ``instruction.md`` is missing."""
    tests_folders: tuple[Path, ...]
    """The folders to copy to /tests, in this order: a step's files replace those of the task."""
    agent: AgentLimits
    verifier: VerifierSettings
    min_reward: dict[str, float] = {}
    """The lowest value of each named reward with which the next step runs."""
    healthcheck: Healthcheck | None = None
    """Runs before the agent of this step, in addition to the healthcheck of the environment."""
    artifacts: tuple[Artifact, ...] = ()
    """What to keep after this step: the artifacts of the task, then those of the step."""

    @property
    def solution_folder(self) -> Path:
        """The folder of ``solve.sh``, which may be missing."""
        return self.folder / "solution"

    @property
    def workdir_folder(self) -> Path:
        """The files to copy into the working directory before the step, which may be missing; ``setup.sh`` runs."""
        return self.folder / "workdir"

    @property
    def has_tests(self) -> bool:
        """Whether one of the tests' folders has a ``test.sh``."""
        return any((folder / "test.sh").is_file() for folder in self.tests_folders)

    @property
    def verifier_folder(self) -> Path | None:
        """The folder of tests with a Dockerfile for the container of the tests, or None."""
        return next((each for each in reversed(self.tests_folders) if (each / "Dockerfile").is_file()), None)

    @property
    def has_image_with_tests(self) -> bool:
        """Whether the tests run in a container of their own whose image has them."""
        settings = self.verifier
        has_image = bool(settings.environment and settings.environment.docker_image)
        return settings.is_separate and (has_image or self.verifier_folder is not None)

    @property
    def has_solution(self) -> bool:
        """Whether the step has a ``solve.sh``."""
        return (self.solution_folder / "solve.sh").is_file()


class HarborTask(BaseModel):
    """A task as its folder describes it. ``name`` is the folder's name."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    folder: Path
    instruction: str
    agent: AgentLimits
    verifier: VerifierSettings
    environment: EnvironmentSettings
    solution_env: dict[str, str]
    steps: tuple[HarborStep, ...]
    """A task without ``[[steps]]`` has one step, named "", whose folder is the task's folder."""
    multi_step_reward_strategy: RewardStrategy
    artifacts: tuple[Artifact, ...]
    metadata: dict[str, Any]
    content_hash: str
    """SHA-256 of every file of the task: relative paths, executable bits and bytes."""
    unknown_fields: tuple[str, ...] = ()
    """Fields of ``task.toml`` that are ignored."""
    compose_problem: str | None = None
    """Why the compose file of the task cannot be used; None if it can be, or if there is none."""

    @property
    def environment_folder(self) -> Path:
        """The build context of the image, which may be missing."""
        return self.folder / "environment"

    @property
    def dockerfile(self) -> Path | None:
        """The Dockerfile of the image, or None if the image is not built."""
        path = self.environment_folder / "Dockerfile"
        return path if path.is_file() else None

    @property
    def has_solution(self) -> bool:
        """Whether every step has a ``solve.sh``."""
        return all(step.has_solution for step in self.steps)

    @property
    def needs_image(self) -> bool:
        """Whether the task names or builds its image. If not, it runs in any image."""
        return bool(self.environment.docker_image or self.dockerfile)


def read_task(folder: Path) -> HarborTask:
    """Reads a task. Raises ``DatasetError`` with file, field, value and what is expected."""
    path = folder / TASK_FILE
    if not path.is_file():
        raise DatasetError(f"{str(folder)!r} is no task in Harbor's format: {_missing(folder)}")
    content = TomlFile.read(path).content
    try:
        read = TaskFile.model_validate(content)
    except ValidationError as error:
        raise DatasetError(f"{path}: {'; '.join(_described(error))}") from None
    compose_file = next(filter(Path.is_file, (folder / "environment" / name for name in COMPOSE_FILES)), None)
    compose = read_compose(compose_file) if compose_file else Compose()
    environment = read.environment
    return HarborTask(
        name=folder.resolve().name,
        title=read.task.name or folder.resolve().name,
        folder=folder,
        instruction=_instruction(folder),
        agent=read.agent,
        verifier=read.verifier,
        environment=environment.model_copy(update={**compose.settings, "env": {**compose.env, **environment.env}}),
        compose_problem=compose.problem,
        solution_env=read.solution.env,
        steps=tuple(_steps(folder, read)),
        multi_step_reward_strategy=read.multi_step_reward_strategy,
        artifacts=read.artifacts,
        metadata=read.metadata,
        content_hash=hash_of_folder(folder),
        unknown_fields=tuple(dict.fromkeys(unknown_fields(read))),
    )


def read_tasks(path: Path, names: Sequence[str] | None = None) -> list[HarborTask]:
    """Reads a task, or the tasks in a folder and in its subfolders, sorted by name.

    ``names`` selects tasks by the names of their folders; ``*`` and ``?`` are wildcards. The other tasks are not read.
    """
    return [read_task(folder) for folder in find_tasks(path, names).values()]


def find_tasks(path: Path, names: Sequence[str] | None = None) -> dict[str, Path]:
    """Returns the folders of the tasks that ``read_tasks`` reads, by name and sorted."""
    folders: dict[str, Path] = {}
    for folder in _task_folders(path):
        name = folder.resolve().name
        if name in folders:
            raise DatasetError(f"Two tasks have the name {name!r}: {folders[name]} and {folder}. Rename one of them")
        folders[name] = folder
    if not folders:
        raise DatasetError(f"There are no tasks in {str(path)!r}: {_missing(path)}")
    return {name: folders[name] for name in sorted(_selected(folders, names))}


def problems_of(task: HarborTask) -> list[str]:
    """Returns why a task cannot run here, one sentence for each reason; empty if it can run.

    Whether there are GPUs is not checked.
    """
    return list(dict.fromkeys(_problems(task)))


def resolve_env(values: Mapping[str, str], task: str = "") -> dict[str, str]:
    """Replaces ``${VAR}`` and ``${VAR:-default}`` by the variables of this process.

    The default is used if the variable is not set or empty. Raises ``MissingKeyError`` for variables that are not set
    and have no default; the message names them and the ``task``, never a value.
    """
    found = [match for value in values.values() for match in _VARIABLE.finditer(value)]
    missing = {match[1]: None for match in found if match[2] is None and match[1] not in os.environ}
    if missing:
        raise MissingKeyError(list(missing), f"task {task!r}" if task else "")
    return {name: _VARIABLE.sub(_value_of, value) for name, value in values.items()}


def _steps(folder: Path, read: TaskFile) -> Iterator[HarborStep]:
    for table in read.steps or (StepTable.model_construct(name=""),):
        own = folder / "steps" / table.name if table.name else folder
        tests = dict.fromkeys((folder / "tests", own / "tests"))
        yield HarborStep(
            name=table.name,
            folder=own,
            instruction=_instruction(own),
            tests_folders=tuple(filter(Path.is_dir, tests)),
            agent=read.agent.replaced_by(table.agent),
            verifier=read.verifier.replaced_by(table.verifier),
            min_reward=table.min_reward,
            healthcheck=table.healthcheck,
            artifacts=(*read.artifacts, *table.artifacts),
        )


def _problems(task: HarborTask) -> Iterator[str]:
    if task.compose_problem:
        yield f"environment/docker-compose.yaml is not supported: {task.compose_problem}."
    yield from _problems_of_environment("environment", task.environment)
    for step in task.steps:
        yield from _problems_of_step(step)
        yield from _problems_of_phases(task, step)


def _problems_of_phases(task: HarborTask, step: HarborStep) -> Iterator[str]:
    """A container keeps the network with which it starts."""
    default = task.environment.network
    network = task.agent.network or default
    if (step.agent.network or default) != network:
        yield f"steps/{step.name} needs another network than the steps before it; here a container has one network."
    if not step.verifier.is_separate and network == "none" and (step.verifier.network or default) == "public":
        yield "The tests need a network and the agent must have none; here a container has one network."


def _problems_of_environment(table: str, settings: EnvironmentSettings) -> Iterator[str]:
    if settings.os != "linux":
        yield f"[{table}] needs the operating system {settings.os!r}; containers here run Linux."
    if settings.tpu:
        yield f"[{table}] needs a TPU, which containers here do not have."
    if settings.mcp_servers:
        names = ", ".join(server.name for server in settings.mcp_servers)
        yield f"[{table}] has MCP servers ({names}), which agents here cannot use."
    yield from _problems_of_network(table, settings)


def _problems_of_network(table: str, settings: AgentLimits | EnvironmentSettings | VerifierSettings) -> Iterator[str]:
    if settings.network == "allowlist":
        hosts = ", ".join(settings.allowed_hosts) or "none"
        yield f"[{table}] limits the network to some hosts ({hosts}); here a network is either open or closed."


def _problems_of_step(step: HarborStep) -> Iterator[str]:
    place = f"steps/{step.name}/" if step.name else ""
    verifier = step.verifier
    if not step.instruction.strip():
        yield f"{place}{_INSTRUCTION} is missing or empty."
    if not (step.has_tests or step.has_image_with_tests):
        yield f"{place}tests/test.sh is missing."
    yield from _problems_of_network("agent", step.agent)
    yield from _problems_of_network("verifier", verifier)
    if verifier.environment:
        yield from _problems_of_environment("verifier.environment", verifier.environment)


def _instruction(folder: Path) -> str:
    path = folder / _INSTRUCTION
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None


def _described(error: ValidationError) -> Iterator[str]:
    for each in error.errors():
        place = ".".join(map(str, each["loc"]))
        message = each["msg"].removeprefix("Value error, ").replace("Input should be", "expected", 1)
        if each["type"] == "missing":
            yield f"{place} is missing"
        elif isinstance(each["input"], dict | list):
            yield f"{place}: {message}"
        else:
            yield f"{place} is {one_line(repr(each['input']), _LONGEST_VALUE)}: {message}"


def _missing(folder: Path) -> str:
    if any(path.is_file() for path in (folder / _OLD_TASK_FILE, *folder.glob(f"*/{_OLD_TASK_FILE}"))):
        return f"{_OLD_TASK_FILE} is Terminal-Bench's older format, which is not supported. Convert it to {TASK_FILE}"
    return f"it has no {TASK_FILE}" if folder.is_dir() else "there is no such folder"


def _task_folders(path: Path) -> Iterator[Path]:
    if (path / TASK_FILE).is_file():
        yield path
        return
    for folder in _subfolders(path):
        below = (folder,) if (folder / TASK_FILE).is_file() else _subfolders(folder)
        yield from (each for each in below if (each / TASK_FILE).is_file())


def _subfolders(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))


def _selected(folders: Iterable[str], patterns: Sequence[str] | None) -> set[str]:
    if patterns is None:
        return set(folders)
    selected: set[str] = set()
    for pattern in patterns:
        matching = {name for name in folders if fnmatchcase(name, pattern)}
        if not matching:
            raise DatasetError(f"No task has the name {pattern!r}. {nearest(pattern, folders)}")
        selected |= matching
    return selected


def _value_of(match: re.Match[str]) -> str:
    value = os.environ.get(match[1], "")
    return value or match[2] or ""

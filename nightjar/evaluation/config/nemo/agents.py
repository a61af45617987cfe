"""Agents in a config: the solver ``harbor`` and the sandbox ``docker``, for benchmarks ``harbor://PATH``.

::

    benchmarks:
      - name: harbor://configs/harbor
        solver: {type: harbor, agent: shell, service: model}
        sandbox: {type: docker, concurrency: 4}
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from nightjar.evaluation.config.nemo.interceptors import REFUSED
from nightjar.evaluation.config.nemo.services import Section, refused

SCHEME = "harbor://"
AGENTS = ("shell", "oracle", "nop", "command:PROGRAM")
_OTHER_NAMES = {"react": "shell"}
_TASK = "the file task.toml of a task sets it: docs/reference/harbor-tasks.md"


def _known(agent: str) -> str:
    agent = _OTHER_NAMES.get(agent, agent)
    if agent in AGENTS[:-1] or re.fullmatch(r"command:\s*\S.*", agent):
        return agent
    text = "there is no agent {agent} here. Choose one of: {known} (docs/guides/agents.md)"
    raise PydanticCustomError(REFUSED, text, {"agent": repr(agent), "known": ", ".join(AGENTS)})


class HarborSolver(Section):
    """An agent that works in the container of a task."""

    type: Literal["harbor"]
    service: str
    """Name of the model's service."""
    agent: Annotated[str, AfterValidator(_known)] = "shell"
    """``shell`` or ``react``, ``oracle``, ``nop``, or ``command:PROGRAM``."""
    container_env: dict[str, str] = Field(default_factory=dict)
    """Variables of the container."""
    run_timeout: float | None = Field(None, gt=0)
    """Seconds for the agent; None means the time limit of the task."""
    cmd_timeout: float | None = Field(None, gt=0)
    """Seconds for a command of the agent ``shell``."""
    timeout_strategy: Literal["override", "task"] = "override"
    """``override``: run_timeout replaces the time limits of the tasks. ``task``: the time limits of the tasks apply."""
    agent_kwargs: Annotated[dict[str, Any], refused("an agent here has no arguments", {})] = Field(default_factory=dict)
    max_agent_timeout: Annotated[float | None, refused("set run_timeout", None)] = None
    skill: Annotated[str | None, refused("agents here have no skills", None)] = None
    skill_dir: Annotated[str | None, refused("agents here have no skills", None)] = None

    system_prompt: ClassVar[None] = None
    generation: ClassVar[None] = None


class DockerSandbox(Section):
    """The containers of tasks. The engine is the one at ``DOCKER_HOST``, docker or podman."""

    type: Literal["docker"]
    concurrency: int = Field(4, ge=1)
    """Maximum number of containers at once."""
    timeout: float = Field(1800.0, gt=0)
    """Seconds for the agent, if it is set."""
    container_env: dict[str, str] = Field(default_factory=dict)
    """Variables of the containers."""
    image: str | None = None
    """Image of the tasks that name none and have no Dockerfile."""
    image_template: Annotated[str | None, refused(_TASK, None)] = None
    memory: Annotated[str, refused(_TASK, "4g")] = "4g"
    cpus: Annotated[float, refused(_TASK, 2, 2.0)] = 2.0
    network: Annotated[str, refused(_TASK, "bridge")] = "bridge"
    stateful: Annotated[bool, refused(_TASK, False)] = False


def arguments_of(solver: HarborSolver, sandbox: DockerSandbox | None, timeout: float | None) -> dict[str, Any]:
    """Returns the arguments of the environment. ``timeout`` is that of the benchmark, None if it is not set."""
    is_own = solver.timeout_strategy == "override"
    limits = [solver.run_timeout if is_own else None, timeout]
    if sandbox is not None and "timeout" in sandbox.model_fields_set:
        limits.append(sandbox.timeout)
    variables = {**(sandbox.container_env if sandbox else {}), **solver.container_env}
    found = {
        "agent": solver.agent,
        "agent_timeout_seconds": min((each for each in limits if each is not None), default=None) if is_own else None,
        "timeout_per_command_seconds": solver.cmd_timeout,
        "docker_image": sandbox and sandbox.image,
        "environment_vars": variables or None,
    }
    return {name: value for name, value in found.items() if value is not None}

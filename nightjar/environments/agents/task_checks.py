"""Checks tasks without a model: the agent ``oracle`` must get the whole reward, and the agent ``nop`` none."""

from __future__ import annotations

import asyncio
import functools
import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from nightjar.clients.client import UnaskedClient
from nightjar.core.rollout.state import RolloutInput
from nightjar.core.text import one_line
from nightjar.environments.agents.harbor_env import HarborEnv
from nightjar.environments.agents.harbor_task import HarborTask, find_tasks, read_task, resolve_env
from nightjar.environments.agents.runnable import default_sandboxes, is_engine_available, reasons_against
from nightjar.environments.rollouts import tear_down
from nightjar.errors import ConfigError, DatasetError, MissingKeyError, NightjarError, error_chain
from nightjar.sandboxes.images import ImageError

Progress = Callable[[int, int], None]
SCHEME = "harbor://"
_WHOLE = 1.0 - 1e-9
_MOST_LOG = 2_000
_MOST_ERROR = 2_000
_ORACLE, _NOP, _KEEPING = "oracle", "nop", "keeping"
_KEEP = """passes with keep_processes: -a '{"keep_processes": true}'"""


@dataclass(frozen=True)
class AgentResult:
    """The reward of one agent, or its error. The logs are the ends of the output of the tests, and of ``solve.sh``."""

    reward: float | None
    error: str | None = None
    log: str = ""
    agent_log: str = ""
    is_image_broken: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the reward is 1."""
        return self.reward is not None and self.reward >= _WHOLE

    @property
    def shown(self) -> str:
        """The error, or the reward."""
        return self.error or f"the reward is {self.reward:g}"


@dataclass(frozen=True)
class TaskCheck:
    """The result of checking a task. ``refused`` says why it cannot run here; then no agent has run."""

    name: str
    refused: list[str] = field(default_factory=list)
    oracle: AgentResult | None = None
    nop: AgentResult | None = None
    passes_with_keep_processes: bool = False

    @property
    def problems(self) -> list[str]:
        """Returns what is wrong with the task, one sentence each; empty if it passes."""
        if self.refused:
            return self.refused
        if self.nop is not None and self.nop.is_image_broken:
            return [self.nop.shown]
        found = []
        if self.oracle is None:
            found.append("it has no solution/solve.sh, so oracle cannot run")
        elif self.passes_with_keep_processes:
            found.append(_KEEP)
        elif not self.oracle.is_whole:
            found.append(f"oracle should get the reward 1: {self.oracle.shown}")
        if self.nop is not None and self.nop.reward != 0:
            found.append(f"nop should get the reward 0: {self.nop.shown}")
        return found


async def check_tasks(
    path: Path, env_args: Mapping[str, Any], max_sandboxes: int | None = None, progress: Progress = lambda *_: None
) -> list[TaskCheck]:
    """Checks the tasks in a folder, several at once. ``progress`` is called with the numbers of checked and all tasks.

    ``env_args`` are arguments of ``HarborEnv``, except ``agent``.
    """
    if wrong := sorted({"agent", "run_command", "dataset_path"} & env_args.keys()):
        raise ConfigError(f"The check of tasks runs the agents oracle and nop: leave out {wrong[0]!r}")
    names = env_args.get("tasks")
    found = _read(path, [names] if isinstance(names, str) else names)
    runnable = [task for task in found.values() if isinstance(task, HarborTask)]
    most = max_sandboxes or env_args.get("max_sandboxes")
    checker = _Checker(path, {**env_args, "max_sandboxes": most}, runnable)
    try:
        return await checker.check_all(found, most, progress)
    finally:
        await checker.close()


def _read(path: Path, names: Sequence[str] | None) -> dict[str, HarborTask | TaskCheck]:
    """Returns the tasks that can run here, and for each of the others why it cannot."""
    is_engine_there = functools.cache(is_engine_available)
    found: dict[str, HarborTask | TaskCheck] = {}
    for name, folder in find_tasks(path, names).items():
        try:
            task = read_task(folder)
            resolve_env({**task.environment.env, **task.verifier.env, **task.solution_env}, task.name)
            reasons = reasons_against(task, is_engine_there)
        except (DatasetError, MissingKeyError) as error:
            reasons = [str(error)]
        found[name] = TaskCheck(name, refused=reasons) if reasons else task
    return found


class _Checker:
    """The environments of the agents, each made when it is needed, with the tasks that can run."""

    def __init__(self, path: Path, env_args: Mapping[str, Any], tasks: Sequence[HarborTask]) -> None:
        self._path = path
        self._env_args = env_args
        self._keeps_processes = bool(env_args.get("keep_processes"))
        self._tasks = tasks
        self._envs: dict[str, HarborEnv] = {}

    async def check_all(
        self, found: Mapping[str, HarborTask | TaskCheck], most: int | None, progress: Progress
    ) -> list[TaskCheck]:
        places = asyncio.Semaphore(most or (default_sandboxes(None, self._tasks) if self._tasks else 1))
        done = 0

        async def check(task: HarborTask | TaskCheck) -> TaskCheck:
            nonlocal done
            async with places:
                checked = await self._check(task) if isinstance(task, HarborTask) else task
            done += 1
            progress(done, len(found))
            return checked

        progress(0, len(found))
        async with asyncio.TaskGroup() as group:
            checks = [group.create_task(check(task)) for task in found.values()]
        return [each.result() for each in checks]

    async def close(self) -> None:
        for env in self._envs.values():
            await tear_down(env)

    async def _check(self, task: HarborTask) -> TaskCheck:
        nop = await self._run(_NOP, task)
        if nop.is_image_broken or not task.has_solution:
            return TaskCheck(task.name, nop=nop)
        oracle = await self._run(_ORACLE, task)
        if oracle.is_whole or self._keeps_processes:
            return TaskCheck(task.name, oracle=oracle, nop=nop)
        keeping = await self._run(_KEEPING, task)
        return TaskCheck(task.name, oracle=oracle, nop=nop, passes_with_keep_processes=keeping.is_whole)

    async def _run(self, agent: str, task: HarborTask) -> AgentResult:
        try:
            env = self._env(agent)
            example = cast("RolloutInput", env.examples[[*env.tasks].index(task.name)])
            state = await env.run_rollout({**example, "rollout_index": 0}, UnaskedClient(), "")
        except Exception as error:  # noqa: BLE001 - it is the result of this task
            return _failed(error)
        log, agent_log = (str(state.get(name) or "")[-_MOST_LOG:] for name in ("verifier_log", "agent_log"))
        result = AgentResult(state["reward"]) if state["error"] is None else _failed(state["error"])
        return replace(result, log=log, agent_log=agent_log)

    def _env(self, agent: str) -> HarborEnv:
        if agent not in self._envs:
            keeping = {"keep_processes": True} if agent == _KEEPING else {}
            name = _ORACLE if agent == _KEEPING else agent
            names = [glob.escape(task.name) for task in self._tasks if agent == _NOP or task.has_solution]
            self._envs[agent] = HarborEnv(self._path, **{**self._env_args, **keeping, "tasks": names, "agent": name})
        return self._envs[agent]


def _failed(error: BaseException) -> AgentResult:
    chain = [*error_chain(error)]
    told = next((each for each in chain if isinstance(each, NightjarError)), chain[-1])
    if isinstance(told, ImageError):
        return AgentResult(None, str(told), is_image_broken=True)
    return AgentResult(None, one_line(str(told) or type(told).__name__, _MOST_ERROR))


__all__ = ["SCHEME", "AgentResult", "TaskCheck", "check_tasks"]

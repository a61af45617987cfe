"""A trial: one rollout of a task, from the start of its container to the reward of its last step."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightjar.core.messages import Messages
from nightjar.core.rollout.state import State
from nightjar.environments.agents.artifacts import ALWAYS_KEPT, hand_over, keep
from nightjar.environments.agents.conversation import AgentRequest
from nightjar.environments.agents.harbor_task import Artifact, HarborStep, HarborTask, Healthcheck, resolve_env
from nightjar.environments.agents.live_events import LiveEvents
from nightjar.environments.agents.program import AgentProgram
from nightjar.environments.agents.shell import PersistentShell
from nightjar.environments.agents.verification import (
    SOLUTION,
    TESTS,
    clear,
    combined,
    copy_in,
    run_script,
    verify,
)
from nightjar.errors import Error, SandboxError
from nightjar.sandboxes import Sandbox
from nightjar.sandboxes.task_containers import TaskContainer

_MOST_DIFF_BYTES = 200_000
_MOST_LOG = 200_000
_DIFF_SECONDS = 30.0
_SHOWN = 300
logger = logging.getLogger(__name__)
# The index of the repository must stay as it is: tests may compare it.
DIFF = """
command -v git >/dev/null 2>&1 || exit 0
git() { command git -c safe.directory='*' "$@"; }
git rev-parse HEAD >/dev/null 2>&1 && index=$(git rev-parse --git-path index) || exit 0
copy=$(mktemp) && cp "$index" "$copy" || exit 0
export GIT_INDEX_FILE="$copy"
git add --intent-to-add --all && git diff HEAD
rm -f "$copy"
"""

_SOCKETS = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null"
_LISTENING = re.compile(r"^ *\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", re.MULTILINE)


class HealthcheckError(SandboxError):
    """The container of a task did not become healthy."""


@dataclass
class Trial:
    """A task in its container. ``rewards`` has the named rewards of each verified step.

    ``separate_verifier`` makes the container for tests that do not run in the agent's. Artifacts go to ``run_folder``,
    in a folder with the name of the ``rollout``.
    """

    task: HarborTask
    sandbox: Sandbox
    shell: PersistentShell
    separate_verifier: Callable[[HarborStep], Awaitable[TaskContainer]]
    live: LiveEvents
    run_folder: Path | None
    rollout: str
    keeps_processes: bool = False
    agent_seconds: float | None = None
    limit: asyncio.Timeout | None = None
    deadline: float | None = None
    program: AgentProgram | None = None
    request: AgentRequest | None = None
    log: str = ""
    number: int = 0
    is_new_step: bool = True
    is_submitted: bool = False
    is_verified: bool = False
    rewards: list[dict[str, float]] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    verifier_seconds: float = 0.0
    diff: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)
    turn: int = 0
    last_answers: Messages = field(default_factory=list)
    exit_code: int | None = None
    exit_codes: list[int | None] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def step(self) -> HarborStep:
        """The current step."""
        return self.task.steps[self.number]

    async def begin_step(self) -> None:
        """Waits until the container is healthy and starts the clock of the step's agent."""
        if self.number == 0:
            await self._wait_until_healthy(self.task.environment.healthcheck)
        self._set_user(self.step.agent.user)
        if self.step.name and self.step.workdir_folder.is_dir():
            await self._copy_step_files()
        await self._wait_until_healthy(self.step.healthcheck)
        self._limit_agent()

    def start_clock(self, limit: asyncio.Timeout, seconds: float | None) -> None:
        """Starts the time of the agent. The rollout may take ``seconds`` from now; None means no limit."""
        now = asyncio.get_running_loop().time()
        self.limit, self.deadline = limit, None if seconds is None else now + seconds
        limit.reschedule(self.deadline)
        self._limit_agent()

    def _limit_agent(self) -> None:
        seconds = self.agent_seconds or self.step.agent.timeout_seconds
        if self.limit is not None and seconds is not None:
            end = asyncio.get_running_loop().time() + seconds
            self.limit.reschedule(end if self.deadline is None else min(end, self.deadline))

    async def _copy_step_files(self) -> None:
        await copy_in(self.sandbox, self.step.workdir_folder, self.sandbox.workspace)
        if (self.step.workdir_folder / "setup.sh").is_file():
            done = await run_script(self.sandbox, "./setup.sh", self._container_env(), None)
            if done.exit_code != 0:
                raise Error(
                    f"setup.sh of {self._name!r} ended with exit code {done.exit_code}: {done.stderr[-_SHOWN:]}"
                )

    async def next_step(self) -> bool:
        """Verifies the current step and goes to the next one. Returns False if the trial is over."""
        if self.number + 1 >= len(self.task.steps):
            return False
        if self.limit is not None:
            self.limit.reschedule(self.deadline)
        await self.verify_step()
        lowest = self.step.min_reward
        if any(self.rewards[-1].get(name, 0.0) < least for name, least in lowest.items()):
            return False
        self.number += 1
        self.is_new_step, self.is_submitted, self.is_verified = True, False, False
        await clear(self.sandbox, [TESTS, SOLUTION])
        await self.begin_step()
        return True

    async def verify_step(self) -> None:
        """Ends the agent's processes, keeps artifacts, runs the tests of the current step and keeps their rewards."""
        step, verifier = self.step, self.step.verifier
        await self.stop_agent()
        self.diff = await self._changed_files()
        await self._collect()
        await self.end_agent()
        artifacts, kept = [ALWAYS_KEPT, *step.artifacts], []
        if self.run_folder is not None:
            place = f"artifacts/{self.rollout}/{step.name}".rstrip("/")
            kept = await keep(self.sandbox, artifacts, self.run_folder, place)
        env = resolve_env(verifier.env, self.task.name)
        if not verifier.is_separate:
            env = {**self._container_env(), **env}
        tests = () if step.has_image_with_tests else step.tests_folders
        started = time.monotonic()
        try:
            async with self._verifier(artifacts) as sandbox:
                found = await verify(sandbox, self._name, tests, env, verifier.timeout_seconds)
        finally:
            self.verifier_seconds += time.monotonic() - started
        self.is_verified = True
        self.artifacts += kept
        self.rewards.append(found.rewards)
        self.logs.append(found.log)
        self.live.add("verifier", found.log)

    async def end_agent(self) -> None:
        """Ends the agent, and all processes that it left behind unless the tests need them or run elsewhere."""
        await self.stop_agent()
        if not (self.keeps_processes or self.step.verifier.is_separate):
            await self._warn_of_servers()
            await self.sandbox.end_processes()

    async def _warn_of_servers(self) -> None:
        """Warns of servers that are about to end, because tests that use them fail without another hint."""
        done = await self.sandbox.exec(_SOCKETS, _DIFF_SECONDS, max_output_bytes=_MOST_DIFF_BYTES)
        if ports := listening_ports(done.stdout):
            logger.warning(
                "Servers of %r end before the tests: ports %s. If the tests use these servers, set keep_processes",
                self._name,
                ", ".join(map(str, ports)),
            )

    async def _collect(self) -> None:
        """Runs the commands that save what the agent has running. As in Harbor, their failures do not count."""
        for command in self.step.verifier.collect:
            self._set_user(command.user)
            done = await self.sandbox.exec(command.command, command.timeout_seconds)
            if done.exit_code != 0:
                logger.warning("A collect command of %r failed: %s", self._name, done.stderr[-_SHOWN:])

    async def stop_agent(self) -> None:
        """Ends the agent's shell or program, and keeps the output of a program. A second call does nothing."""
        await self.shell.close(keeps_processes=self.keeps_processes)
        program, self.program, self.request = self.program, None, None
        if program is not None:
            await program.close()
            self.log += program.log
            self.exit_codes.append(program.exit_code)

    async def solve(self) -> str:
        """Runs the reference solution of the current step. Returns its output."""
        step = self.step
        await copy_in(self.sandbox, step.solution_folder, SOLUTION)
        env = {**self._container_env(), **resolve_env(self.task.solution_env, self.task.name)}
        done = await run_script(self.sandbox, f"{SOLUTION}/solve.sh", env, None)
        return "\n".join(part for part in (done.stdout, done.stderr) if part)

    @property
    def _name(self) -> str:
        return f"{self.task.name}/{self.step.name}" if self.step.name else self.task.name

    @asynccontextmanager
    async def _verifier(self, artifacts: Sequence[Artifact]) -> AsyncIterator[Sandbox]:
        """Yields the sandbox of the tests: the agent's, or a new one that has only the artifacts."""
        verifier = self.step.verifier
        if not verifier.is_separate:
            self._set_user(verifier.user)
            yield self.sandbox
            return
        sandbox = await self.separate_verifier(self.step)
        try:
            await sandbox.start()
            await hand_over(self.sandbox, sandbox, artifacts)
            sandbox.user = verifier.user
            yield sandbox
        finally:
            await sandbox.close()

    def add_tool_call(self, turn: int, tool: str, seconds: float) -> None:
        """Records a tool call."""
        call = {"turn": turn, "tool": tool, "seconds": round(seconds, 3), "exit_code": self.exit_code}
        self.steps.append(call)

    async def _changed_files(self) -> str:
        done = await self.sandbox.exec(DIFF, _DIFF_SECONDS, max_output_bytes=_MOST_DIFF_BYTES)
        return done.stdout if done.exit_code == 0 else ""

    def record(self, state: State) -> None:
        """Writes what the trial found into the state."""
        state["verifier_log"] = "\n".join(self.logs)
        state["changed_files"] = self.diff
        state["agent_log"] = self.log[-_MOST_LOG:]
        state["agent_exit_code"] = self.exit_codes[-1] if self.exit_codes else None
        state["artifacts"] = self.artifacts
        state["verifier_seconds"] = round(self.verifier_seconds, 3)
        if self.rewards:
            state["verifier_rewards"] = combined(self.rewards, self.task.multi_step_reward_strategy)

    def _container_env(self) -> Mapping[str, str]:
        return resolve_env(self.task.environment.env, self.task.name)

    def _set_user(self, user: str | None) -> None:
        known: Any = self.sandbox
        if hasattr(known, "user"):
            known.user = user

    async def _wait_until_healthy(self, check: Healthcheck | None) -> None:
        started, failures = time.monotonic(), 0
        while check is not None:
            done = await self.sandbox.exec(check.command, check.timeout_seconds)
            if done.exit_code == 0:
                return
            is_starting = time.monotonic() - started < check.start_period_seconds
            failures += not is_starting
            if failures >= check.retries:
                said = " ".join(f"{done.stdout} {done.stderr}".split())[-_SHOWN:]
                raise HealthcheckError(f"The container of {self._name!r} is not healthy after {failures} tries: {said}")
            await asyncio.sleep(check.start_interval_seconds if is_starting else check.interval_seconds)


def listening_ports(table: str) -> list[int]:
    """Returns the TCP ports on which servers listen, from the content of /proc/net/tcp and /proc/net/tcp6."""
    return sorted({int(port, 16) for port in _LISTENING.findall(table)})

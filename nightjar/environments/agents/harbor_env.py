"""``HarborEnv`` evaluates agents on tasks in Harbor's format: each rollout works in a container of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nightjar.clients.client import AnyClient
from nightjar.core.calling.decorators import cleanup, stop, teardown
from nightjar.core.calling.loops import PerLoop
from nightjar.core.messages import Messages, Response, Tool, content_text
from nightjar.core.rollout.state import SamplingArgs, State
from nightjar.environments.agents.answering import answered
from nightjar.environments.agents.bridge import AgentBridge
from nightjar.environments.agents.harbor_rubric import HarborRubric
from nightjar.environments.agents.harbor_task import HarborTask
from nightjar.environments.agents.live_events import LiveEvents
from nightjar.environments.agents.program import AgentProgram
from nightjar.environments.agents.runnable import row_of, runnable_tasks
from nightjar.environments.agents.shell import PersistentShell
from nightjar.environments.agents.shell_tools import ShellTools
from nightjar.environments.agents.task_sandboxes import TaskSandboxes
from nightjar.environments.agents.transcript import completion_of, with_known_messages
from nightjar.environments.agents.trial import Trial
from nightjar.environments.agents.verification import LOG_FOLDERS, copy_in, make_folders
from nightjar.environments.tools.tool_env import StatefulToolEnv
from nightjar.errors import ConfigError, SandboxError

logger = logging.getLogger(__name__)

AGENTS = ("shell", "oracle", "nop")
_COMMAND = "command:"
_LONGEST_SECONDS = 24 * 3600.0
_TASK_FOLDER, _AGENT_FOLDER = "/task", "/agent"
_INSTRUCTION = f"{_TASK_FOLDER}/instruction.md"
SHELL_PROMPT = (
    "You work in a Linux container, with the tools bash, read_file, write_file and edit_file. The shell keeps its "
    "directory and variables between commands, and has no keyboard input. Do the task that the user describes, check "
    "your work, and then call submit. Tests decide whether the task is done."
)


class HarborEnv(StatefulToolEnv):
    """Evaluates an agent on tasks in Harbor's format. docs/guides/agents.md describes the agents.

    Args:
        dataset_path: a folder of tasks, or a task.
        tasks: names of tasks, with ``*`` and ``?`` as wildcards; None means all.
        agent: ``shell`` (the evaluated model with a shell), ``oracle`` (the reference solution), ``nop`` (nothing), or
            ``command:PROGRAM`` (an agent program in the container). ``run_command`` is the same as ``command:``.
        keep_processes: processes of the agent go on while the tests run, for tests that ask a server.
        max_sandboxes: the most containers at once; None means as many as cores and memory allow.
        agent_timeout_seconds: replaces the time limit of the tasks.
        docker_image: the image of tasks that have none. Without it, such tasks run in local sandboxes.
        agent_folder: a folder of this machine that is copied to ``/agent`` for an agent program.
        interception_port, interception_url: as for ``CliAgentEnv``, for agent programs.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp(), "hello")
        >>> (folder / "tests").mkdir(parents=True)
        >>> for name in ("task.toml", "instruction.md", "tests/test.sh"):
        ...     _ = (folder / name).write_text("# Write 42 to /app/answer.")
        >>> [tool.name for tool in HarborEnv(folder).tool_defs]
        ['bash', 'read_file', 'write_file', 'edit_file', 'submit']
    """

    state_columns: Sequence[str] = (
        "task_name", "image_digest", "agent_steps", "agent_log", "verifier_log", "verifier_seconds", "changed_files",
        "artifacts",
    )  # fmt: skip
    is_setup_timed = False

    def __init__(
        self,
        dataset_path: str | os.PathLike[str],
        tasks: Sequence[str] | None = None,
        agent: str = "shell",
        run_command: str | None = None,
        keep_processes: bool = False,
        max_sandboxes: int | None = None,
        agent_timeout_seconds: float | None = None,
        timeout_per_command_seconds: float = 180,
        max_output_bytes: int = 20_000,
        max_turns: int = 100,
        docker_image: str | None = None,
        environment_vars: Mapping[str, str] | None = None,
        agent_workdir: str | None = None,
        agent_folder: str | os.PathLike[str] | None = None,
        interception_port: int | None = None,
        interception_url: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.agent = f"{_COMMAND}{run_command}" if run_command else agent
        if self.agent not in AGENTS and not self.agent.startswith(_COMMAND):
            raise ConfigError(f"Unknown agent {agent!r}. Choose one of: {', '.join(AGENTS)}, {_COMMAND}PROGRAM")
        if agent_folder is not None and not Path(agent_folder).is_dir():
            raise ConfigError(f"agent_folder {str(agent_folder)!r} is not a folder")
        names = [tasks] if isinstance(tasks, str) else tasks
        self.tasks = runnable_tasks(Path(dataset_path), names, needs_solution=self.agent == "oracle")
        options: dict[str, Any] = {"timeout_seconds": _LONGEST_SECONDS, "hook_timeout_seconds": None, **kwargs}
        if self.agent == "shell":
            options.setdefault("system_prompt", SHELL_PROMPT)
        super().__init__(
            eval_dataset=[row_of(task) for task in self.tasks.values()], max_turns=max_turns,
            rubric=HarborRubric(), stop_errors=[SandboxError], **options,
        )  # fmt: skip
        self.keep_processes = keep_processes
        self.agent_timeout_seconds = agent_timeout_seconds
        self.max_output_bytes = max_output_bytes
        self.agent_folder = agent_folder
        self.interception_port = interception_port
        self.interception_url = interception_url
        self.sandboxes = TaskSandboxes(
            self.tasks, max_sandboxes, docker_image, dict(environment_vars or {}), agent_workdir
        )
        self._command = self.agent.removeprefix(_COMMAND) if self.agent.startswith(_COMMAND) else None
        self._trials: dict[str, Trial] = {}
        self._bridges = PerLoop(AgentBridge, AgentBridge.stop)
        if self.agent == "shell":
            for tool in ShellTools(timeout_per_command_seconds, max_output_bytes).all:
                self.add_tool(tool, args_to_skip=["trial"])

    async def setup_state(self, state: State, **kwargs: Any) -> State | None:  # noqa: ARG002 - as the original
        task = self.tasks[state["info"]["task_name"]]
        state.update(task_name=task.name, agent_steps=[], agent_log="", agent_seconds={"model": 0.0, "start": 0.0},
                     image_digest=None, verifier_log="", verifier_seconds=0.0, changed_files="",
                     artifacts=[])  # fmt: skip
        self._trials[state["trajectory_id"]] = await self._start(task, state)
        return state

    def start_clock(self, state: State, limit: asyncio.Timeout) -> None:
        """Starts the time limits of the rollout and of the agent."""
        self._trials[state["trajectory_id"]].start_clock(limit, self.timeout_seconds)

    async def get_prompt_messages(self, state: State) -> Messages:
        trial = self._trials[state["trajectory_id"]]
        while (prompt := await self._next_prompt(trial, state)) is None:
            if not await trial.next_step():
                state["final_env_response"] = trial.last_answers
                return []
        return prompt

    def update_tool_args(
        self,
        tool_name: str,  # noqa: ARG002 - every tool gets the trial
        tool_args: dict[str, Any],
        messages: Messages,  # noqa: ARG002
        state: State,
        **kwargs: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        return {**tool_args, "trial": self._trials[state["trajectory_id"]]}

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any], tool_call_id: str, **kwargs: Any) -> Any:
        """Calls a tool, and records how long it took."""
        trial: Trial = tool_args["trial"]
        trial.exit_code, started = None, time.monotonic()
        trial.live.add("command", str(tool_args.get("command") or f"{tool_name} {tool_args.get('path', '')}".rstrip()))
        said = ""
        try:
            answer = await super().call_tool(tool_name, tool_args, tool_call_id, **kwargs)
            said = str(answer.content)
            return answer
        finally:
            seconds = time.monotonic() - started
            trial.add_tool_call(trial.turn, tool_name, seconds)
            trial.live.add("output", said, trial.exit_code, round(seconds, 3))

    @property
    def max_sandboxes(self) -> int | None:
        """How many containers run at once; None means as many as cores and memory allow."""
        return self.sandboxes.max_sandboxes

    def set_max_sandboxes(self, max_sandboxes: int | None) -> None:
        """Sets how many containers run at once; None means as many as cores and memory allow."""
        self.sandboxes.max_sandboxes = max_sandboxes

    async def get_model_response(
        self,
        state: State,
        prompt: Messages | str,
        client: AnyClient | None = None,
        model: str | None = None,
        tool_defs: list[Tool] | None = None,
        sampling_args: SamplingArgs | None = None,
    ) -> Response:
        """Asks the model. An agent program gets the response, or the error that ends the rollout."""
        trial = self._trials.get(state["trajectory_id"])
        if trial is None or trial.request is None:
            return await super().get_model_response(state, prompt, client, model, tool_defs, sampling_args)
        ask = partial(super().get_model_response, state, prompt, client, model)
        return await answered(trial.request, sampling_args or state["sampling_args"] or {}, ask)

    async def add_model_response(self, state: State, prompt_messages: Messages, response: Response) -> None:
        """Adds a response to the trajectory. The first request of an agent program becomes the prompt."""
        if self._command is not None and not state["trajectory"]:
            state["prompt"] = prompt_messages
        await super().add_model_response(state, prompt_messages, response)
        if (trial := self._trials.get(state["trajectory_id"])) is not None:
            trial.turn = len(state["trajectory"]) - 1
            if text := content_text(response.message.content):
                trial.live.add("message", text)

    async def render_completion(self, state: State) -> None:
        """Sets ``state["completion"]``: all messages after the prompt, without repetitions."""
        if self._command is None:
            await super().render_completion(state)
        else:
            state["completion"] = completion_of(state["trajectory"])

    @stop
    async def no_tools_called(self, state: State) -> bool:  # noqa: ARG002 - the next prompt decides
        """Never stops: an answer without a tool call ends a step, and the next step may follow."""
        return False

    @cleanup
    async def finish_trial(self, state: State) -> None:
        """Verifies what the agent did, unless the rollout failed, and removes the container."""
        trial = self._trials.pop(state["trajectory_id"], None)
        if trial is None:
            return
        try:
            if state.get("error") is None and state["is_completed"] and not trial.is_verified:
                await trial.verify_step()
        finally:
            await trial.stop_agent()
            state["agent_seconds"]["model"] = round(state["timing"].model.duration, 3)
            trial.record(state)
            await self._close(trial)

    @teardown
    async def remove_containers(self) -> None:
        """Removes the containers that are left at the end of a run."""
        await asyncio.gather(*(self._close(trial) for trial in self._trials.values()))
        self._trials.clear()
        await self._bridges.close()
        await self.sandboxes.close()

    async def _next_prompt(self, trial: Trial, state: State) -> Messages | None:
        """Returns the next prompt for the model, or None when the agent has ended the current step."""
        if self.agent == "oracle":
            trial.log += await trial.solve()
        elif self.agent == "shell":
            return await self._next_shell_prompt(trial, state)
        elif self._command is not None:
            return await self._next_request(trial, state)
        return None

    async def _next_request(self, trial: Trial, state: State) -> Messages | None:
        with state["timing"].env.measure():
            if trial.program is None:
                trial.program = await self._start_program(trial, state)
            trial.request = await trial.program.next_request()
        if trial.request is None:
            return None
        return with_known_messages(state["trajectory"], trial.request.messages)

    async def _next_shell_prompt(self, trial: Trial, state: State) -> Messages | None:
        is_new, trial.is_new_step = trial.is_new_step, False
        if not state["trajectory"]:
            prompt: Messages = state["prompt"]
            return prompt
        last = state["trajectory"][-1]
        conversation = [*last["prompt"], *last["completion"]]
        if is_new:
            return [*conversation, *trial.last_answers, {"role": "user", "content": trial.step.instruction}]
        trial.last_answers = []
        if not conversation[-1].get("tool_calls"):
            return None
        with state["timing"].env.measure():
            answers = await self.env_response(conversation, state)
        if trial.is_submitted:
            trial.last_answers = answers
            return None
        return [*conversation, *answers]

    async def _start(self, task: HarborTask, state: State) -> Trial:
        image = await self.sandboxes.image_of(task)
        state["image_digest"] = image and image.digest
        columns = state["input"]
        name = f"{columns['example_id']}-{columns['rollout_index']}"
        await self.sandboxes.places.acquire()
        started = time.monotonic()
        try:
            sandbox = self.sandboxes.new(task, image, needs_host=self._command is not None)
            shell = PersistentShell(sandbox, self.max_output_bytes)
            live = LiveEvents(self.run_folder, name)
            trial = Trial(task, sandbox, shell, partial(self.sandboxes.new_verifier, task), live, self.run_folder, name)
            trial.keeps_processes, trial.agent_seconds = self.keep_processes, self.agent_timeout_seconds
            trial.steps = state["agent_steps"]
            try:
                await sandbox.start()
                await make_folders(sandbox, LOG_FOLDERS)
                await trial.begin_step()
            except BaseException:
                await sandbox.close()
                raise
        except BaseException:
            self.sandboxes.places.release()
            raise
        state["agent_seconds"]["start"] = round(time.monotonic() - started, 3)
        return trial

    async def _start_program(self, trial: Trial, state: State) -> AgentProgram:
        """Starts the agent program of the current step with its instruction."""
        host = getattr(trial.sandbox, "host_address", "")
        if not host:
            raise SandboxError(
                f"The container of {trial.task.name!r} cannot reach this machine, as {self.agent!r} must"
            )
        bridge = await self._bridges.get()
        url = await bridge.start(host, self.interception_port or 0)
        await trial.sandbox.upload(trial.step.instruction.encode(), _INSTRUCTION)
        if self.agent_folder is not None and trial.number == 0:
            await copy_in(trial.sandbox, Path(self.agent_folder), _AGENT_FOLDER)
        variables = {
            "HARBOR_TASK_NAME": trial.task.name,
            "HARBOR_TASK_DIR": _TASK_FOLDER,
            "HARBOR_INSTRUCTION_PATH": _INSTRUCTION,
            "AGENT_WORKDIR": trial.sandbox.workspace,
        }
        conversation = bridge.open(state["model"])
        program = AgentProgram(trial.sandbox, str(self._command), conversation, self.interception_url or url, variables)
        await program.start()
        return program

    async def _close(self, trial: Trial) -> None:
        try:
            await trial.sandbox.close()
        finally:
            trial.live.end()
            self.sandboxes.places.release()


def harbor_environment(uri: str, **env_args: Any) -> HarborEnv:
    """Makes the environment of ``harbor://PATH``."""
    path = uri.partition("://")[2]
    if not path:
        raise ConfigError("harbor:// needs the path of a task or of a folder of tasks: harbor://PATH")
    return HarborEnv(path, **env_args)

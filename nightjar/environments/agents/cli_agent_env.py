"""``CliAgentEnv`` runs any agent program in a sandbox; the model under test answers the program's requests."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from nightjar.clients.client import AnyClient
from nightjar.core.calling.decorators import cleanup, stop, teardown
from nightjar.core.calling.loops import PerLoop
from nightjar.core.messages import Messages, Response, Tool
from nightjar.core.rollout.state import SamplingArgs, State
from nightjar.environments.agents.answering import answered
from nightjar.environments.agents.bridge import AgentBridge
from nightjar.environments.agents.conversation import AgentRequest
from nightjar.environments.agents.program import AgentProgram
from nightjar.environments.agents.transcript import completion_of, with_known_messages
from nightjar.environments.multiturn import MultiTurnEnv, T
from nightjar.environments.rubrics import Rubric
from nightjar.errors import SandboxError
from nightjar.sandboxes.images import Images, ImageSource
from nightjar.sandboxes.providers import docker_provider
from nightjar.sandboxes.sandbox import Sandbox
from nightjar.sandboxes.task_containers import ContainerSpec, TaskContainer


@dataclass
class _Agent:
    sandbox: Sandbox
    program: AgentProgram | None = None
    request: AgentRequest | None = None


class CliAgentMonitorRubric(Rubric):
    """Records whether the agent ran out of time, and whether it ended with an exit code other than 0.

    ``release`` closes a sandbox that was kept for scoring.
    """

    def __init__(self, release: Callable[[State], Coroutine[Any, Any, None]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.agent_timeout)
        self.add_metric(self.agent_error)
        self.add_cleanup_handler(release)

    async def agent_timeout(self, state: State) -> float:
        return float(bool(state.get("agent_timed_out")))

    async def agent_error(self, state: State) -> float:
        return float(state.get("agent_exit_code") not in {None, 0})


class CliAgentEnv(MultiTurnEnv):
    """Runs an agent program in a sandbox. Each request of the program to its model is a turn of the rollout.

    The program finds the model in the variables ``OPENAI_BASE_URL``, ``OPENAI_API_KEY`` and ``OPENAI_MODEL``, or
    ``ANTHROPIC_BASE_URL``, ``ANTHROPIC_API_KEY`` and ``ANTHROPIC_MODEL``. It can use chat completions, the Responses
    API or Anthropic's messages, with or without streaming, whatever the protocol of the model under test. The rollout
    ends when the program ends, or with the first error of the model, which the program receives, too. The first request
    becomes the rollout's prompt. The sampling arguments of the run override those of the program.

    ``state`` gets ``agent_exit_code`` (None if the program was killed), ``agent_log`` (standard output and error; a
    long log lacks its middle), ``agent_completed`` and ``agent_timed_out``.

    Args:
        run_command: the command line that starts the program.
        interception_port: the port on which this machine listens for the programs' requests; None takes a free port.
        interception_url: the URL of that port as the sandbox sees it, for a proxy; None means the sandbox's own view.
        max_turns: maximum number of requests; -1 means no limit.
        timeout_seconds: time limit from the start of the program. An agent that runs out of time is scored.
        poll_interval: accepted for compatibility, without effect.
        start_command, docker_image, cpu_cores, memory_gb, disk_size_gb, gpu_count: the sandbox.
        timeout_minutes: lifetime of the sandbox; None means the time limit of the rollout and ten minutes.
        environment_vars: further variables of the program.
        working_dir: the directory in which the program starts; None means the sandbox's own.
        keep_sandbox_for_scoring: keep the sandbox until reward functions have run; ``sandbox_of(state)`` returns it.
        labels: labels of the sandbox.

    Example:
        >>> env = CliAgentEnv("python agent.py", dataset=[{"question": "Write 42 to the file answer."}])
        >>> env.timeout_seconds
        3600
    """

    state_columns = ("agent_exit_code", "agent_log")
    is_setup_timed = False

    def __init__(
        self,
        run_command: str,
        interception_port: int | None = None,
        interception_url: str | None = None,
        max_turns: int = -1,
        timeout_seconds: float | None = 3600,
        poll_interval: float = 5,
        docker_image: str = "python:3.11-slim",
        start_command: str = "tail -f /dev/null",
        cpu_cores: float = 1,
        memory_gb: float = 2,
        disk_size_gb: float = 5,
        gpu_count: int = 0,
        timeout_minutes: float | None = None,
        environment_vars: dict[str, str] | None = None,
        working_dir: str | None = None,
        keep_sandbox_for_scoring: bool = False,
        labels: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, timeout_seconds=timeout_seconds, **kwargs)
        self.run_command = run_command
        self.interception_port = interception_port
        self.interception_url = interception_url
        self.poll_interval = poll_interval
        self.docker_image = docker_image
        self.start_command = start_command
        self.cpu_cores = cpu_cores
        self.memory_gb = memory_gb
        self.disk_size_gb = disk_size_gb
        self.gpu_count = gpu_count
        self.timeout_minutes = timeout_minutes or math.ceil((timeout_seconds or 86_400) / 60) + 10
        self.environment_vars = environment_vars
        self.working_dir = working_dir
        self.keep_sandbox_for_scoring = keep_sandbox_for_scoring
        self.labels = labels or []
        self._bridges = PerLoop(AgentBridge, AgentBridge.stop)
        self._engine: Images | None = None
        self._agents: dict[str, _Agent] = {}
        self.add_rubric(CliAgentMonitorRubric(self.release_sandbox))

    async def start_sandbox(self, state: State) -> tuple[Sandbox, str]:
        """Returns a started container, and the address of this machine as the container sees it."""
        images = await self._images()
        image = await images.prepared(ImageSource(await self.get_docker_image(state)))
        spec = ContainerSpec(
            image=image.name,
            working_dir=self.working_dir or image.working_dir,
            cpus=self.cpu_cores,
            memory_mb=int(self.memory_gb * 1024),
            storage_mb=int(self.disk_size_gb * 1024),
            gpus=self.gpu_count,
            needs_host=True,
            labels=dict.fromkeys(self.labels, ""),
        )
        container = TaskContainer(spec, images.provider)
        await container.start()
        return container, container.host_address

    async def get_docker_image(self, state: State) -> str:  # noqa: ARG002 - for subclasses
        """Returns the image of this rollout's sandbox; override it to depend on the example."""
        return self.docker_image

    async def build_env_vars(self, state: State) -> dict[str, str]:  # noqa: ARG002 - for subclasses
        """Returns variables of the program, which override those of the model."""
        return {"OPENAI_TIMEOUT": "600", "OPENAI_REQUEST_TIMEOUT": "600", **(self.environment_vars or {})}

    async def post_sandbox_setup(self, state: State) -> None:
        """Lets subclasses prepare the sandbox (``sandbox_of(state)``) before the program starts."""

    async def post_rollout(self, state: State) -> None:
        """Lets subclasses inspect the sandbox after the program has ended, and record values for rewards in the state.

        The program was killed if it still ran. Processes that an ended program left behind still run.
        """

    def sandbox_of(self, state: State) -> Sandbox:
        """Returns the rollout's sandbox. Raises ``SandboxError`` if there is none any more."""
        if (agent := self._agents.get(state["trajectory_id"])) is None:
            raise SandboxError("The sandbox of this rollout is closed. Set keep_sandbox_for_scoring=True to keep it")
        return agent.sandbox

    async def setup_state(self, state: State) -> State | None:
        """Starts the sandbox and the program."""
        state["agent_completed"] = False
        sandbox, host = await self.start_sandbox(state)
        agent = self._agents[state["trajectory_id"]] = _Agent(sandbox)
        state["sandbox_id"] = sandbox.id
        bridge = await self._bridges.get()
        listening = await bridge.start(host, self.interception_port or 0)
        conversation = bridge.open(state["model"])
        url = self.interception_url or listening
        state["rollout_id"] = conversation.id
        state["interception_base_url"] = f"{url.rstrip('/')}{conversation.path}/v1"
        await self.post_sandbox_setup(state)
        variables = await self.build_env_vars(state)
        agent.program = AgentProgram(sandbox, self.run_command, conversation, url, variables, self.working_dir)
        state["agent_start_time"] = time.time()
        await agent.program.start()
        return await super().setup_state(state)

    async def get_prompt_messages(self, state: State) -> Messages:
        """Waits for the program's next request. Ends the rollout if the program has ended."""
        agent = self._agents[state["trajectory_id"]]
        agent.request = None
        with state["timing"].env.measure():
            request = await agent.program.next_request() if agent.program else None
        if request is None:
            state["agent_completed"] = True
            state["final_env_response"] = []
            return []
        agent.request = request
        return with_known_messages(state["trajectory"], request.messages)

    async def get_model_response(
        self,
        state: State,
        prompt: Messages | str,
        client: AnyClient | None = None,
        model: str | None = None,
        tool_defs: list[Tool] | None = None,
        sampling_args: SamplingArgs | None = None,
    ) -> Response:
        """Answers the program's request, or passes the error of the model to the program and raises the error."""
        agent = self._agents.get(state["trajectory_id"])
        request = agent.request if agent else None
        if request is None:
            return await super().get_model_response(state, prompt, client, model, tool_defs, sampling_args)
        ask = partial(super().get_model_response, state, prompt, client, model)
        return await answered(request, sampling_args or state["sampling_args"] or {}, ask)

    async def add_model_response(self, state: State, prompt_messages: Messages, response: Response) -> None:
        """Adds a response to the trajectory. The first request becomes the prompt of the rollout."""
        if not state["trajectory"]:
            state["prompt"] = prompt_messages
        await super().add_model_response(state, prompt_messages, response)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:  # noqa: ARG002
        """Returns nothing, because the program alone decides what it asks."""
        return []

    async def render_completion(self, state: State) -> None:
        """Sets ``state["completion"]``: all messages after the prompt, without repetitions."""
        state["completion"] = completion_of(state["trajectory"])

    def mark_timed_out(self, state: State) -> None:
        super().mark_timed_out(state)
        state["agent_timed_out"] = True

    @stop
    async def agent_completed(self, state: State) -> bool:
        """Stops once the program has ended."""
        return bool(state.get("agent_completed"))

    @cleanup
    async def destroy_sandbox(self, state: State) -> None:
        """Ends the program, and closes the sandbox unless it is kept for scoring."""
        agent = self._agents.get(state["trajectory_id"])
        if agent is None:
            return
        try:
            await self._end_program(agent, state)
            await self.post_rollout(state)
        finally:
            if not self.keep_sandbox_for_scoring or state.get("error") is not None:
                await self.release_sandbox(state)

    async def release_sandbox(self, state: State) -> None:
        """Closes the rollout's sandbox. Releasing twice is allowed."""
        agent = self._agents.get(state["trajectory_id"])
        if agent is not None:
            await agent.sandbox.close()
            self._agents.pop(state["trajectory_id"], None)

    @teardown
    async def close_agents(self) -> None:
        """Closes the remaining sandboxes, and stops to listen."""
        while self._agents:
            _, agent = self._agents.popitem()
            agent.sandbox.close_now()
        await self._bridges.close()
        if self._engine is not None:
            await self._engine.cancel()
            self._engine.provider.close()
            self._engine = None

    async def _images(self) -> Images:
        if self._engine is None:
            provider = await asyncio.to_thread(docker_provider)
            self._engine = self._engine or Images(provider)
        return self._engine

    async def _end_program(self, agent: _Agent, state: State) -> None:
        if agent.program is not None:
            await agent.program.close()
            state["agent_exit_code"], state["agent_log"] = agent.program.exit_code, agent.program.log

    async def _within(self, name: str, hook: Coroutine[Any, Any, T]) -> T:
        """Awaits a hook within its time limit. A program may work between two requests as long as the rollout lasts."""
        return await (hook if name == "env_response" else super()._within(name, hook))

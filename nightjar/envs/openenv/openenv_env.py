"""``OpenEnvEnv``: worlds that are OpenEnv servers, one in a sandbox of its own for each rollout."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from nightjar.calling.blocking import outside_loops
from nightjar.calling.decorators import cleanup, stop, teardown
from nightjar.envs.games.gym_steps import EpisodicSumRubric, settle_rewards
from nightjar.envs.multiturn import MultiTurnEnv
from nightjar.envs.openenv.answers import ServerRefusedError, StepResult
from nightjar.envs.openenv.messages import (
    PromptRenderer,
    parse_action,
    render_messages,
    takes_tool_calls,
    tool_action,
    tool_definitions,
    tool_result,
)
from nightjar.envs.openenv.project import OpenEnvError, calling_project, project_folder, read_manifest
from nightjar.envs.openenv.server import OpenEnvServer, ServerLimits
from nightjar.envs.openenv.servers import OpenEnvServers, StartRetries, reset_patiently
from nightjar.envs.tools.schema import is_valid_tool_content_parts
from nightjar.messages import Messages, ToolCall, ToolMessage, UserMessage, content_text, dump_messages
from nightjar.rollout.state import State
from nightjar.rubrics import Rubric
from nightjar.sandboxes import SandboxProvider
from nightjar.sandboxes.choosing import choose_provider


class OpenEnvEpisodicSumRubric(EpisodicSumRubric):
    """Rewards an episode with the sum of its steps' rewards.

    Example:
        >>> OpenEnvEpisodicSumRubric().weights
        [1.0]
    """


class OpenEnvEnv(MultiTurnEnv):
    """Plays episodes in the world of an OpenEnv project, with actions (``gym``) or tool calls (``mcp``).

    Each rollout has a sandbox with the project's server in it. In a container that is the project's image; a local
    sandbox gets a copy of the project and of what its ``pyproject.toml`` depends on, as installed here. Nothing but the
    relay's pipe leads out. Each example is an episode with a seed of its own, in ``info["seed"]``; what the model is
    asked with is what the world shows after a reset with it, and the datasets are made when they are first needed.

    Args:
        openenv_project: the project's folder, with ``.build.json``; ``proj`` beside the calling file unless given.
        num_train_examples: examples to train on; their seeds start at ``seed``.
        num_eval_examples: examples to evaluate on; their seeds follow.
        seed: of the first example.
        prompt_renderer: from an observation to messages; takes by name what it wants of ``context`` (``"reset"`` or
            ``"step"``), ``action_schema``, ``contract`` and ``seed``.
        max_turns: model calls at the most; -1 for no limit. The last action is still taken.
        rubric: the sum of the steps' rewards unless given.
        startup_timeout_seconds: until the server is healthy.
        startup_poll_interval_seconds: between two looks at its health, at the most.
        health_request_timeout_seconds: for an answer from ``/health``.
        schema_request_timeout_seconds: for an answer from ``/schema``.
        message_timeout_seconds: for an answer to a reset or a step.
        wait_for_creation_max_attempts: accepted for compatibility; a sandbox has started when it is there.
        max_retries: attempts at starting a sandbox.
        base_delay, backoff_factor, max_backoff_seconds, jitter: seconds between them, how they grow and how far, and
            what chance adds.
        sandbox_provider: ``"local"``, ``"docker"``, or a provider; as ``NIGHTJAR_SANDBOX`` says unless given, and
            without it docker where a daemon answers.
        ask_after_end: show the model how the episode ended and take its last words, as verifiers does. False saves
            that call.
        **kwargs: as for ``MultiTurnEnv``.

    Raises:
        ValueError: there is no ``prompt_renderer``, or no such folder.
        OpenEnvError: the project has no usable ``.build.json``.

    Example:
        >>> import tempfile
        >>> manifest = '{"image": "echo:1", "start_command": "python3 server.py", "contract": "gym"}'
        >>> def render(observation):
        ...     return [{"role": "user", "content": observation["prompt"]}]
        >>> with tempfile.TemporaryDirectory() as project:
        ...     _ = Path(project, ".build.json").write_text(manifest)
        ...     env = OpenEnvEnv(project, prompt_renderer=render)
        >>> env.manifest.port
        8000
    """

    def __init__(
        self,
        openenv_project: str | Path | None = None,
        num_train_examples: int = 100,
        num_eval_examples: int = 50,
        seed: int = 0,
        prompt_renderer: PromptRenderer | None = None,
        max_turns: int = -1,
        rubric: Rubric | None = None,
        startup_timeout_seconds: float = 30,
        startup_poll_interval_seconds: float = 1.0,
        health_request_timeout_seconds: float = 2.0,
        schema_request_timeout_seconds: float = 5.0,
        wait_for_creation_max_attempts: int = 20,  # noqa: ARG002 - see the docstring
        max_retries: int = 5,
        base_delay: float = 0.5,
        backoff_factor: float = 2.0,
        max_backoff_seconds: float = 30.0,
        jitter: float = 1e-3,
        message_timeout_seconds: float = 60.0,
        sandbox_provider: str | SandboxProvider | None = None,
        ask_after_end: bool = True,
        **kwargs: Any,
    ) -> None:
        if prompt_renderer is None:
            raise ValueError(
                "OpenEnvEnv requires `prompt_renderer`: a function from an observation to a non-empty list of messages"
            )
        self.openenv_project = str(calling_project(__file__) if openenv_project is None else openenv_project)
        folder = project_folder(self.openenv_project)
        self.manifest = read_manifest(folder)
        self.num_train_examples = num_train_examples
        self.num_eval_examples = num_eval_examples
        self.seed = seed
        self.prompt_renderer = prompt_renderer
        self.startup_timeout_seconds = startup_timeout_seconds
        self.startup_poll_interval_seconds = startup_poll_interval_seconds
        self.health_request_timeout_seconds = health_request_timeout_seconds
        self.schema_request_timeout_seconds = schema_request_timeout_seconds
        self.message_timeout_seconds = message_timeout_seconds
        retries = StartRetries(max_retries, base_delay, backoff_factor, max_backoff_seconds, jitter)
        self._servers = OpenEnvServers(folder, self.manifest, retries)
        self.sandbox_provider = sandbox_provider
        self._provider: SandboxProvider | None = None
        self.ask_after_end = ask_after_end
        self._action_schema: dict[str, Any] | None = None
        self._mcp_tools: list[dict[str, Any]] | None = None
        super().__init__(
            dataset=lambda: self._rows(0, num_train_examples),
            eval_dataset=(lambda: self._rows(num_train_examples, num_eval_examples)) if num_eval_examples > 0 else None,
            rubric=rubric or OpenEnvEpisodicSumRubric(parser=kwargs.get("parser")),
            max_turns=max_turns,
            message_type="chat",
            **kwargs,
        )

    def _rows(self, start: int, count: int) -> list[dict[str, Any]]:
        seeds = range(self.seed + start, self.seed + start + count)
        return outside_loops(lambda: asyncio.run(self._first_prompts(seeds))) if count > 0 else []

    async def _first_prompts(self, seeds: range) -> list[dict[str, Any]]:
        server = await self._start_server()
        try:
            is_mcp = server.contract == "mcp"
            schema = await self._fetch_action_schema(server) if is_mcp else None
            await server.connect()
            rows = []
            for seed in seeds:
                shown = await reset_patiently(server, seed)
                details = {"action_schema": schema, "contract": server.contract, "seed": seed}
                prompt = await render_messages(self.prompt_renderer, shown.observation, "reset", **details)
                rows.append({"prompt": dump_messages(prompt), "info": {"seed": seed}})
            return rows
        finally:
            await self._servers.close(server)

    async def setup_state(self, state: State, **kwargs: Any) -> State:  # noqa: ARG002 - environments are called so
        """Starts the rollout's server and an episode with the seed in ``info``."""
        server = await self._start_server()
        state["openenv_server"] = server
        state["openenv_contract"] = server.contract
        state["openenv_action_schema"] = await self._fetch_action_schema(server)
        await server.connect()
        if server.contract == "mcp":
            if self._mcp_tools is None:
                self._mcp_tools = await server.tools()
            state["tool_defs"] = tool_definitions(self._mcp_tools)
        info = state.get("info")
        shown = await server.reset(int(info.get("seed", 0)) if isinstance(info, dict) else 0)
        state["openenv_done"] = shown.done
        return state

    async def _start_server(self) -> OpenEnvServer:
        if self._provider is None:
            self._provider = await asyncio.to_thread(choose_provider, self.sandbox_provider)
        limits = ServerLimits(
            startup_seconds=self.startup_timeout_seconds,
            poll_seconds=self.startup_poll_interval_seconds,
            health_seconds=self.health_request_timeout_seconds,
            schema_seconds=self.schema_request_timeout_seconds,
            message_seconds=self.message_timeout_seconds,
        )
        return await self._servers.start(self._provider, limits)

    async def _fetch_action_schema(self, server: OpenEnvServer) -> dict[str, Any]:
        """Returns the action schema, which is asked for once.

        Raises:
            OpenEnvError: it is not one for the contract in ``.build.json``.
        """
        if self._action_schema is None:
            schema = await server.action_schema()
            if takes_tool_calls(schema) != (server.contract == "mcp"):
                found = "takes tool calls" if takes_tool_calls(schema) else "takes no tool calls"
                raise OpenEnvError(
                    f"OpenEnv contract mismatch: .build.json says {server.contract!r}, but the server {found}"
                )
            self._action_schema = schema
        return self._action_schema

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:  # noqa: ARG002
        """Takes the action, or makes the tool calls, that the model has just asked for."""
        if state["openenv_contract"] == "mcp":
            answer = await self._call_tools(messages, state)
        else:
            answer = await self._act(messages, state)
        if answer and state["openenv_done"] and not self.ask_after_end:
            state["final_env_response"] = answer
        return answer

    async def _act(self, messages: Messages, state: State) -> Messages:
        server: OpenEnvServer = state["openenv_server"]
        step, schema = state["trajectory"][-1], state["openenv_action_schema"]
        try:
            result = await server.step(parse_action(content_text(messages[-1].get("content")), schema))
        except (ValueError, ServerRefusedError) as error:
            if isinstance(error, ServerRefusedError) and error.code != "VALIDATION_ERROR":
                raise
            step["reward"], state["openenv_done"] = 0.0, True
            return [UserMessage(content=f"Action Parsing Error: {error}")]
        step["reward"], state["openenv_done"] = result.reward or 0.0, result.done
        details = {"action_schema": schema, "contract": server.contract, "seed": None}
        return await render_messages(self.prompt_renderer, result.observation, "step", **details)

    async def _call_tools(self, messages: Messages, state: State) -> Messages:
        calls: list[ToolCall] = messages[-1].get("tool_calls") or []
        answers: Messages = []
        rewards, is_done = 0.0, False
        for tool_call in calls:
            content, result = await self._call_tool(state["openenv_server"], tool_call)
            answers.append(ToolMessage(content=content, tool_call_id=tool_call.id))
            rewards += (result.reward or 0.0) if result else 0.0
            is_done = is_done or bool(result and result.done)
        state["trajectory"][-1]["reward"], state["openenv_done"] = rewards, is_done
        return answers

    async def _call_tool(self, server: OpenEnvServer, tool_call: ToolCall) -> tuple[Any, StepResult | None]:
        try:
            result = await server.step(tool_action(tool_call))
        except (ValueError, ServerRefusedError) as error:
            return f"Error: {error}", None
        content = tool_result(result.observation)
        is_content = isinstance(content, str) or (content != [] and is_valid_tool_content_parts(content))
        return content if is_content else json.dumps(content), result

    @stop
    async def openenv_done(self, state: State) -> bool:
        """Stops when the world has ended the episode."""
        return bool(state.get("openenv_done")) and state.get("openenv_contract") == "gym"

    @stop
    async def mcp_no_tool_calls(self, state: State) -> bool:
        """Stops when the model calls no tool, or the world has ended the episode."""
        if state.get("openenv_contract") != "mcp":
            return False
        if state.get("openenv_done"):
            return True
        return bool(state["trajectory"]) and not state["trajectory"][-1]["completion"][-1].get("tool_calls")

    @stop
    async def max_turns_reached(self, state: State) -> bool:
        """Stops after ``max_turns`` model calls; what the last one asked for is still done: its reward counts."""
        if not await super().max_turns_reached(state):
            return False
        last = state["trajectory"][-1]
        if last["reward"] is None and not state.get("openenv_done"):
            await self.env_response([*last["prompt"], *last["completion"]], state)
        return True

    @cleanup
    async def cleanup_openenv(self, state: State) -> None:
        """Ends the rollout's server and its sandbox."""
        settle_rewards(state)
        server = state.pop("openenv_server", None)
        if server is not None:
            await self._servers.close(server)

    @teardown
    async def teardown_server(self) -> None:
        """Ends the servers that are left."""
        await self._servers.close_all()
        if self._provider is not None and self._provider is not self.sandbox_provider:
            self._provider.close()
            self._provider = None

"""``OpenEnvEnv`` plays in worlds that are OpenEnv servers. Each rollout has its own server in its own sandbox."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from nightjar.core.calling import call
from nightjar.core.calling.decorators import cleanup, stop, teardown
from nightjar.core.calling.limits import Places
from nightjar.core.messages import (
    Messages,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
    content_text,
    dump_messages,
    normalize_messages,
)
from nightjar.core.rollout.state import State
from nightjar.environments.games.episodes import EpisodeEnv, EpisodicSumRubric, splits
from nightjar.environments.games.openenv_server import (
    OpenEnvError,
    OpenEnvServer,
    ServerRefusedError,
    ServerUnreachableError,
    StepResult,
    calling_project,
    needed_packages,
    packed,
    read_manifest,
)
from nightjar.environments.rubrics import Rubric
from nightjar.environments.tools.sandbox_env import retrying
from nightjar.environments.tools.schema import is_valid_tool_content_parts
from nightjar.sandboxes import CreateSandboxRequest, SandboxCreationError, SandboxProvider, SandboxRefusedError
from nightjar.sandboxes.providers import choose_provider

PromptRenderer = Callable[..., Any]
_RESETS = 5
_RESET_PAUSE_SECONDS = 0.25


async def render_messages(renderer: PromptRenderer, observation: Any, context: str, **details: Any) -> Messages:
    """Renders an observation as messages. The renderer gets the details that its parameters name."""
    offered = {"context": context, **details}
    parameters = inspect.signature(renderer).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        offered = {name: value for name, value in offered.items() if name in parameters}
    rendered = await call(renderer, observation, **offered)
    if not isinstance(rendered, list) or not rendered:
        raise OpenEnvError(
            f"prompt_renderer must return a non-empty list of chat messages for {context}, found {rendered!r}"
        )
    messages = normalize_messages(rendered, field_name=f"prompt_renderer for {context}")
    for position, message in enumerate(messages):
        if message.content is None:
            raise OpenEnvError(f"prompt_renderer returned a message without content for {context}, at index {position}")
    return messages


def parse_action(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the action in a reply: a JSON object, or text if the schema has one text field. May raise ValueError."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        bare = "\n".join(bare.split("\n")[1:-1]).strip()
    try:
        action = json.loads(bare)
    except ValueError:
        action = None
    if isinstance(action, dict):
        return action
    field = _single_text_field(schema)
    if field is None:
        raise ValueError("Failed to parse action JSON. Provide a JSON object matching the action schema.")
    return {field: bare}


def _single_text_field(schema: Mapping[str, Any]) -> str | None:
    properties = schema.get("properties") or {}
    names = schema.get("required") or list(properties)
    is_text = len(names) == 1 and properties.get(names[0], {}).get("type") == "string"
    return names[0] if is_text else None


def tool_action(tool_call: ToolCall) -> dict[str, Any]:
    """Returns a tool call as an action. Raises ``ValueError`` without a name or a JSON object of arguments."""
    arguments = json.loads(tool_call.arguments)
    if not isinstance(arguments, dict):
        raise ValueError("tool arguments must be an object")  # noqa: TRY004 - it is the model's mistake
    name = tool_call.name.strip()
    if not name:
        raise ValueError("tool name cannot be empty")
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def tool_result(observation: Any) -> Any:
    if not isinstance(observation, dict):
        return observation
    if observation.get("error") is not None:
        return {"error": observation["error"]}
    result = observation.get("result")
    return result["data"] if isinstance(result, dict) and "data" in result else result


class OpenEnvEpisodicSumRubric(EpisodicSumRubric):
    """Rewards an episode with the sum of its steps' rewards."""


class OpenEnvEnv(EpisodeEnv):
    """Plays episodes in the world of an OpenEnv project, with actions (``gym``) or tool calls (``mcp``).

    Each rollout runs the project's server in a sandbox. A container runs the project's image; a local sandbox runs a
    copy of the project with this machine's packages. The sandbox is reachable only through connections to the server.
    Each example is an episode with its own seed in ``info["seed"]``. The prompt is the observation after a reset.

    ``prompt_renderer`` turns an observation into messages; it may also take ``context`` (``"reset"`` or ``"step"``),
    ``action_schema``, ``contract`` and ``seed``. After ``max_turns``, the last action is still carried out.
    """

    done_key = "openenv_done"

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
                "OpenEnvEnv requires `prompt_renderer`: from an observation to a non-empty list of messages"
            )
        self.openenv_project = str(calling_project(__file__) if openenv_project is None else openenv_project)
        self._folder = Path(self.openenv_project).expanduser().resolve()
        if not self._folder.is_dir():
            raise ValueError(f"OpenEnvEnv requires a local OpenEnv project directory. Got: {self.openenv_project}")
        self.manifest = read_manifest(self._folder)
        self.num_train_examples = num_train_examples
        self.num_eval_examples = num_eval_examples
        self.seed = seed
        self.ask_after_end = ask_after_end
        self.prompt_renderer = prompt_renderer
        self.startup_timeout_seconds = startup_timeout_seconds
        self.startup_poll_interval_seconds = startup_poll_interval_seconds
        self.health_request_timeout_seconds = health_request_timeout_seconds
        self.schema_request_timeout_seconds = schema_request_timeout_seconds
        self.message_timeout_seconds = message_timeout_seconds
        self.sandbox_provider = sandbox_provider
        self._provider: SandboxProvider | None = None
        self._servers: set[OpenEnvServer] = set()
        self._action_schema: dict[str, Any] | None = None
        self._tools: list[Tool] | None = None
        super().__init__(
            **splits(self._rows, num_train_examples, num_eval_examples),
            rubric=rubric or OpenEnvEpisodicSumRubric(parser=kwargs.get("parser")),
            max_turns=max_turns,
            **kwargs,
        )
        waits = (max_retries, base_delay, backoff_factor, max_backoff_seconds, jitter)
        self._start_patiently = retrying(self.logger, waits, _may_heal)(self._start_once)

    def set_max_sandboxes(self, max_sandboxes: int | None) -> None:
        """Sets the maximum number of rollouts, each with its sandbox, at once; None means no limit."""
        self.places = None if max_sandboxes is None else Places(max_sandboxes)

    async def _first_rows(self, seeds: range) -> list[dict[str, Any]]:
        server = await self._start_server()
        try:
            schema = await self._schema(server) if server.contract == "mcp" else None
            await server.connect()
            rows = []
            for seed in seeds:
                shown = await self._reset(server, seed)
                prompt = await self._render(shown, "reset", schema, seed)
                rows.append({"prompt": dump_messages(prompt), "info": {"seed": seed}})
            return rows
        finally:
            await self._close(server)

    async def _render(
        self, shown: StepResult, context: str, schema: dict[str, Any] | None, seed: int | None
    ) -> Messages:
        details = {"action_schema": schema, "contract": self.manifest.contract, "seed": seed}
        return await render_messages(self.prompt_renderer, shown.observation, context, **details)

    async def _reset(self, server: OpenEnvServer, seed: int) -> StepResult:
        for attempt in range(1, _RESETS):
            try:
                return await server.reset(seed)
            except (ServerRefusedError, ServerUnreachableError) as error:
                self.logger.warning("Reset with seed %s failed, attempt %s of %s: %s", seed, attempt, _RESETS, error)
                await asyncio.sleep(_RESET_PAUSE_SECONDS * 2 ** (attempt - 1))
                await server.connect()
        return await server.reset(seed)

    async def setup_state(self, state: State, **kwargs: Any) -> State:  # noqa: ARG002 - environments are called so
        server = await self._start_server()
        state["openenv_server"] = server
        state["openenv_contract"] = server.contract
        state["openenv_action_schema"] = await self._schema(server)
        await server.connect()
        if server.contract == "mcp":
            self._tools = self._tools or await server.tools()
            state["tool_defs"] = self._tools
        info = state.get("info")
        shown = await server.reset(int(info.get("seed", 0)) if isinstance(info, dict) else 0)
        state["openenv_done"] = shown.done
        return state

    async def _start_server(self) -> OpenEnvServer:
        if self._provider is None:
            self._provider = await asyncio.to_thread(choose_provider, self.sandbox_provider)
        server: OpenEnvServer = await self._start_patiently(self._provider)
        return server

    async def _start_once(self, provider: SandboxProvider) -> OpenEnvServer:
        is_local = provider.name == "local"
        request = CreateSandboxRequest(
            name="openenv-env",
            docker_image=self.manifest.image,
            start_command=None,
            cpu_cores=2,
            memory_gb=4,
            disk_size_gb=10,
            environment_vars={"ENABLE_WEB_INTERFACE": "false"},
            python_packages=needed_packages(self._folder) if is_local else [],
            are_packages_optional=True,
        )
        sandbox, files = provider.new_sandbox(request), self._files if is_local else None
        server = OpenEnvServer(sandbox, self.manifest, files, self.message_timeout_seconds)
        self._servers.add(server)
        try:
            await server.start(
                self.startup_timeout_seconds, self.startup_poll_interval_seconds, self.health_request_timeout_seconds
            )
        except BaseException:
            await self._close(server)
            raise
        return server

    @cached_property
    def _files(self) -> bytes:
        return packed(self._folder)

    async def _close(self, server: OpenEnvServer) -> None:
        try:
            await server.close()
        finally:
            self._servers.discard(server)

    async def _schema(self, server: OpenEnvServer) -> dict[str, Any]:
        if self._action_schema is None:
            self._action_schema = await server.action_schema(self.schema_request_timeout_seconds)
        return self._action_schema

    async def _take_turn_in_world(self, messages: Messages, state: State) -> Messages:
        return await (self._call_tools if state["openenv_contract"] == "mcp" else self._act)(messages, state)

    async def _act(self, messages: Messages, state: State) -> Messages:
        schema = state["openenv_action_schema"]
        try:
            action = parse_action(content_text(messages[-1].get("content")), schema)
            result = await state["openenv_server"].step(action)
        except (ValueError, ServerRefusedError) as error:
            if isinstance(error, ServerRefusedError) and error.code != "VALIDATION_ERROR":
                raise
            return [UserMessage(content=self._refuse(error, state))]
        state["trajectory"][-1]["reward"], state["openenv_done"] = result.reward, result.done
        return await self._render(result, "step", schema, None)

    async def _call_tools(self, messages: Messages, state: State) -> Messages:
        calls: list[ToolCall] = messages[-1].get("tool_calls") or []
        answers: Messages = []
        rewards, is_done = 0.0, False
        for tool_call in calls:
            try:
                result = await state["openenv_server"].step(tool_action(tool_call))
            except (ValueError, ServerRefusedError) as error:
                content: Any = f"Error: {error}"
            else:
                content = _tool_content(tool_result(result.observation))
                rewards += result.reward
                is_done = is_done or result.done
            answers.append(ToolMessage(content=content, tool_call_id=tool_call.id))
        state["trajectory"][-1]["reward"], state["openenv_done"] = rewards, is_done
        return answers

    @stop
    async def openenv_done(self, state: State) -> bool:
        """Stops when the world has ended the episode."""
        return bool(state.get("openenv_done")) and state.get("openenv_contract") == "gym"

    @stop
    async def mcp_no_tool_calls(self, state: State) -> bool:
        """Stops when the model calls no tool, or the world has ended the episode."""
        if state.get("openenv_contract") != "mcp":
            return False
        has_answered = bool(state["trajectory"]) and not state["trajectory"][-1]["completion"][-1].get("tool_calls")
        return bool(state.get("openenv_done")) or has_answered

    @cleanup
    async def cleanup_openenv(self, state: State) -> None:
        """Ends the rollout's server and its sandbox."""
        if "openenv_server" in state:
            await self._close(state.pop("openenv_server"))

    @teardown
    async def teardown_server(self) -> None:
        """Ends the remaining servers."""
        for server in list(self._servers):
            await self._close(server)
        if self._provider is not None and self._provider is not self.sandbox_provider:
            self._provider.close()
            self._provider = None


def _may_heal(error: BaseException) -> bool:
    return isinstance(error, SandboxCreationError) and not isinstance(error, SandboxRefusedError)


def _tool_content(result: Any) -> Any:
    is_content = isinstance(result, str) or (result != [] and is_valid_tool_content_parts(result))
    return result if is_content else json.dumps(result)

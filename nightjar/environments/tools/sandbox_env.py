"""``SandboxEnv`` gives the model a shell in a sandbox of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, cast

import tenacity

from nightjar.core.calling.decorators import cleanup, teardown
from nightjar.core.calling.limits import Places
from nightjar.core.messages import Messages
from nightjar.core.rollout.state import State
from nightjar.environments.rubrics import Rubric
from nightjar.environments.tools.tool_env import StatefulToolEnv
from nightjar.errors import ConfigError, SandboxError
from nightjar.sandboxes import (
    AdvancedConfigs,
    CommandTimeoutError,
    CreateSandboxRequest,
    SandboxClient,
    SandboxCreationError,
    SandboxNotReadyError,
    SandboxProvider,
    SandboxRefusedError,
)

__all__ = [
    "AdvancedConfigs",
    "CommandTimeoutError",
    "CreateSandboxRequest",
    "SandboxCreationError",
    "SandboxEnv",
    "SandboxMonitorRubric",
    "SandboxNotReadyError",
    "SandboxState",
]


class SandboxState(TypedDict):
    """A rollout's sandbox as plain values, which can be saved; times in seconds."""

    ready: bool
    ready_wait_time: float
    command_execution_times: list[float]


class SandboxMonitorRubric(Rubric):
    """Records how long a rollout waited for its sandbox, and the mean time of its commands."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.sandbox_ready_wait_time)
        self.add_metric(self.sandbox_command_execution_time)

    async def sandbox_ready_wait_time(self, state: State) -> float:
        return float(state["sandbox_state"]["ready_wait_time"])

    async def sandbox_command_execution_time(self, state: State) -> float:
        seconds = state["sandbox_state"]["command_execution_times"]
        return sum(seconds) / len(seconds) if seconds else 0.0


class SandboxEnv(StatefulToolEnv):
    """Gives each rollout a sandbox, and the model the tool ``bash(command)`` in it.

    A sandbox is a container (docker, podman) or a set of processes in their own namespaces (bubblewrap). It has no
    network, no environment variables of this process, and no files of this machine except programs and libraries; see
    docs/guides/sandboxes.md. It starts in the background during the first request, and is deleted after the rollout.
    The model is informed of a command's failure (a crash, a time limit, memory). A failure of the whole sandbox is a
    ``SandboxError``, which ends the rollout with that error and no reward. With ``keeps_processes``, processes of the
    model stay alive during ``post_rollout``, so that a subclass can inspect a server that the model started.

    Args:
        docker_image: the image of a container. A local sandbox shows this machine's programs instead.
        memory_gb: memory of all processes and files together, in GiB.
        disk_size_gb: writable space in GiB. It is part of the memory, so it is at most half of ``memory_gb``.
        base_delay, backoff_factor, max_backoff_seconds, jitter: the first wait before a retry, the factor by which the
            wait grows, its maximum, and the maximum random addition to it. Times are in seconds.
        team_id, advanced_configs, sandbox_client_max_connections, sandbox_client_max_keepalive_connections: accepted,
            without effect.
        sandbox_provider: a ``SandboxProvider``, or ``docker``, ``podman`` or ``local``. If None, the value of
            ``NIGHTJAR_SANDBOX`` is used; if that is not set, docker if a daemon answers, otherwise local.
        max_sandboxes: the most sandboxes at once; None means no limit.

    Example:
        >>> class Writes(SandboxEnv):
        ...     async def post_rollout(self, state):
        ...         done = await self.sandbox_client.execute_command(state["sandbox_id"], "cat answer", timeout=10)
        ...         state["found"] = done.stdout.strip()
        >>> env = Writes(dataset=[{"question": "Write 42 to the file answer."}], sandbox_provider="local")
        >>> [tool.name for tool in env.tool_defs]
        ['bash']
    """

    keeps_processes = False

    def __init__(
        self,
        sandbox_name: str = "sandbox-env",
        docker_image: str = "python:3.11-slim",
        start_command: str = "tail -f /dev/null",
        cpu_cores: float = 1,
        memory_gb: float = 2,
        disk_size_gb: float = 5,
        gpu_count: int = 0,
        timeout_minutes: float = 60,
        timeout_per_command_seconds: float = 30,
        environment_vars: dict[str, str] | None = None,
        team_id: str | None = None,
        advanced_configs: Any = None,
        labels: list[str] | None = None,
        max_retries: int = 5,
        base_delay: float = 0.5,
        backoff_factor: float = 2.0,
        max_backoff_seconds: float = 30.0,
        jitter: float = 1e-3,
        stop_errors: Sequence[type[Exception]] | None = None,
        sandbox_client_max_workers: int = 50,
        sandbox_client_max_connections: int = 100,
        sandbox_client_max_keepalive_connections: int = 50,
        sandbox_provider: str | SandboxProvider | None = None,
        max_output_bytes: int = 100_000,
        max_sandboxes: int | None = None,
        **kwargs: Any,
    ) -> None:
        asked = {name: value for name, value in locals().items() if name in CreateSandboxRequest.model_fields}
        super().__init__(stop_errors=[SandboxError] if stop_errors is None else stop_errors, **kwargs)
        self.add_rubric(SandboxMonitorRubric())
        self.timeout_per_command_seconds = timeout_per_command_seconds
        self.max_output_bytes = max_output_bytes
        waits = (max_retries, base_delay, backoff_factor, max_backoff_seconds, jitter)
        self.with_retry = retrying(self.logger, waits, _may_heal)
        self.sandbox_client = SandboxClient(sandbox_provider, sandbox_client_max_workers, self.with_retry)
        self.sandbox_request = CreateSandboxRequest(name=sandbox_name, **asked | {"labels": labels or []})
        self.active_sandboxes: set[str] = set()
        self.set_max_sandboxes(max_sandboxes)
        self.add_tool(self.bash, args_to_skip=["sandbox_id", "sandbox_state", "working_dir"])

    def set_max_sandboxes(self, max_sandboxes: int | None) -> None:
        """Sets the maximum number of sandboxes at once; None means no limit. Further rollouts wait."""
        self.max_sandboxes = max_sandboxes
        self.places = None if max_sandboxes is None else Places(max_sandboxes)

    def get_sandbox_request(self, state: State) -> CreateSandboxRequest:  # noqa: ARG002 - for subclasses
        """Returns the description of this rollout's sandbox; override it to depend on the example."""
        return self.sandbox_request.model_copy()

    async def setup_state(self, state: State, **kwargs: Any) -> State | None:  # noqa: ARG002 - as the original
        request = self.get_sandbox_request(state)
        with _raising(SandboxCreationError, "No sandbox could be created"):
            sandbox = await self.with_retry(self.sandbox_client.create)(request)
        self.active_sandboxes.add(sandbox.id)
        state["sandbox_id"] = sandbox.id
        state["sandbox_state"] = SandboxState(ready=False, ready_wait_time=0.0, command_execution_times=[])
        return await super().setup_state(state)

    def update_tool_args(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        messages: Messages,  # noqa: ARG002 - for subclasses
        state: State,
        **kwargs: Any,  # noqa: ARG002 - for subclasses
    ) -> dict[str, Any]:
        """Gives ``bash`` the rollout's sandbox, and ``state["working_dir"]`` if it is set."""
        if tool_name != "bash":
            return dict(tool_args)
        hidden = {name: state[name] for name in ("sandbox_id", "sandbox_state")}
        return {**tool_args, **hidden, "working_dir": state.get("working_dir")}

    async def bash(
        self, command: str, sandbox_id: str, sandbox_state: SandboxState, working_dir: str | None = None
    ) -> str:
        """Run a shell command in the sandbox. Files and background processes stay between commands."""
        check_text("command", command)
        await self._wait_for_sandbox_ready(sandbox_state, sandbox_id)
        started = time.monotonic()
        limit = self.timeout_per_command_seconds
        try:
            with _raising(SandboxError, f"Sandbox {sandbox_id!r} cannot run commands"):
                result = await self.sandbox_client.execute_command(
                    sandbox_id, command, working_dir, timeout=limit, max_output_bytes=self.max_output_bytes
                )
        except CommandTimeoutError:
            sandbox_state["command_execution_times"].append(float(limit))
            return f"Error: Command timed out after {limit}s"
        sandbox_state["command_execution_times"].append(time.monotonic() - started)
        return shown_text(result.stdout.strip(), result.stderr.strip())

    async def post_rollout(self, state: State) -> None:
        """Lets subclasses inspect the sandbox before it is deleted, and record values for rewards in the state.

        The model's processes have ended, unless ``keeps_processes`` is set. The model's files are still there.
        """

    @cleanup
    async def destroy_sandbox(self, state: State) -> None:
        """Deletes the rollout's sandbox; a failure is only logged as a warning."""
        if (sandbox_id := state.get("sandbox_id")) is not None:
            try:
                if type(self).post_rollout is not SandboxEnv.post_rollout and not self.keeps_processes:
                    await self.sandbox_client.end_processes(sandbox_id)
                await self.post_rollout(state)
            finally:
                await self._delete_sandbox(sandbox_id)

    async def bulk_delete_sandboxes(self, global_ids: list[str]) -> None:
        """Deletes several sandboxes; logs a failure."""
        try:
            await self.with_retry(self.sandbox_client.bulk_delete)(global_ids)
        except Exception as error:  # noqa: BLE001 - remaining sandboxes are deleted at the end, or time out
            self.logger.error(f"Failed to bulk delete sandboxes {global_ids}: {error}")  # noqa: G004, TRY400
            return
        self.logger.debug(f"Bulk deleted sandboxes: {global_ids}")  # noqa: G004 - tools look for the text
        self.active_sandboxes.difference_update(global_ids)

    @teardown
    async def teardown_sandboxes(self) -> None:
        """Deletes the remaining sandboxes at the end of a run."""
        if self.active_sandboxes:
            self.logger.info("Deleting %d remaining sandboxes", len(self.active_sandboxes))
            await self.bulk_delete_sandboxes(sorted(self.active_sandboxes))

    @teardown(priority=-1)
    async def teardown_sandbox_client(self) -> None:
        """Closes the connection to the daemon."""
        self.sandbox_client.teardown()

    async def _wait_for_sandbox_ready(self, sandbox_state: SandboxState, sandbox_id: str) -> None:
        if sandbox_state["ready"]:
            return
        started = time.monotonic()
        with _raising(SandboxNotReadyError, f"Sandbox {sandbox_id!r} is not ready"):
            await self.sandbox_client.wait_for_creation(sandbox_id)
        sandbox_state["ready"] = True
        sandbox_state["ready_wait_time"] = time.monotonic() - started

    async def _delete_sandbox(self, sandbox_id: str) -> None:
        try:
            await self.with_retry(self.sandbox_client.delete)(sandbox_id)
        except Exception as error:  # noqa: BLE001 - it times out after timeout_minutes
            self.logger.warning("Failed to delete sandbox %s: %s", sandbox_id, error)
            return
        self.active_sandboxes.discard(sandbox_id)


@contextmanager
def _raising(kind: type[SandboxError], what: str) -> Iterator[None]:
    """Turns exceptions into a ``SandboxError``, unless their message already says what to do."""
    try:
        yield
    except (ConfigError, SandboxError):
        raise
    except Exception as error:
        raise kind(f"{what}: {error}") from error


def check_text(name: str, value: object) -> None:
    """Raises ``TypeError``, which the model sees, if a tool argument is not a text."""
    if not isinstance(value, str):
        raise TypeError(f"Expected {name} to be a string, got {type(value).__name__}: {value!r}")


def shown_text(stdout: str, stderr: str, value: str = "") -> str:
    """Returns an output as the model sees it, without empty parts."""
    return "\n".join(part for part in (stdout, stderr and f"stderr:\n{stderr}", value) if part) or "(no output)"


def retrying(
    logger: logging.Logger, waits: tuple[int, float, float, float, float], may_heal: Callable[[BaseException], bool]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that retries an async function; ``waits`` are the arguments of ``SandboxEnv`` for retries."""
    max_retries, base_delay, backoff_factor, max_backoff_seconds, jitter = waits
    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(max(1, max_retries)),
        wait=tenacity.wait_exponential(base_delay, max_backoff_seconds, backoff_factor)
        + tenacity.wait_random(0, jitter),
        retry=tenacity.retry_if_exception(may_heal),
        before_sleep=tenacity.before_sleep_log(logger, logging.WARNING),
        reraise=True,
    )
    return cast("Callable[[Callable[..., Any]], Callable[..., Any]]", retrying.wraps)


def _may_heal(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, (ConfigError, SandboxRefusedError))

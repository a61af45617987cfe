"""``PythonEnv`` gives the model a Python session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict

from nightjar.core.messages import Messages
from nightjar.core.rollout.state import State
from nightjar.environments.rubrics import Rubric
from nightjar.environments.tools.sandbox_env import SandboxEnv, SandboxState, check_text, shown_text
from nightjar.errors import SandboxError
from nightjar.sandboxes.python_repl import Answer, PythonEndedError, PythonRepl

_USUAL_PACKAGES = "numpy sympy scipy"
_LOST = "The Python process was restarted: its variables are lost."


class PythonWorkerState(TypedDict):
    """A rollout's Python session as plain values, which can be saved."""

    ready: bool
    execution_count: int
    ready_wait_time: float


class PythonWorkerNotReadyError(SandboxError):
    """Python did not start in the sandbox in time."""


class PythonWorkerRequestError(SandboxError):
    """Python in the sandbox cannot run code."""


class PythonWorkerDeadError(PythonWorkerRequestError):
    """Python in the sandbox ended and could not be restarted."""


class PythonMonitorRubric(Rubric):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.python_ready_wait_time)

    async def python_ready_wait_time(self, state: State) -> float:
        return float(state["python_state"]["ready_wait_time"])


class PythonEnv(SandboxEnv):
    """Gives each rollout a Python session in a sandbox. The model calls it with the tool ``python(code)``.

    Variables, imports and functions stay between calls. The model sees stdout, then ``stderr:`` and stderr, then
    ``Out[n]:`` and the value of a last expression, or the traceback. Code that takes too long is interrupted like
    Ctrl-C, which keeps the variables. If that fails, or the code ends its own process, Python is restarted and the
    model is informed.

    In a container's image, ``pip_install_packages`` are installed on first use, which needs a network. A local sandbox
    has this machine's packages. It refuses to start if a requested package is missing, and only warns if a default
    package is missing.

    Example:
        >>> env = PythonEnv(pip_install_packages="sympy", dataset=[{"question": "What is the 100th prime?"}])
        >>> [tool.name for tool in env.tool_defs]
        ['python']
    """

    def __init__(
        self,
        pip_install_packages: str | Sequence[str] = _USUAL_PACKAGES,
        max_startup_wait_seconds: float = 30,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("sandbox_name", "python-env")
        super().__init__(**kwargs)
        self.max_startup_wait_seconds = max_startup_wait_seconds
        packages = pip_install_packages.split() if isinstance(pip_install_packages, str) else pip_install_packages
        self.sandbox_request.python_packages = list(packages)
        self.sandbox_request.are_packages_optional = pip_install_packages == _USUAL_PACKAGES
        self._repls: dict[str, PythonRepl] = {}
        self.add_rubric(PythonMonitorRubric())
        self.add_tool(self.python, args_to_skip=["sandbox_id", "sandbox_state", "python_state"])
        self.remove_tool(self.bash)

    async def setup_state(self, state: State, **kwargs: Any) -> State | None:
        changed = await super().setup_state(state, **kwargs)
        (changed or state)["python_state"] = PythonWorkerState(ready=False, execution_count=0, ready_wait_time=0.0)
        return changed

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: Messages, state: State, **kwargs: Any
    ) -> dict[str, Any]:
        if tool_name != "python":
            return super().update_tool_args(tool_name, tool_args, messages, state, **kwargs)
        return {**tool_args, **{name: state[name] for name in ("sandbox_id", "sandbox_state", "python_state")}}

    async def python(
        self, code: str, sandbox_id: str, sandbox_state: SandboxState, python_state: PythonWorkerState
    ) -> str:
        """Run Python code. Variables and imports stay between calls; the value of a last expression is shown."""
        check_text("code", code)
        if not python_state["ready"]:
            await self._start_python(sandbox_id, sandbox_state, python_state)
        answer = await self._run(code, sandbox_id, sandbox_state)
        count = answer.execution_count
        python_state["execution_count"] = python_state["execution_count"] + 1 if count is None else count
        return _as_text(answer, python_state["execution_count"])

    async def _start_python(
        self, sandbox_id: str, sandbox_state: SandboxState, python_state: PythonWorkerState
    ) -> None:
        started = time.monotonic()
        await self._wait_for_sandbox_ready(sandbox_state, sandbox_id)
        repl = PythonRepl(await self.sandbox_client.get(sandbox_id), self.max_output_bytes)
        try:
            await repl.start(self.max_startup_wait_seconds)
        except (TimeoutError, PythonEndedError) as error:
            raise PythonWorkerNotReadyError(f"Python did not start in sandbox {sandbox_id!r}: {error}") from error
        self._repls[sandbox_id] = repl
        python_state["ready"] = True
        python_state["ready_wait_time"] = time.monotonic() - started

    async def _run(self, code: str, sandbox_id: str, sandbox_state: SandboxState) -> Answer:
        repl = self._repls.get(sandbox_id)
        if repl is None:
            raise PythonWorkerRequestError(f"There is no Python in sandbox {sandbox_id!r}: it was deleted")
        late = f"Error: Command timed out after {self.timeout_per_command_seconds}s"
        started = time.monotonic()
        try:
            answer = await repl.run(code, self.timeout_per_command_seconds)
            return replace(answer, status="error", result=late) if answer.is_timed_out else answer
        except PythonEndedError as error:
            ended = late if error.is_timed_out else f"Error: The Python process is gone: {error}"
            try:
                await repl.start(self.max_startup_wait_seconds)
            except (TimeoutError, PythonEndedError, SandboxError) as failed:
                raise PythonWorkerDeadError(
                    f"Python in sandbox {sandbox_id!r} cannot start again: {failed}"
                ) from failed
            return Answer("error", result=f"{ended}\n{_LOST}")
        except SandboxError as error:
            raise PythonWorkerRequestError(f"Python in sandbox {sandbox_id!r} cannot run code: {error}") from error
        finally:
            sandbox_state["command_execution_times"].append(time.monotonic() - started)

    async def _delete_sandbox(self, sandbox_id: str) -> None:
        repl = self._repls.pop(sandbox_id, None)
        if repl is not None:
            await repl.close()
        await super()._delete_sandbox(sandbox_id)


def _as_text(answer: Answer, count: int) -> str:
    result = answer.result or ""
    value = f"Out[{count}]: {answer.result}" if answer.status == "ok" and answer.result is not None else result.rstrip()
    return shown_text(answer.stdout.rstrip(), answer.stderr.rstrip(), value)

"""An OpenEnv server in a sandbox, and the conversation with it through a relay inside."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar.envs.openenv.answers import StepResult, refusal, step_result
from nightjar.envs.openenv.project import BuildManifest, OpenEnvError
from nightjar.errors import SandboxError
from nightjar.sandboxes import Output, Sandbox, SandboxProcess, Stream

logger = logging.getLogger(__name__)

PROJECT = "project"
_RELAY = Path(__file__).with_name("relay.py")
_PYTHON = 'exec "$(command -v python3 || command -v python || echo /app/.venv/bin/python)" -u -c "$1" "$2"'
_CONNECT_SECONDS = 10.0
_SLACK_SECONDS = 10.0
_UPLOAD_SECONDS = 120.0
_LOG_CHARACTERS = 4000
_MAX_ANSWER_BYTES = 128 * 2**20
_OK = 200


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """How long to wait for a server.

    Attributes:
        startup_seconds: until it is healthy.
        poll_seconds: between two looks at its health at the most; the first follow each other faster.
        health_seconds: for an answer from ``/health``.
        schema_seconds: for an answer from ``/schema``.
        message_seconds: for an answer to a message.

    Example:
        >>> ServerLimits(startup_seconds=120).message_seconds
        60.0
    """

    startup_seconds: float = 30.0
    poll_seconds: float = 1.0
    health_seconds: float = 2.0
    schema_seconds: float = 5.0
    message_seconds: float = 60.0


class ServerUnreachableError(SandboxError):
    """The server does not answer, or ended the session."""


class OpenEnvServer:
    """A server in a sandbox of its own. Messages go one after another.

    Args:
        sandbox: where to run it; started by ``start``, closed by ``close``.
        manifest: says how it starts.
        project: the project's files as a tar archive, to run a copy of them; None where the image has them.
        limits: how long to wait.
    """

    def __init__(self, sandbox: Sandbox, manifest: BuildManifest, project: bytes | None, limits: ServerLimits) -> None:
        self.sandbox = sandbox
        self.contract = manifest.contract
        self._manifest = manifest
        self._project = project
        self._limits = limits
        self._log: deque[str] = deque(maxlen=200)
        self._server: SandboxProcess | None = None
        self._following: asyncio.Task[None] | None = None
        self._relay: SandboxProcess | None = None
        self._unread = bytearray()
        self._requests = 0
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Starts the sandbox, the server and the relay, and waits until the server is healthy.

        Raises:
            SandboxError: it does not get there; what the server wrote is in the message.
        """
        await self.sandbox.start()
        command = self._manifest.start_command
        if self._project is not None:
            command = self._manifest.local_command(await self._unpack(self._project))
        self._server = await self.sandbox.spawn(["/bin/sh", "-c", command])
        self._following = asyncio.create_task(self._follow(self._server))
        arguments = ["/bin/sh", "-c", _PYTHON, "relay", _RELAY.read_text(), str(self._manifest.port)]
        self._relay = await self.sandbox.spawn(arguments)
        await self._wait_until_healthy(self._following)

    async def _unpack(self, project: bytes) -> str:
        await self.sandbox.upload(project, "project.tar.gz")
        unpacking = f"mkdir {PROJECT} && tar -xzf project.tar.gz -C {PROJECT} && rm project.tar.gz"
        done = await self.sandbox.exec(unpacking, timeout=_UPLOAD_SECONDS)
        if done.exit_code != 0:
            raise SandboxError(f"The project cannot be unpacked in sandbox {self.sandbox.id!r}: {done.stderr.strip()}")
        return f"{self.sandbox.workspace}/{PROJECT}"

    async def _follow(self, server: SandboxProcess) -> None:
        """Reads what the server writes, so that it can go on writing; ends with it."""
        with suppress(SandboxError):
            while (output := await server.read()) is not None:
                self._log.append(output.data.decode("utf-8", "replace"))

    async def _wait_until_healthy(self, following: asyncio.Task[None]) -> None:
        deadline = asyncio.get_running_loop().time() + self._limits.startup_seconds
        said, pause = "no attempts", min(0.05, self._limits.poll_seconds)
        while not following.done():
            try:
                answer = await self._request({"do": "get", "path": "/health"}, self._limits.health_seconds)
            except ServerUnreachableError as error:
                said = str(error)
            else:
                if answer.get("status") == _OK:
                    return
                said = f"HTTP {answer.get('status')}: {str(answer.get('body'))[:200]}"
            if asyncio.get_running_loop().time() + pause > deadline:
                raise self._not_ready(f"is not healthy after {self._limits.startup_seconds:g} s: {said}")
            await asyncio.wait([following], timeout=pause)
            pause = min(pause * 2, self._limits.poll_seconds)
        raise self._not_ready(f"has ended with exit code {await self._server.exit_code() if self._server else None}")

    def _not_ready(self, what: str) -> SandboxError:
        manifest = self._manifest
        return SandboxError(
            f"The OpenEnv server of image {manifest.image!r} {what}. It was started with {manifest.start_command!r} in "
            f"sandbox {self.sandbox.id!r}, and should listen on port {manifest.port}. It wrote: {self._written()}"
        )

    def _written(self) -> str:
        return "".join(self._log)[-_LOG_CHARACTERS:].strip() or "nothing"

    async def action_schema(self) -> dict[str, Any]:
        """Returns the JSON schema of actions, from ``/schema``.

        Raises:
            OpenEnvError: there is none in the answer.
            SandboxError: the sandbox does not answer.
        """
        answer = await self._request({"do": "get", "path": "/schema"}, self._limits.schema_seconds)
        body = answer.get("body")
        if answer.get("status") != _OK or not isinstance(body, dict):
            raise OpenEnvError(
                f"OpenEnv /schema must answer with a JSON object, found HTTP {answer.get('status')}: {body!r}"
            )
        schema = body.get("action", {})
        if not isinstance(schema, dict):
            raise OpenEnvError(f"OpenEnv /schema must have an object `action`, found {schema!r}")
        return schema

    async def connect(self) -> None:
        """Starts a session, and with it a new world."""
        await self._request({"do": "connect"}, _CONNECT_SECONDS)

    async def reset(self, seed: int) -> StepResult:
        """Starts an episode."""
        return step_result(await self._send("reset", {"seed": seed}))

    async def step(self, action: dict[str, Any]) -> StepResult:
        """Takes an action, or calls a tool: ``{"type": "call_tool", "tool_name": ..., "arguments": {...}}``."""
        return step_result(await self._send("step", action))

    async def tools(self) -> list[dict[str, Any]]:
        """Returns the tools, as MCP describes them.

        Raises:
            OpenEnvError: the server lists none.
        """
        answer = await self._send("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
        if not isinstance(answer, dict) or "error" in answer:
            raise OpenEnvError(f"The OpenEnv server does not list its tools: {answer!r}")
        result = answer.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        usable = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
        if not usable:
            raise OpenEnvError(f"The OpenEnv server lists no usable tools: {answer!r}")
        return usable

    async def close(self) -> None:
        """Ends the server and its sandbox. Closing twice is fine."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self.sandbox.close()

    async def _send(self, kind: str, data: dict[str, Any]) -> Any:
        message = {"type": kind, "data": data}
        answer = await self._request({"do": "send", "message": message}, self._limits.message_seconds)
        received = answer.get("message")
        if not isinstance(received, dict) or "data" not in received:
            raise OpenEnvError(f"The OpenEnv server broke its protocol: {received!r}")
        body = received["data"]
        if received.get("type") == "error":
            raise refusal(body if isinstance(body, dict) else {"message": body})
        return body

    async def _request(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Sends a request through the relay.

        Raises:
            ServerUnreachableError: the relay could not do it.
            SandboxError: the relay does not answer.
        """
        try:
            async with asyncio.timeout(seconds + _SLACK_SECONDS), self._turn:
                self._requests += 1
                answer = await self._exchange({"id": self._requests, **request, "seconds": seconds})
        except TimeoutError as error:
            raise SandboxError(f"The relay in sandbox {self.sandbox.id!r} does not answer") from error
        if "failure" in answer:
            raise ServerUnreachableError(f"The OpenEnv server in sandbox {self.sandbox.id!r}: {answer['failure']}")
        return answer

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._relay is None:
            raise SandboxError(f"The OpenEnv server in sandbox {self.sandbox.id!r} has not been started")
        await self._relay.write(json.dumps(request).encode() + b"\n")
        while True:
            answer = await self._next_answer(self._relay)
            if answer.get("id") == request["id"]:  # one to a request that was given up may come before
                return answer

    async def _next_answer(self, relay: SandboxProcess) -> dict[str, Any]:
        while (end := self._unread.find(b"\n")) < 0:
            self._take(await relay.read())
        line, self._unread = self._unread[:end], self._unread[end + 1 :]
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SandboxError(f"The relay in sandbox {self.sandbox.id!r} broke its protocol: {bytes(line[:200])!r}")
        return answer

    def _take(self, output: Output | None) -> None:
        if output is None or len(self._unread) > _MAX_ANSWER_BYTES:
            raise SandboxError(f"The relay in sandbox {self.sandbox.id!r} has ended. It wrote: {self._written()}")
        if output.stream is Stream.STDOUT:
            self._unread += output.data
        else:
            self._log.append(output.data.decode("utf-8", "replace"))

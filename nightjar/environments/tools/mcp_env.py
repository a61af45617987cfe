"""``MCPEnv``: the tools of MCP servers (https://modelcontextprotocol.io), processes that talk over stdin and stdout."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import shlex
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TextIO

from nightjar.core.calling import call
from nightjar.core.calling.decorators import teardown
from nightjar.core.calling.loops import HomeLoop
from nightjar.core.messages import Tool, ToolMessage
from nightjar.environments.tools.tool_env import ToolEnv
from nightjar.errors import InfraError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ContentBlock
    from mcp.types import Tool as MCPTool

logger = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 60.0  # a server may install itself first
_LINES = 20
_LINE_CHARACTERS = 2000
_READ_SECONDS = 0.2


@dataclass
class MCPServerConfig:
    """How a server is started. The server inherits only harmless variables such as PATH; ``env`` adds others.

    ``start_timeout_seconds`` limits the time until the server has listed its tools.
    """

    name: str
    command: str
    args: list[str] | None = None
    env: dict[str, str] | None = None
    description: str = ""
    start_timeout_seconds: float = START_TIMEOUT_SECONDS

    @classmethod
    def of(cls, value: MCPServerConfig | Mapping[str, Any]) -> MCPServerConfig:
        """Converts a dict with these keys; ignores other keys with a warning."""
        if isinstance(value, MCPServerConfig):
            return value
        known = {field.name for field in fields(cls)} & value.keys()
        if unknown := sorted(value.keys() - known):
            logger.warning("MCP server %r: unknown settings: %s", value.get("name"), ", ".join(unknown))
        return cls(**{name: value[name] for name in known})


class MCPServerConnection:
    """Starts a server, calls its tools, restarts it if it ended, and ends it; by default in its own event loop."""

    def __init__(
        self, config: MCPServerConfig, logger: logging.Logger = logger, background: HomeLoop | None = None
    ) -> None:
        self.config = config
        self.logger = logger
        self.tools: dict[str, MCPTool] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._background = background or HomeLoop(f"nightjar-mcp-{config.name}")
        self._stderr = _LastLines()
        self._starting = asyncio.Lock()
        self._stop = asyncio.Event()
        self._client: Client | None = None
        self._serving: asyncio.Task[None] | None = None

    async def connect(self) -> dict[str, MCPTool]:
        """Starts the server if needed, and returns its tools. Raises ``InfraError`` if it does not start in time."""
        await self._background.call(self._connected())
        return self.tools

    async def call_tool(self, tool_name: str, arguments: dict[str, Any]) -> str | list[dict[str, Any]]:
        """Returns a tool's result: a text, or content parts if it has images."""
        return await self._background.call(self._call(tool_name, arguments))

    async def disconnect(self) -> None:
        """Ends the server's process; kills it if it does not end within some seconds."""
        await self._background.call(self._disconnect())

    async def _call(self, tool_name: str, arguments: dict[str, Any]) -> str | list[dict[str, Any]]:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client = await self._connected()
        try:
            return tool_content(await client.call_tool(tool_name, arguments))
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise
            if self._client is client:
                await self._disconnect()
            raise InfraError(
                f"MCP server {self.config.name!r} ended while {tool_name!r} was called{self._stderr.quoted()}. "
                "The next call restarts it."
            ) from error

    async def _connected(self) -> Client:
        if self.loop is not (loop := asyncio.get_running_loop()):
            self.loop, self._client, self._starting = loop, None, asyncio.Lock()
        async with self._starting:
            if self._client is None:
                self._client = await self._start()
            return self._client

    async def _start(self) -> Client:
        started: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        serving = self._serving = asyncio.create_task(self._serve(started, self._stop))
        try:
            async with asyncio.timeout(self.config.start_timeout_seconds):
                client = await started
        except BaseException as error:
            serving.cancel()
            await asyncio.wait({serving})
            if isinstance(error, Exception):
                raise self._start_error(error) from error
            raise
        self.logger.info("MCP server %r started with the tools %s", self.config.name, ", ".join(self.tools))
        return client

    async def _serve(self, started: asyncio.Future[Client], stop: asyncio.Event) -> None:
        """Keeps the connection open until ``stop`` is set, because a task must leave the contexts that it entered."""
        from mcp import Client, StdioServerParameters, stdio_client

        config = self.config
        parameters = StdioServerParameters(command=config.command, args=config.args or [], env=config.env)
        try:
            with self._stderr.open() as stderr:
                async with Client(stdio_client(parameters, stderr)) as client:
                    stderr.close()
                    self.tools = {tool.name: tool for tool in await _list_tools(client)}
                    if not started.done():
                        started.set_result(client)
                        await stop.wait()
        except Exception as error:  # noqa: BLE001 - raised where the start is awaited
            if started.done():
                self.logger.warning("MCP server %r failed while ending: %r", config.name, error)
            else:
                started.set_exception(_innermost(error))

    async def _disconnect(self) -> None:
        serving, self._serving, self._client = self._serving, None, None
        if serving is not None:
            self._stop.set()
            await asyncio.wait({serving})
            self.logger.info("MCP server %r ended", self.config.name)

    def _start_error(self, error: Exception) -> InfraError:
        config = self.config
        late = f"it did not answer within {config.start_timeout_seconds:g} s"
        reason = late if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
        command = shlex.join([config.command, *(config.args or [])])
        return InfraError(
            f"MCP server {config.name!r} did not start: {reason}. Its command is {command!r}"
            f"{self._stderr.quoted()}. Run the command to see what is wrong."
        )


class MCPToolWrapper:
    def __init__(self, server_name: str, tool: MCPTool, server_connection: MCPServerConnection) -> None:
        self.server_name = server_name
        self.tool = tool
        self.server_connection = server_connection
        self.__name__ = tool.name
        self.__doc__ = tool.description or ""

    async def __call__(self, /, **kwargs: Any) -> str | list[dict[str, Any]]:
        """Returns the tool's result: a text, or content parts if it has images."""
        return await self.server_connection.call_tool(self.tool.name, kwargs)

    def to_tool_def(self) -> Tool:
        return Tool(name=self.__name__, description=self.__doc__ or "", parameters=self.tool.input_schema)


def tool_content(result: CallToolResult) -> str | list[dict[str, Any]]:
    """Returns a result or error as text, with blocks joined by newlines, or as content parts if it has images."""
    parts = [_part(block) for block in result.content]
    if any(part["type"] != "text" for part in parts):
        return parts
    if parts:
        return "\n".join(part["text"] for part in parts)
    if result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "No result returned from tool"


def _part(block: ContentBlock) -> dict[str, Any]:
    from mcp.types import TextResourceContents

    if block.type == "text":
        return _text(block.text)
    if block.type == "image":
        return _image(block.mime_type, block.data)
    if block.type == "resource_link":
        return _text(f"{block.name}: {block.uri}")
    if block.type != "resource":
        return _text(f"[{block.mime_type}]")
    resource = block.resource
    if isinstance(resource, TextResourceContents):
        return _text(resource.text)
    kind = resource.mime_type or "data"
    return _image(kind, resource.blob) if kind.startswith("image/") else _text(f"[{kind}: {resource.uri}]")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(mime_type: str, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}


def _innermost(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def _list_tools(client: Client) -> list[MCPTool]:
    tools, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools


class _LastLines:
    """Drains a process's stderr, so that the process never blocks, and keeps the last lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader: threading.Thread | None = None

    def open(self) -> TextIO:
        read_end, write_end = os.pipe()
        self._lines = deque(maxlen=_LINES)
        self._reader = threading.Thread(target=_read_lines, args=(read_end, self._lines), daemon=True)
        self._reader.start()
        return os.fdopen(write_end, "w")

    def quoted(self) -> str:
        if self._reader is not None:
            self._reader.join(_READ_SECONDS)
        text = "\n".join(self._lines).strip()
        return f"; it wrote to stderr: {text}" if text else ""


def _read_lines(read_end: int, lines: deque[str]) -> None:
    with os.fdopen(read_end, errors="replace") as stream:
        while line := stream.readline(_LINE_CHARACTERS):
            lines.append(line.rstrip())


class MCPEnv(ToolEnv):
    """A ``ToolEnv`` with the tools of MCP servers, which run as local processes (stdio).

    All rollouts share the servers, so their tools must not have state. A server that ends is restarted by the next
    call; the interrupted call becomes an error message, or the rollout's error if ``stop_errors`` contains
    ``InfraError``. ``mcp_servers`` are ``MCPServerConfig``, or dicts with its fields.

    Example:
        >>> config = {"name": "files", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]}
        >>> env = MCPEnv([config], dataset=[{"question": "What is in README.md?"}])  # doctest: +SKIP
    """

    def __init__(
        self,
        mcp_servers: Sequence[MCPServerConfig | Mapping[str, Any]] = (),
        max_turns: int = 10,
        error_formatter: Callable[[Exception], str] = lambda error: f"Error: {error}",
        **kwargs: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, error_formatter=error_formatter, **kwargs)
        self.mcp_servers = [MCPServerConfig.of(server) for server in mcp_servers]
        self._servers = _Servers(self.mcp_servers)
        weakref.finalize(self, self._servers.end_soon).atexit = False
        self._servers.start()
        self.server_connections = self._servers.connections
        self.mcp_tools: dict[str, MCPToolWrapper] = {}
        for name, connection in self.server_connections.items():
            for tool in connection.tools.values():
                wrapper = self.mcp_tools[tool.name] = MCPToolWrapper(name, tool, connection)
                self._offer(wrapper, wrapper.to_tool_def())

    async def call_tool(
        self, tool_name: str, tool_args: dict[str, Any], tool_call_id: str, **kwargs: Any
    ) -> ToolMessage:
        if tool_name not in self.tool_map:
            return ToolMessage(content=f"Error: Tool '{tool_name}' not found", tool_call_id=tool_call_id)
        try:
            return await super().call_tool(tool_name, tool_args, tool_call_id, **kwargs)
        except Exception as error:
            if self._should_stop_for_error(error):
                raise
            return ToolMessage(content=self.error_formatter(error), tool_call_id=tool_call_id)

    @teardown
    async def teardown_mcp_servers(self) -> None:
        """Ends the servers; a later call restarts them."""
        await call(self._servers.end)


class _Servers:
    def __init__(self, configs: Sequence[MCPServerConfig]) -> None:
        self._background = HomeLoop("nightjar-mcp")
        self._ending = threading.Lock()
        self.connections = {config.name: MCPServerConnection(config, background=self._background) for config in configs}
        _in_use.add(self)

    def start(self) -> None:
        try:
            self._background.run(self._connect())
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        with self._ending:
            if self._background.is_running:
                self._background.run(self._disconnect())
                self._background.stop()

    def end_soon(self) -> None:
        """Ends all servers without waiting, because the garbage collector may call this in any thread."""
        if self._background.is_running:
            threading.Thread(target=self.end, name="nightjar-mcp-end", daemon=True).start()

    async def _connect(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for connection in self.connections.values():
                    group.create_task(connection.connect())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _disconnect(self) -> None:
        await asyncio.gather(*(connection.disconnect() for connection in self.connections.values()))


_in_use: weakref.WeakSet[_Servers] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for servers in list(_in_use):
        servers.end()

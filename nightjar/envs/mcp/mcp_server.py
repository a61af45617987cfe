"""A connection to an MCP server that runs as a process of its own and talks over stdin and stdout.

The protocol is that of https://modelcontextprotocol.io, as the ``mcp`` package speaks it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TextIO

from nightjar.calling.background_loop import BackgroundLoop
from nightjar.errors import InfraError
from nightjar.messages import Tool

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ContentBlock
    from mcp.types import Tool as MCPTool

logger = logging.getLogger(__name__)

START_TIMEOUT_SECONDS = 60.0  # a server that installs itself first takes its time
_LINES = 20
_LINE_CHARACTERS = 2000
_READ_SECONDS = 0.2


@dataclass
class MCPServerConfig:
    """How a server is started.

    Attributes:
        name: distinguishes it from the environment's other servers.
        command: the program to run.
        args: its arguments.
        env: environment variables it gets besides a few harmless ones such as PATH and HOME.
        description: what it is for; for people.
        start_timeout_seconds: how long it may take until it has named its tools.
    """

    name: str
    command: str
    args: list[str] | None = None
    env: dict[str, str] | None = None
    description: str = ""
    start_timeout_seconds: float = START_TIMEOUT_SECONDS

    @classmethod
    def of(cls, value: MCPServerConfig | Mapping[str, Any]) -> MCPServerConfig:
        """Makes one of a dict with these keys; others are ignored, with a warning."""
        if isinstance(value, MCPServerConfig):
            return value
        known = {field.name for field in fields(cls)} & value.keys()
        if unknown := sorted(value.keys() - known):
            logger.warning("MCP server %r: settings that are not known: %s", value.get("name"), ", ".join(unknown))
        return cls(**{name: value[name] for name in known})


class MCPServerConnection:
    """Starts a server, calls its tools, starts it again when it has ended, and ends it.

    Without a ``background`` loop to live in, the connection has one of its own.

    Attributes:
        tools: what the server offers, by name, as it described them when it started last.
        loop: the event loop in which the connection lives; None until it is needed.
    """

    def __init__(
        self, config: MCPServerConfig, logger: logging.Logger = logger, background: BackgroundLoop | None = None
    ) -> None:
        self.config = config
        self.logger = logger
        self.tools: dict[str, MCPTool] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._background = background or BackgroundLoop(f"nightjar-mcp-{config.name}")
        self._stderr = _LastLines()
        self._starting = asyncio.Lock()
        self._stop = asyncio.Event()
        self._client: Client | None = None
        self._serving: asyncio.Task[None] | None = None

    async def connect(self) -> dict[str, MCPTool]:
        """Starts the server unless it runs, and returns its tools; ``InfraError`` where it does not start in time."""
        await self._background.call(self._connected())
        return self.tools

    async def call_tool(self, tool_name: str, arguments: dict[str, Any]) -> str | list[dict[str, Any]]:
        """Calls a tool and returns its result: a text, or content parts where there are images in it.

        ``InfraError`` where the server ended meanwhile, or does not start; ``MCPError`` where it refused the call.
        """
        return await self._background.call(self._call(tool_name, arguments))

    async def disconnect(self) -> None:
        """Ends the server's process: asks it to, and ends it by force where it takes longer than some seconds."""
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
                "The next call starts it again."
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
        """Holds the connection open until ``stop``: a task has to leave the contexts that it entered."""
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
        except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the start
            if started.done():
                self.logger.warning("MCP server %r did not end well: %r", config.name, error)
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
    """A tool of a server as a function."""

    def __init__(self, server_name: str, tool: MCPTool, server_connection: MCPServerConnection) -> None:
        self.server_name = server_name
        self.tool = tool
        self.server_connection = server_connection
        self.__name__ = tool.name
        self.__doc__ = tool.description or ""

    async def __call__(self, /, **kwargs: Any) -> str | list[dict[str, Any]]:
        """Calls the tool and returns its result: a text, or content parts where there are images in it."""
        return await self.server_connection.call_tool(self.tool.name, kwargs)

    def to_tool_def(self) -> Tool:
        """Returns the tool as a model is offered it, with the server's own schema."""
        return Tool(name=self.__name__, description=self.__doc__ or "", parameters=self.tool.input_schema)


def tool_content(result: CallToolResult) -> str | list[dict[str, Any]]:
    """Returns a result as text, blocks joined by newlines; as content parts where there are images in it.

    An error that a tool reports is a text like any other.
    """
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
    """Returns what a group of errors is about: the only one in it, or the first."""
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
    """Reads what a process writes to stderr, so that it never blocks, and keeps the last lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._reader: threading.Thread | None = None

    def open(self) -> TextIO:
        """Returns a file for a process to write to; what an earlier one wrote is forgotten."""
        read_end, write_end = os.pipe()
        self._lines = deque(maxlen=_LINES)
        self._reader = threading.Thread(target=_read_lines, args=(read_end, self._lines), daemon=True)
        self._reader.start()
        return os.fdopen(write_end, "w")

    def quoted(self) -> str:
        """Returns the last lines as the end of a sentence; nothing where there are none."""
        if self._reader is not None:
            self._reader.join(_READ_SECONDS)
        text = "\n".join(self._lines).strip()
        return f"; it wrote to stderr: {text}" if text else ""


def _read_lines(read_end: int, lines: deque[str]) -> None:
    with os.fdopen(read_end, errors="replace") as stream:
        while line := stream.readline(_LINE_CHARACTERS):
            lines.append(line.rstrip())

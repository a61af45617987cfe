"""``MCPEnv``: the model calls the tools of MCP servers."""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nightjar.calling import call
from nightjar.calling.background_loop import BackgroundLoop
from nightjar.calling.decorators import teardown
from nightjar.envs.mcp.mcp_server import MCPServerConfig, MCPServerConnection, MCPToolWrapper
from nightjar.envs.tools.tool_env import ToolEnv
from nightjar.messages import ToolMessage

__all__ = ["MCPEnv", "MCPServerConfig", "MCPServerConnection", "MCPToolWrapper"]


class MCPEnv(ToolEnv):
    """A ``ToolEnv`` with the tools of MCP servers, which run as processes beside this one (stdio).

    The servers start with the environment, and all rollouts share them: they are for tools without a state of their
    own. One that ends is started again by the next call; the call that it was busy with gets an error, as a tool
    message, or as the rollout's error where ``stop_errors`` has ``InfraError``. All servers end at teardown, when the
    environment is no longer used, and with the process.

    Args:
        mcp_servers: how to start them, as ``MCPServerConfig`` or as a dict with its fields.
        max_turns, error_formatter, **kwargs: as for ``ToolEnv``, ``tools`` of your own among them.

    Attributes:
        mcp_tools: the servers' tools by name, also in ``tools`` and ``tool_map``.
        server_connections: the connections by the servers' names.

    Raises:
        InfraError: a server does not start; the message has its command and what it wrote to stderr.

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
        """Calls a tool and returns its result, or what went wrong, as a message; raises one of ``stop_errors``."""
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
        """Ends the servers. A later call starts its server again."""
        await call(self._servers.end)


class _Servers:
    """The servers of an environment, and the event loop in which they are talked to."""

    def __init__(self, configs: Sequence[MCPServerConfig]) -> None:
        self._background = BackgroundLoop("nightjar-mcp")
        self._ending = threading.Lock()
        self.connections = {config.name: MCPServerConnection(config, background=self._background) for config in configs}
        _in_use.add(self)

    def start(self) -> None:
        """Starts all servers at once; ends those that did start where one does not."""
        try:
            self._background.run(self._connect())
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Ends all servers and waits for it."""
        with self._ending:
            if self._background.is_running:
                self._background.run(self._disconnect())
                self._background.stop()

    def end_soon(self) -> None:
        """Ends all servers without waiting: the collector of garbage may call this in any thread."""
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

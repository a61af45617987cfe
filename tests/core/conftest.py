"""A bridge for agents, and a sandbox that does not isolate, for tests of programs that need this machine's network."""

import asyncio
import os
import signal
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from nightjar.environments.agents.bridge import AgentBridge
from nightjar.sandboxes.sandbox import Output, Sandbox, SandboxProcess, Stream


class PlainProcess(SandboxProcess):
    """A process of this machine in a process group of its own."""

    def __init__(self, process):
        self._process = process
        self._queue = asyncio.Queue(maxsize=8)
        streams = {Stream.STDOUT: process.stdout, Stream.STDERR: process.stderr}
        self._pumps = [asyncio.create_task(self._pump(*each)) for each in streams.items()]

    async def _pump(self, stream, reader):
        while data := await reader.read(65536):
            await self._queue.put(Output(stream, data))
        await self._queue.put(None)

    async def read(self):
        while self._pumps:
            if (output := await self._queue.get()) is not None:
                return output
            self._pumps.pop()
        return None

    async def write(self, data):
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def close_input(self):
        self._process.stdin.close()

    async def exit_code(self):
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def close(self):
        for pump in self._pumps:
            pump.cancel()
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._process._transport.close()


class PlainSandbox(Sandbox):
    """Runs commands in a folder of this machine; counts how often it was closed."""

    def __init__(self, workspace):
        self.id = f"plain-{uuid.uuid4().hex[:8]}"
        self.workspace = str(workspace)
        self.closed = 0

    async def start(self): ...

    async def spawn(self, command, working_dir=None, env=None, max_output_bytes=None):
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        variables = {"PATH": os.environ["PATH"], **(env or {})}
        folder = Path(self.workspace, working_dir or "")
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=folder, env=variables, start_new_session=True, **pipes
        )
        return PlainProcess(process)

    async def end_processes(self): ...

    async def close(self):
        self.closed += 1

    def close_now(self): ...


@pytest.fixture
def plain_sandbox(tmp_path):
    return PlainSandbox(tmp_path)


@pytest.fixture
async def bridge():
    bridge = AgentBridge()
    await bridge.start()
    yield bridge
    await bridge.stop()

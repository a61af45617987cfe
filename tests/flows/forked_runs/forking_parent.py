"""The worker's side of ``parent.py``, which forks its spare processes."""

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio

SPARE = "nightjar.hosting.spare_process"
PARENT = Path(__file__).with_name("parent.py")
PR_SET_CHILD_SUBREAPER = 36
_set_process = ctypes.CDLL(None).prctl


class ForkingParent:
    """Starts spare processes as forks; their parent is this process, as if it had started them itself."""

    def __init__(self, open_process):
        self._open_process = open_process
        self._environment, self._connection, self._lock = None, None, asyncio.Lock()

    async def open_process(self, command, *, env=None, cwd=None, **options):
        if command[-1] != SPARE:
            return await self._open_process(command, env=env, cwd=cwd, **options)
        if self._connection is None:
            self._start(env)
        if lasting(env) != self._environment:  # Prefect has read other settings
            return await self._open_process(command, env=env, cwd=cwd, **options)
        request = json.dumps({"environment": env, "folder": str(cwd or Path.cwd())}).encode()
        async with self._lock:
            pid, writing = await asyncio.to_thread(self._fork, request)
        return SpareFork(pid, writing)

    def _fork(self, request):
        reading, writing = os.pipe()
        _set_process(PR_SET_CHILD_SUBREAPER, 1)  # a process whose parent has ended becomes a child of this one
        socket.send_fds(self._connection, [request], [reading])
        pid = int(self._connection.recv(100))
        self._connection.recv(100)  # the process between has ended
        _set_process(PR_SET_CHILD_SUBREAPER, 0)
        os.close(reading)
        return pid, writing

    def _start(self, env):
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            subprocess.Popen(
                [sys.executable, PARENT, str(its.fileno())], env=env, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL
            )
        self._environment, self._connection = lasting(env), own


def lasting(environment):
    return {name: value for name, value in environment.items() if not name.startswith("PREFECT__")}


class SpareFork:
    """What ``anyio.open_process`` returns, as far as the worker uses it."""

    def __init__(self, pid, writing):
        self.pid, self.returncode = pid, None
        self.stdin = self
        self._writing, self._ended = writing, asyncio.Event()
        self._watched = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._watched, self._end)

    def _end(self):
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        _, status = os.waitpid(self.pid, 0)
        self.returncode = os.waitstatus_to_exitcode(status)
        self._ended.set()

    async def send(self, message):
        try:
            while message:
                message = message[os.write(self._writing, message) :]
        except BrokenPipeError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self):
        if self._writing is not None:
            os.close(self._writing)
            self._writing = None

    async def wait(self):
        await self._ended.wait()
        return self.returncode

    def terminate(self):
        os.kill(self.pid, signal.SIGTERM)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

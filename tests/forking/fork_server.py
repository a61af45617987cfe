"""Starts Python quickly: imports once what Nightjar's commands need, and then forks a process for each program.

Each is a process of its own, as one that a shell starts: alone in a session, with its own folder, environment, terminal
and output, ended and killed like any other. What it saves is 2 s of imports. ``forked.py`` runs this file, with the
number of a socket. A request is a line, and so is its answer: ``{"import": [module, …]}`` is answered by null,
``{"start": …}``, with stdin, stdout and stderr beside it, by a pid, and ``{"poll": pid}`` by null or the exit code,
negative for a signal.
"""

import fcntl
import gc
import json
import os
import socket
import sys
import termios
from contextlib import suppress
from importlib import import_module
from types import ModuleType

LARGE = ("nightjar.clients.openai_chat", "openai.types.chat", "rich.console", "typer")
"""Their objects are not looked through, and so not copied, by the garbage collection of each process."""

NEEDED = (
    "fastapi", "nightjar.benchmarks.arithmetic", "nightjar.cli.comparison", "nightjar.cli.eval.exchange",
    "nightjar.cli.eval.run", "nightjar.cli.eval.running", "nightjar.cli.sql.prompt", "nightjar.evaluation.direct",
    "nightjar.warehouse.backend", "uvicorn",
)  # fmt: skip
"""None of them starts a thread, or connects DuckDB, which does: threads do not survive a fork."""

MOST_BYTES = 1_000_000


def serve(connection):
    """Answers requests until the other side is closed; returns the program of every process that was forked."""
    while request := receive(connection):
        message, streams = request
        match message:
            case {"import": names}:
                answer = [import_module(name) for name in names] and None
            case {"poll": pid}:
                answer = exit_code(pid)
            case {"start": program}:
                if not (answer := os.fork()):
                    connection.close()
                    become(streams, **program)
                    return program["source"]
        for stream in streams:
            os.close(stream)
        connection.sendall(f"{json.dumps(answer)}\n".encode())
    os._exit(0)


def receive(connection):
    line, streams, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
    while line and not line.endswith(b"\n"):
        line += connection.recv(MOST_BYTES)
    return line and (json.loads(line), streams)


def exit_code(pid):
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(streams, source, arguments, folder, env):
    """Makes a forked process what one that was started anew would be."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = arguments
    sys.path[0] = ""
    sys.modules["__main__"] = ModuleType("__main__")
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with suppress(OSError):  # stdin is no terminal
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


for name in LARGE:
    import_module(name)
gc.freeze()
for name in NEEDED:
    import_module(name)
exec(compile(serve(socket.socket(fileno=int(sys.argv[1]))), "<string>", "exec"), vars(sys.modules["__main__"]))

"""Runs the commands of documents; there, ``nightjar`` is a fork of one process that has imported it.

``python stories.py`` reads ``{name: [commands, folder]}`` from stdin, and prints the exit code, stdout and stderr of
each. ``python stories.py nightjar ARGUMENT …`` is the command ``nightjar`` of the documents.
"""

import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

FORK_SERVER = Path(__file__).parents[1] / "forking" / "fork_server.py"
NIGHTJAR = "from nightjar.cli import main; main()"


def nightjar(arguments):
    """Runs a command as a fork of the server; returns its exit code."""
    program = {
        "source": NIGHTJAR,
        "arguments": ["nightjar", *arguments],
        "folder": str(Path.cwd()),
        "env": {**os.environ},
    }
    pid = ask({"start": program}, (0, 1, 2))
    while (code := ask({"poll": pid})) is None:
        time.sleep(0.02)
    return code if code >= 0 else 128 - code


def ask(request, streams=()):
    """Sends the server a request, and returns its answer: one process at a time, because all share the connection."""
    with Path(os.environ["STORIES_LOCK"]).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = socket.socket(fileno=int(os.environ["STORIES_SOCKET"]))
        line = f"{json.dumps(request)}\n".encode()
        sent = socket.send_fds(connection, [line], streams)
        connection.sendall(line[sent:])
        with connection.makefile() as answers:
            answer = json.loads(answers.readline())
        connection.detach()
    return answer


def run(stories):
    """Runs stories in turn; yields the exit code, stdout and stderr of each."""
    own, its = socket.socketpair()
    with its, tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([sys.executable, FORK_SERVER, str(its.fileno())], pass_fds=[its.fileno()])
        lock = Path(folder, "lock")
        lock.touch()
        command = Path(folder, "nightjar")
        words = shlex.join([sys.executable, "-S", "-E", __file__, "nightjar"])
        real = shlex.join([sys.executable, "-m", "nightjar"])
        command.write_text(f'#!/bin/sh\ncase $1 in up | demo) exec {real} "$@" ;; *) exec {words} "$@" ;; esac\n')
        command.chmod(0o755)
        theirs = {"PATH": f"{folder}:{os.environ['PATH']}", "STORIES_LOCK": str(lock)}
        theirs["STORIES_SOCKET"] = str(own.fileno())
        for script, place in stories:
            with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as said:
                code = subprocess.call(
                    ["bash", "-euo", "pipefail", "-c", script], pass_fds=[own.fileno()], cwd=place,
                    env=os.environ | theirs | {"HOME": f"{place}/home"}, stdin=subprocess.DEVNULL, stdout=printed,
                    stderr=said,
                )  # fmt: skip
                with lock.open() as locked:
                    fcntl.flock(locked, fcntl.LOCK_EX)  # so that no process is killed between a request and its answer
                    kill_all_but({1, os.getpid(), server.pid})
                yield code, *(each.seek(0) or each.read() for each in (printed, said))
        server.kill()


def kill_all_but(kept):
    """Kills the processes of the sandbox, which has process ids of its own."""
    while True:
        left = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
        left = [pid for pid in left if pid not in kept and is_alive(pid)]
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def is_alive(pid):
    with suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


if __name__ == "__main__":
    if sys.argv[1:2] == ["nightjar"]:
        sys.exit(nightjar(sys.argv[2:]))
    assert os.getpid() < 10, "it kills all processes that it sees: only in a sandbox with its own process ids"
    stories = json.load(sys.stdin)
    print(json.dumps(dict(zip(stories, run(stories.values()), strict=True))))

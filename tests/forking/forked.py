"""Processes that ``fork_server.py`` starts, as ``subprocess`` has those that it starts itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE

SERVER = Path(__file__).with_name("fork_server.py")
NIGHTJAR = "from nightjar.cli import main; main()"
PATIENCE_SECONDS = 60


class ForkServer:
    """Starts programs in Python in some milliseconds each; its own process starts with the first of them.

    Args:
        python: the interpreter.
    """

    def __init__(self, python=sys.executable):
        self._python = python
        self._process, self._connection, self._lock = None, None, threading.Lock()

    def nightjar(self, *arguments, **options):
        """Starts a command of Nightjar; the options are those of ``Forked``."""
        return Forked(self, NIGHTJAR, ["nightjar", *map(str, arguments)], **options)

    def python(self, source, *arguments, **options):
        """Starts what ``python -c SOURCE ARGUMENT …`` does; the options are those of ``Forked``."""
        return Forked(self, source, ["-c", *map(str, arguments)], **options)

    def prepare(self, *modules):
        """Imports more modules for all programs to come; they must not start threads."""
        self.ask({"import": modules})

    def ask(self, request, streams=()):
        with self._lock:
            self._start()
            line = f"{json.dumps(request)}\n".encode()
            sent = socket.send_fds(self._connection, [line], streams)
            self._connection.sendall(line[sent:])
            answer = b""
            while not answer.endswith(b"\n"):
                received = self._connection.recv(4096)
                assert received, "the fork server has ended"
                answer += received
        return json.loads(answer)

    def close(self):
        if self._process is not None:
            self._connection.close()
            self._process.wait(PATIENCE_SECONDS)

    def _start(self):
        if self._process is not None:
            return
        own, its = socket.socketpair()
        with its:
            settings = {name: os.environ[name] for name in os.environ if not name.startswith(("NIGHTJAR_", "PREFECT_"))}
            self._process = subprocess.Popen(
                [self._python, SERVER, str(its.fileno())], env=settings, pass_fds=[its.fileno()], stdin=DEVNULL,
                stdout=DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._connection = own


class Forked:
    """One process, alone in a session; as a context it is killed at the end.

    Args:
        server: what starts it.
        source: its program.
        arguments: its ``sys.argv``.
        env: its environment; None for that of this process.
        cwd: its folder; None for that of this process.
        stdin: a file, its number, ``PIPE`` or ``DEVNULL``, as are the others. A terminal becomes the session's.
        stdout: where it prints to.
        stderr: where it complains.
    """

    def __init__(self, server, source, arguments, *, env=None, cwd=None, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL):
        self._server, self.returncode = server, None
        program = {
            "source": source,
            "arguments": arguments,
            "folder": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
        }
        with ExitStack() as given_away:
            streams, kept = zip(
                _stream(stdin, "r", given_away), _stream(stdout, "w", given_away), _stream(stderr, "w", given_away),
                strict=True,
            )  # fmt: skip
            self.stdin, self.stdout, self.stderr = kept
            self.pid = server.ask({"start": program}, streams)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.communicate()

    def poll(self):
        if self.returncode is None:
            self.returncode = self._server.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout=PATIENCE_SECONDS):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        return self.returncode

    def communicate(self, given=None, timeout=PATIENCE_SECONDS):
        """Returns what it has printed to its pipes when it has ended, and closes them; kills it after the timeout."""
        stopping = threading.Timer(timeout, self.kill)
        stopping.start()
        with ThreadPoolExecutor(2) as pool:
            printed = [stream and pool.submit(_read, stream) for stream in (self.stdout, self.stderr)]
            if self.stdin and not self.stdin.closed:
                with suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(given or "")
            texts = [reading and reading.result() for reading in printed]
        stopping.cancel()
        self.wait(timeout)
        return tuple(texts)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _read(stream):
    if stream.closed:
        return ""
    with stream:
        return stream.read()


def _stream(wanted, mode, given_away):
    """Returns the number of a file for the process, and this side of a pipe to it."""
    if wanted == DEVNULL:
        return given_away.enter_context(Path(os.devnull).open(mode)).fileno(), None
    if wanted != PIPE:
        return wanted if isinstance(wanted, int) else wanted.fileno(), None
    ends = os.pipe()
    own, its = ends if mode == "w" else reversed(ends)
    given_away.callback(os.close, its)
    return its, os.fdopen(own, "r" if mode == "w" else "w")

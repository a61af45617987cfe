"""The first process in a local sandbox. Starts commands, forwards their output, kills the processes they leave behind.

It is run as ``python supervisor.py LIMITS``. ``nightjar.sandboxes.local`` writes ``LIMITS`` (``marshal``, in
hexadecimal). Standard input is a socket. The supervisor imports only modules of the standard library that load quickly,
because every sandbox waits for its start. The protocol:

- For each command, the host sends one byte and, with it, a socket. The supervisor forks a *runner* for the command.
- On that socket the runner reads a request (4 bytes of length, then, in ``marshal``: ``argv``, ``cwd``, ``env``,
  ``max_bytes``) and then frames of input; it writes frames of output. A frame is a stream number, three zero bytes,
  4 bytes of length, and the data: the format of Docker's attached streams. Stream 0 is standard input (an empty frame
  closes it), 1 and 2 are standard output and error, 3 is the exit code, in 4 bytes.
- If the host closes the socket before the exit code was sent, the runner kills all descendants of the command,
  including daemons, because a runner is the reaper of its descendants.

Commands run under the same user as the supervisor and the runners. So the supervisor and the runners are protected from
tracing and reading (``PR_SET_DUMPABLE``). As the first process of its namespace, the supervisor cannot be killed from
inside. It kills stopped runners, and all processes that have lost their runner. On SIGUSR1, it kills all other
processes.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import ctypes
import marshal
import os
import resource
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
INPUT, STDOUT, STDERR, EXIT = range(4)
HEADER = struct.Struct(">B3xI")
CHUNK = 65536
KILL_SECONDS = 3.0
LAST_READS = 64
LIBC = ctypes.CDLL(None)
RUNNERS: set[int] = set()


class Ignoring:
    """Does the same as ``contextlib.suppress``, which takes longer to import."""

    def __init__(self, *errors: type[Exception]) -> None:
        self.errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self.errors)


def prctl(option: int, value: int) -> None:
    with Ignoring(OSError, AttributeError):
        LIBC.prctl(option, value, 0, 0, 0)


def wake_on_child() -> int:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


def reap() -> dict[int, int]:
    """Reaps ended children, and kills stopped runners. Returns the exit codes; after a signal, 128 plus its number."""
    ended = {}
    with Ignoring(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not pid:
                break
            if os.WIFSTOPPED(status):
                if pid in RUNNERS:
                    send_signal(pid, signal.SIGKILL)
                continue
            code = os.waitstatus_to_exitcode(status)
            ended[pid] = 128 - code if code < 0 else code
    return ended


def descendants(without: Collection[int] = ()) -> set[int]:
    """Returns all living descendants of this process, except the given children and their descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with Ignoring(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found = set(without)
    waiting = [os.getpid()]
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), []) if pid not in found]
        found.update(below)
        waiting += below
    return found.difference(without)


def send_signal(pid: int, number: int) -> None:
    with Ignoring(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_tree(without: Collection[int] = ()) -> set[int]:
    """Stops and kills all descendants except the given children and their descendants. Returns the remaining ones."""
    deadline = time.monotonic() + KILL_SECONDS
    stopped: set[int] = set()
    while (fresh := descendants(without) - stopped) and time.monotonic() < deadline:
        for pid in fresh:
            send_signal(pid, signal.SIGSTOP)
        stopped |= fresh
    while (left := descendants(without)) and time.monotonic() < deadline:
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        time.sleep(0.001)
    return left


def kill_everything(*_: object) -> None:
    """Kills all other processes of the sandbox and waits for their end."""
    RUNNERS.clear()
    if os.getpid() == 1:
        with Ignoring(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    kill_tree()


class Runner:
    """One command: its process, its pipes, and the socket to the host."""

    def __init__(self, host: socket.socket, limits: dict[str, int]) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.host = host
        self.woken = wake_on_child()
        size = struct.unpack(">I", self.receive(4))[0]
        request = marshal.loads(self.receive(size))  # noqa: S302 - from the host
        self.max_bytes = request["max_bytes"]
        self.written = {STDOUT: 0, STDERR: 0}
        self.code: int | None = None
        self.unwritten = b""
        stdin, self.input = os.pipe()
        stdout, own_stdout = os.pipe()
        stderr, own_stderr = os.pipe()
        self.pipes = {stdout: STDOUT, stderr: STDERR}
        self.pid = os.fork()
        if self.pid == 0:
            become_command(request, limits, (stdin, own_stdout, own_stderr))
        for descriptor in (stdin, own_stdout, own_stderr):
            os.close(descriptor)
        for descriptor in (self.input, *self.pipes):
            os.set_blocking(descriptor, False)

    def run(self) -> None:
        """Forwards input and output until the command has ended and no process holds the command's pipes any more."""
        while self.code is None or self.pipes:
            poll = select.poll()
            for descriptor in (self.woken, *self.pipes):
                poll.register(descriptor, select.POLLIN)
            if self.code is None:
                poll.register(self.host, 0 if self.unwritten else select.POLLIN)
            if self.unwritten:
                poll.register(self.input, select.POLLOUT)
            ready = dict(poll.poll(1000))
            for descriptor in [one for one in self.pipes if one in ready]:
                if not self.forward_output(descriptor):
                    os.close(descriptor)
                    del self.pipes[descriptor]
            self.forward_input(ready)
            self.check_exit()

    def check_exit(self) -> None:
        """Sends the exit code once it is known. The remaining output of the command is sent first."""
        with Ignoring(BlockingIOError):
            os.read(self.woken, CHUNK)
        code = reap().get(self.pid)
        if code is None:
            return
        for descriptor in self.pipes:
            for _ in range(LAST_READS):
                if not self.forward_output(descriptor, is_last=True):
                    break
        self.send(EXIT, struct.pack(">i", code))
        self.code = code
        self.unwritten = b""

    def forward_output(self, descriptor: int, is_last: bool = False) -> bool:
        """Sends the content of a pipe. Drops output beyond the limit. Returns whether there may be more output."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return not is_last
        stream = self.pipes[descriptor]
        room = len(data) if self.max_bytes is None else max(0, self.max_bytes - self.written[stream])
        self.written[stream] += len(data)
        if self.code is None and data[:room]:
            self.send(stream, data[:room])
        return bool(data)

    def forward_input(self, ready: dict[int, int]) -> None:
        if self.unwritten and self.input in ready:
            try:
                self.unwritten = self.unwritten[os.write(self.input, self.unwritten) :]
            except BlockingIOError:
                return
            except OSError:
                self.unwritten = b""
        if self.code is not None or self.host.fileno() not in ready:
            return
        if ready[self.host.fileno()] & select.POLLHUP:
            self.give_up()
        stream, size = HEADER.unpack(self.receive(HEADER.size))
        if stream != INPUT or size > CHUNK:
            self.give_up()
        self.unwritten = self.receive(size)
        if not size:
            os.close(self.input)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = b""
            with Ignoring(ConnectionError):
                piece = self.host.recv(size - len(data))
            if not piece:
                self.give_up()
            data += piece
        return data

    def send(self, stream: int, data: bytes) -> None:
        try:
            self.host.sendall(HEADER.pack(stream, len(data)) + data)
        except OSError:
            self.give_up()

    def give_up(self) -> None:
        if kill_tree():
            send_signal(os.getppid(), signal.SIGUSR1)
        reap()  # now, because the host may count processes as soon as the socket is closed
        os._exit(0)  # a fork: unwinding would return into the supervisor's loop


def become_command(request: dict[str, object], limits: dict[str, int], descriptors: tuple[int, int, int]) -> None:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGPIPE, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        os.chdir(str(request["cwd"]))
        apply_limits(limits)
        argv, env = request["argv"], request["env"]
        os.execvpe(argv[0], argv, env)  # type: ignore[index,arg-type]  # noqa: S606
    except BaseException as error:  # noqa: BLE001 - any error means that the command cannot run
        os.write(2, f"cannot run this: {error}\n".encode())
    os._exit(127)  # a fork of a fork: it must not continue as a second runner


def apply_limits(limits: dict[str, int]) -> None:
    for name in ("NPROC", "DATA", "FSIZE", "NOFILE", "CPU", "CORE", "MEMLOCK"):
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None and name in limits:
            soft = limits[name]
            hard = resource.getrlimit(kind)[1]
            soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
            resource.setrlimit(kind, (soft, soft))
    os.nice(limits.get("nice", 0))


def serve(control: socket.socket, limits: dict[str, int]) -> None:
    """Forks a runner for every socket that the host sends. Returns when the host has closed the connection."""
    woken = wake_on_child()
    poll = select.poll()
    for descriptor in (control.fileno(), woken):
        poll.register(descriptor, select.POLLIN)
    control.send(b"ready")
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(1000)]
        with Ignoring(BlockingIOError):
            os.read(woken, CHUNK)
        ended = reap()
        is_runner_killed = any(ended[pid] for pid in RUNNERS & ended.keys())
        RUNNERS.difference_update(ended)
        if is_runner_killed:
            kill_tree(without=RUNNERS)
        if control.fileno() not in ready:
            continue
        message, attached, _, _ = control.recvmsg(1, socket.CMSG_SPACE(4))
        if not message:
            return
        for descriptor in (struct.unpack("i", data)[0] for _, _, data in attached):
            os.set_inheritable(descriptor, False)
            with Ignoring(OSError):
                start_runner(descriptor, control, limits)
            os.close(descriptor)


def start_runner(descriptor: int, control: socket.socket, limits: dict[str, int]) -> None:
    pid = os.fork()
    if pid:
        RUNNERS.add(pid)
        return
    code = 1
    try:
        RUNNERS.clear()
        control.close()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        Runner(socket.socket(fileno=descriptor), limits).run()
        code = 0
    finally:
        os._exit(code)  # a fork: unwinding would return into the supervisor's loop


def main() -> None:
    limits = marshal.loads(bytes.fromhex(sys.argv[1]))  # noqa: S302 - from the host
    os.closerange(3, 256)
    with Ignoring(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")
    if "uid" in limits:  # become an ordinary user, irrevocably
        uid = limits["uid"]
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # bwrap has set this signal too, but the change of user dropped it
    if os.getpid() != 1:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGUSR1, kill_everything)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    control = socket.socket(fileno=os.dup(0))
    for descriptor in range(3):
        os.dup2(null, descriptor)
    serve(control, limits)
    kill_everything()
    reap()


if __name__ == "__main__":
    main()

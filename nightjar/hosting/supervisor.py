"""The local services, a Prefect server and a worker for the deployments: starts, watches and ends them.

The process that supervises them holds a lock in Nightjar's home, which the operating system frees when it dies; its
process id stands in the lock file, so that ``stop`` can end it and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from nightjar.errors import ServiceError
from nightjar.hosting.server import SETTINGS, configured_prefect_api, home, prefect_answers, write_down

_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.2
_WATCH_SECONDS = 1.0


def supervise(port: int, announce: Callable[[str], None], notify: Callable[[str], None]) -> None:
    """Starts the services and watches them until Ctrl-C or SIGTERM, which ends them.

    Args:
        port: of the Prefect server, on loopback.
        announce: is told once that all is up, where, and what to do next.
        notify: is told what else a person should know.

    Raises:
        ServiceError: they run already, do not start, or one of them ended by itself.
    """
    children: list[subprocess.Popen[bytes]] = []
    with _lock():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            text = _start_all(port, children, notify)
            write_down(os.environ["PREFECT_API_URL"])
            _ready_file().write_text(text, encoding="utf-8")
            announce(text)
            _watch(children)
        except KeyboardInterrupt:
            notify("Stopping.")
        finally:
            write_down(None)
            for child in reversed(children):
                _end(child)


def supervise_in_background(port: int) -> str:
    """Starts a process that supervises the services, and returns what it announces when they are up.

    Raises:
        ServiceError: they run already, or do not start.
    """
    if (pid := _supervisor()) is not None:
        raise _already_running(pid)
    log, ready = home() / "up.log", _ready_file()
    ready.unlink(missing_ok=True)
    process = _spawn(log, "nightjar", "up", "--port", str(port))
    _wait(lambda: ready.exists() or process.poll() is not None, _START_SECONDS, f"No start; see {log}")
    if not ready.exists():
        raise ServiceError(f"The services did not start: {_last_line(log)}. The log is {log}")
    return ready.read_text(encoding="utf-8")


def stop() -> bool:
    """Ends the process that supervises, and with it the services; False where nothing runs.

    Raises:
        ServiceError: it does not end.
    """
    pid = _supervisor()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    _wait(lambda: _supervisor() is None and not _is_alive(pid), _STOP_SECONDS, f"Process {pid} does not end")
    return True


def _start_all(port: int, children: list[subprocess.Popen[bytes]], notify: Callable[[str], None]) -> str:
    api_url = f"http://127.0.0.1:{port}/api"
    is_configured = configured_prefect_api() == api_url
    os.environ.update({"PREFECT_API_URL": api_url, "PREFECT_SERVER_UI_API_URL": api_url, **SETTINGS})
    if prefect_answers(api_url):
        if not is_configured:
            raise ServiceError(
                f"A Prefect server that 'nightjar up' did not start answers at {api_url}. Choose another port with "
                f"--port, or add a worker to that server: PREFECT_API_URL={api_url} nightjar up"
            )
        notify(f"A Prefect server answers at {api_url} already: using it.")
    else:
        server = ("server", "start", "--host", "127.0.0.1", "--port", str(port))
        children.append(_spawn(home() / "server.log", "prefect", *server))
    from nightjar.hosting.deployments import WORK_POOL, register  # takes 3 s, in which the server starts

    if children:
        _wait_for_server(children[0], api_url)
    names = asyncio.run(register(str(Path.cwd())))
    worker = ("worker", "start", "--pool", WORK_POOL.name, "--type", WORK_POOL.type)
    children.append(_spawn(home() / "worker.log", "prefect", *worker))
    return (
        f"Prefect is up: {api_url.removesuffix('/api')}\n"
        f"Deployments:   {', '.join(names)}\n"
        f"Logs:          {home()}\n"
        "Next:          nightjar eval run ENV -m MODEL   (appears in the UI)\n"
        "Stop with:     nightjar down"
    )


def _wait_for_server(server: subprocess.Popen[bytes], api_url: str) -> None:
    log = home() / "server.log"
    _wait(
        lambda: prefect_answers(api_url) or server.poll() is not None,
        _START_SECONDS,
        f"Prefect's server does not answer at {api_url}; see {log}",
    )
    if server.poll() is not None:
        raise ServiceError(f"Prefect's server did not start: {_last_line(log)}. The log is {log}")


def _watch(children: list[subprocess.Popen[bytes]]) -> None:
    while all(child.poll() is None for child in children):
        time.sleep(_WATCH_SECONDS)
    raise ServiceError(f"A service ended by itself. The logs are in {home()}")


def _spawn(log: Path, *module: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", *module],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that Ctrl-C reaches the supervisor alone, which ends the others in order
        )


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_STOP_SECONDS / 2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@contextmanager
def _lock() -> Iterator[None]:
    """Makes this process the one that supervises."""
    lock = FileLock(_lock_file(), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise _already_running(_supervisor()) from None
    _lock_file().write_text(str(os.getpid()), encoding="utf-8")
    try:
        yield
    finally:
        _ready_file().unlink(missing_ok=True)
        _lock_file().write_text("", encoding="utf-8")
        lock.release()


def _supervisor() -> int | None:
    """Returns the process that holds the lock; None where nobody does."""
    try:
        with FileLock(_lock_file(), timeout=0):
            return None
    except Timeout:
        text = _lock_file().read_text(encoding="utf-8")
        return int(text) if text else None


def _already_running(pid: int | None) -> ServiceError:
    return ServiceError(f"Already running, as process {pid}. Stop it with: nightjar down")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _lock_file() -> Path:
    return home() / "up.lock"


def _ready_file() -> Path:
    """Holds, while the services are up, what was announced."""
    return home() / "up.ready"


def _wait(is_done: Callable[[], bool], seconds: float, complaint: str) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise ServiceError(f"{complaint} within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"

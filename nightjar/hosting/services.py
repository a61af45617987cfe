"""``nightjar up`` and ``nightjar down``: the local Prefect server, a worker, and the deployments.

The process that supervises them holds a lock in Nightjar's home, which the operating system frees when it
dies; its process id stands in the lock file, so that ``down`` can end it and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from nightjar.errors import ServiceError

_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.2
_POOL = "nightjar"


def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background.")] = False,
    port: Annotated[int, typer.Option("--port", help="Port of the Prefect server.")] = 4200,
) -> None:
    """Start the local Prefect server, a worker and the deployments.

    Flow runs write to ./outputs of the folder where this command was typed, and see its environment variables:
    export the API keys first.
    """
    if detach:
        _start_in_background(port)
    else:
        with _supervisor_lock():
            _supervise(port)


def down() -> None:
    """Stop what 'nightjar up' started."""
    pid = _supervisor_pid()
    if pid is None:
        typer.echo("Nothing is running.")
        return
    os.kill(pid, signal.SIGTERM)
    _wait(lambda: _supervisor_pid() is None and not _is_alive(pid), _STOP_SECONDS, f"Process {pid} does not end")
    typer.echo("Stopped.")


def _home() -> Path:
    home = Path(os.environ.get("NIGHTJAR_HOME", "~/.nightjar")).expanduser()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"Cannot make {str(home)!r}: {error.strerror}. Set NIGHTJAR_HOME.") from error
    return home


@contextmanager
def _supervisor_lock() -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(_home() / "up.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ServiceError(f"Already running, as process {_supervisor_pid()}. Stop it with: nightjar down") from None
    path = Path(lock.lock_file)
    path.write_text(str(os.getpid()), encoding="utf-8")
    try:
        yield
    finally:
        (_home() / "up.ready").unlink(missing_ok=True)
        path.write_text("", encoding="utf-8")
        lock.release()


def _supervisor_pid() -> int | None:
    """Returns the process that holds the lock; None where nobody does."""
    from filelock import FileLock, Timeout

    lock = FileLock(_home() / "up.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        text = (_home() / "up.lock").read_text(encoding="utf-8")
        return int(text) if text else None
    lock.release()
    return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _start_in_background(port: int) -> None:
    if (pid := _supervisor_pid()) is not None:
        raise ServiceError(f"Already running, as process {pid}. Stop it with: nightjar down")
    log = _home() / "up.log"
    ready = _home() / "up.ready"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "nightjar", "up", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    _wait(lambda: ready.exists() or process.poll() is not None, _START_SECONDS, f"No start; see {log}")
    if not ready.exists():
        raise ServiceError(f"The services did not start: {_last_line(log)}. The log is {log}")
    typer.echo(ready.read_text(encoding="utf-8"))


def _supervise(port: int) -> None:
    from nightjar.hosting.prefect_api import prefect_answers
    from nightjar.hosting.prefect_mode import SETTINGS

    api_url = f"http://127.0.0.1:{port}/api"
    os.environ.update({"PREFECT_API_URL": api_url, "PREFECT_SERVER_UI_API_URL": api_url, **SETTINGS})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    children: list[subprocess.Popen[bytes]] = []
    try:
        if prefect_answers(api_url):
            typer.echo(f"A Prefect server answers at {api_url} already: using it.", err=True)
        else:
            children.append(_start("server", "server", "start", "--host", "127.0.0.1", "--port", str(port)))
            _wait_for_server(children[0], api_url)
        names = _register()
        children.append(_start("worker", "worker", "start", "--pool", _POOL, "--type", "process"))
        text = _welcome(api_url, names)
        (_home() / "up.ready").write_text(text, encoding="utf-8")
        typer.echo(text)
        _watch(children)
    except KeyboardInterrupt:
        typer.echo("Stopping.", err=True)
    finally:
        for child in reversed(children):
            _stop(child)


def _start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (_home() / f"{name}.log").open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "prefect", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that Ctrl-C reaches this process alone, which ends them in order
        )


def _wait_for_server(server: subprocess.Popen[bytes], api_url: str) -> None:
    from nightjar.hosting.prefect_api import prefect_answers

    log = _home() / "server.log"
    _wait(
        lambda: prefect_answers(api_url) or server.poll() is not None,
        _START_SECONDS,
        f"Prefect's server does not answer at {api_url}; see {log}",
    )
    if server.poll() is not None:
        raise ServiceError(f"Prefect's server did not start: {_last_line(log)}. The log is {log}")


def _register() -> list[str]:
    import asyncio

    from nightjar.hosting.deployments import register

    return asyncio.run(register(str(Path.cwd())))


def _welcome(api_url: str, names: list[str]) -> str:
    return (
        f"Prefect is up: {api_url.removesuffix('/api')}\n"
        f"Deployments:   {', '.join(names)}\n"
        f"Logs:          {_home()}\n"
        "Next:          nightjar eval run ENV -m MODEL   (appears in the UI)\n"
        "Stop with:     nightjar down"
    )


def _watch(children: list[subprocess.Popen[bytes]]) -> None:
    while all(child.poll() is None for child in children):
        time.sleep(1.0)
    raise ServiceError(f"A service ended by itself. The logs are in {_home()}")


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(_STOP_SECONDS / 2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _wait(is_done: Callable[[], bool], seconds: float, complaint: str) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            raise ServiceError(f"{complaint} within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"

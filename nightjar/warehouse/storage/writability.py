"""Finds out whether a warehouse can be written, before a run is paid for.

Nothing is left behind where it can: what is tried is removed again, and readers do not see it meanwhile.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from nightjar.errors import WarehouseError
from nightjar.warehouse.storage.scratch import scratch_name

PATIENCE_SECONDS = 30.0
"""How long a place elsewhere may take to answer; the client of S3 tries for 15 seconds."""

ADVICE = "Name another with --warehouse or NIGHTJAR_WAREHOUSE."

Answer = TypeVar("Answer")


def check_place(path: Path, warehouse: str) -> None:
    """Finds out whether a folder can be written, or made where it is missing.

    Args:
        path: the folder.
        warehouse: what messages call the warehouse.

    Raises:
        WarehouseError: it cannot.
    """
    nearest = path
    try:
        nearest = _nearest(path)
        _try_to_write(nearest / scratch_name())
    except OSError as error:
        place = "" if str(nearest) == warehouse else f" ({nearest})"
        raise WarehouseError(f"Cannot write the warehouse {warehouse}: {error.strerror}{place}. {ADVICE}") from error


def _try_to_write(scratch: Path) -> None:
    try:
        scratch.mkdir()
        (scratch / "probe").write_bytes(b"x")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def ask_patiently(ask: Callable[[], Answer], warehouse: str) -> Answer:
    """Calls a function that asks a place elsewhere, and waits for its answer for half a minute.

    Raises:
        WarehouseError: it took longer.
    """
    try:
        return in_time(ask, PATIENCE_SECONDS)
    except TimeoutError:
        raise WarehouseError(
            f"Cannot write the warehouse {warehouse}: no answer within {PATIENCE_SECONDS:.0f} s. {ADVICE}"
        ) from None


def in_time(ask: Callable[[], Answer], seconds: float) -> Answer:
    """Calls a function in a thread, which is left behind where it takes too long."""
    future: Future[Answer] = Future()

    def answer() -> None:
        try:
            future.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    threading.Thread(target=answer, name="nightjar-writability", daemon=True).start()
    return future.result(seconds)


def _nearest(path: Path) -> Path:
    """Returns a path, or the nearest above it that is there."""
    for place in (path, *path.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            place.lstat()
            return place
    return path

"""Finds out whether a warehouse can be written, before a run is paid for.

Nothing is left behind where it can: what is tried is removed again, and readers do not see it meanwhile.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nightjar.errors import WarehouseError
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.scratch import scratch_name
from nightjar.warehouse.storage.store import Store

if TYPE_CHECKING:
    from nightjar.warehouse.storage.object_store import ObjectStore

PATIENCE_SECONDS = 30.0
"""How long a place elsewhere may take to answer; the client of S3 tries for 15 seconds."""

_CATALOG_SECONDS = 10.0
"""How long a remote catalog is read: a large one may take longer, and is no reason not to start."""

_ADVICE = "Name another with --warehouse or NIGHTJAR_WAREHOUSE."

Answer = TypeVar("Answer")


def check_store(store: Store) -> None:
    """Finds out whether segments can be written, and whether those that are there can be read.

    Raises:
        WarehouseError: no file can be made there, a newer Nightjar wrote there, or a segment is damaged.
    """
    if isinstance(store, Folder):
        check_place(store.segments_path, str(store))
        store.catalog()
        return
    from nightjar.warehouse.storage.object_store import ObjectStore

    if isinstance(store, ObjectStore):
        _check_remote(store)


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
        raise WarehouseError(f"Cannot write the warehouse {warehouse}: {error.strerror}{place}. {_ADVICE}") from error


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
        return _in_time(ask, PATIENCE_SECONDS)
    except TimeoutError:
        raise WarehouseError(
            f"Cannot write the warehouse {warehouse}: no answer within {PATIENCE_SECONDS:.0f} s. {_ADVICE}"
        ) from None


def _in_time(ask: Callable[[], Answer], seconds: float) -> Answer:
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


def _check_remote(store: ObjectStore) -> None:
    from nightjar.warehouse.storage.object_store import why

    try:
        ask_patiently(lambda: _write_and_remove(store.url), str(store))
    except WarehouseError:
        raise
    except Exception as error:  # noqa: BLE001 - every library has its own
        reason = why(error, store.url).rstrip(".")
        raise WarehouseError(f"Cannot write the warehouse {store}: {reason}. {_ADVICE}") from None
    with suppress(TimeoutError):
        _in_time(store.catalog, _CATALOG_SECONDS)


def _write_and_remove(url: str) -> None:
    """Writes an object beside the segments; one that cannot be removed goes with the uploads that never ended."""
    from nightjar.warehouse.storage.object_store import open_filesystem

    filesystem, root = open_filesystem(url)
    folder = f"{root}/segments/probe-{uuid.uuid4().hex}"
    has_folders = not filesystem.async_impl
    if has_folders:
        filesystem.makedirs(folder, exist_ok=True)
    filesystem.pipe_file(f"{folder}/probe", b"x")
    with suppress(Exception):
        filesystem.rm_file(f"{folder}/probe")
        if has_folders:
            filesystem.rmdir(folder)

"""Where an export goes: written beside, and put in its place when it is complete."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nightjar.errors import WarehouseError

MANIFEST = "export.json"
"""The file of an export in a folder that says what it is."""


def check_target(target: Path, warehouse: Path | None, *, is_folder: bool, force: bool) -> None:
    """Refuses a place that must not be written.

    Raises:
        WarehouseError: it is inside of the warehouse, there already, or nothing that an export may replace.
    """
    if warehouse is not None and target.absolute().is_relative_to(warehouse.absolute()):
        raise WarehouseError(f"Cannot export to {str(target)!r}: that is inside of the warehouse.")
    if not os.path.lexists(target) or (is_folder and _is_empty(target)):
        return
    if not force:
        raise WarehouseError(f"{str(target)!r} is there already. Give another name, or --force to replace it.")
    if is_folder and not (target / MANIFEST).is_file():
        raise WarehouseError(f"{str(target)!r} is no export ({MANIFEST} is missing): not even --force replaces it.")
    if not is_folder and not target.is_file():
        raise WarehouseError(f"{str(target)!r} is no file: not even --force replaces it.")


@contextmanager
def written_beside(target: Path) -> Iterator[Path]:
    """Gives a name to write to, and moves what is there to the target when the body has ended well.

    Raises:
        WarehouseError: it cannot be moved.
    """
    mark = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    beside, aside = (target.parent / f".{target.name}.{mark}.{end}" for end in ("part", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        if target.is_dir():
            target.rename(aside)
        beside.rename(target)
    except OSError as error:
        raise WarehouseError(f"Cannot write {str(target)!r}: {error.strerror}") from error
    finally:
        for path in (beside, aside):
            _remove(path)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
        Path(f"{path}.wal").unlink(missing_ok=True)

"""Finds the file of a segment that an error comes from, so that the message can name it and say what to do.

What DuckDB says of a damaged file depends on the byte: often it names no file, and now and then it says nothing and
answers wrongly. So the files are compared with what ``segment.json`` says of them: all of them where Nightjar's own
statement failed. A user can write a statement that fails as if by damage, and no more is read for that than the one
file that the message names; else it says how to compare the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import UNSAID, reason
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.segments import KINDS, Segment, digest_of
from nightjar.warehouse.storage.store import Store

RaisedByDuckDB: TypeAlias = duckdb.Error | UnicodeDecodeError
"""Its errors; the latter where the message of one, which may quote damaged data, is itself no text."""

_ANY = (duckdb.IOException, duckdb.InvalidInputException, duckdb.InternalException, duckdb.FatalException)
"""Classes of errors that damage can bring to a user's statement, beside those that have no class of their own."""

_OF_THE_DATA = re.compile(r"(?i)parquet|stats size|invalid unicode|converted type|two children|length to be set")
"""What messages about data say, and those about the statement of a user of these classes do not."""

_OF_THE_DISK = re.compile(r"(?i)could not write|no space|quota")

_OF_ABSENCE = re.compile(r"No files found|No such file")

_OTHER_LENGTH = re.compile(r"has [\d,]+ bytes instead of [\d,]+")

_FEW_RUNS = 5


@dataclass(frozen=True)
class Fault:
    """What is wrong with a file of a segment.

    Attributes:
        segment_id: the segment.
        kind: the file, without ``.parquet``.
        what: a predicate for messages.
        is_hidden: whether it shows only when all of the file is read.
        is_damage: False where the file cannot be looked at, for instance because a right is missing.
    """

    segment_id: str
    kind: str
    what: str
    is_hidden: bool = False
    is_damage: bool = True


@contextmanager
def damage_named(store: Store, *, is_users: bool = False) -> Iterator[None]:
    """Raises an error that comes from a damaged file as one that names its segment and runs, and says what to do.

    Args:
        store: the warehouse.
        is_users: whether the statement is a user's, so that most errors are no wonder, and few files are read.
    """
    try:
        yield
    except (WarehouseError, duckdb.Error, UnicodeDecodeError) as error:
        message = _message(store, error, is_users=is_users)
        if message is None:
            raise
        cause = error.__cause__ if isinstance(error, WarehouseError) else error
        raise WarehouseError(message) from cause


def refuse_damaged(store: Store, segments: Iterable[Segment]) -> None:
    """Makes sure that what is going to be copied is what was written: a copy would pass for sound.

    Raises:
        WarehouseError: a file of a segment in a folder is damaged.
    """
    if not isinstance(store, Folder):
        return
    for segment in segments:
        for kind in KINDS:
            fault = length_fault(store, segment, kind) or digest_fault(store, segment, kind)
            if fault is not None:
                raise WarehouseError(_described(store, segment, fault))


def length_fault(folder: Folder, segment: Segment, kind: str) -> Fault | None:
    """Returns what the length of a file tells."""
    try:
        with Path(folder.file(segment.segment_id, kind)).open("rb") as file:
            found = file.seek(0, 2)
    except FileNotFoundError:
        return Fault(segment.segment_id, kind, "is missing")
    except OSError as error:
        return Fault(segment.segment_id, kind, f"cannot be opened: {error.strerror}", is_damage=False)
    expected = segment.sizes[kind]
    what = f"has {found:,} bytes instead of {expected:,}"
    return None if found == expected else Fault(segment.segment_id, kind, what)


def digest_fault(folder: Folder, segment: Segment, kind: str) -> Fault | None:
    """Returns whether a file holds something else than what was written; None too where that is not known."""
    expected = segment.digests.get(kind)
    if expected is None:
        return None
    try:
        found = digest_of(Path(folder.file(segment.segment_id, kind)))
    except FileNotFoundError:
        return Fault(segment.segment_id, kind, "is missing")
    except OSError as error:
        return Fault(segment.segment_id, kind, f"cannot be read: {error.strerror}", is_damage=False)
    what = f"is not as it was written: SHA-256 {found[:12]}… instead of {expected[:12]}…"
    return None if found == expected else Fault(segment.segment_id, kind, what, is_hidden=True)


def listed(run_ids: Iterable[str]) -> str:
    """Names runs in a message.

    Example:
        >>> listed(["a"]), listed("abcdefg")
        ("run 'a'", "runs 'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    names = sorted(run_ids)
    shown = ", ".join(map(repr, names[:_FEW_RUNS]))
    more = f" and {len(names) - _FEW_RUNS:,} more" if len(names) > _FEW_RUNS else ""
    return f"run{'' if len(names) == 1 else 's'} {shown}{more}" if names else "no run"


def _message(store: Store, error: WarehouseError | RaisedByDuckDB, *, is_users: bool) -> str | None:
    cause = error.__cause__ if isinstance(error, WarehouseError) else error
    if not isinstance(cause, RaisedByDuckDB) or (is_users and not _may_be_damage(cause)):
        return None
    with suppress(WarehouseError):
        catalog = store.catalog()
        segments = {name: segment for name, segment in catalog.segments.items() if name not in catalog.retired}
        fault = _find(store, segments, cause, is_users=is_users)
        if fault is not None:
            return _described(store, segments[fault.segment_id], fault)
    return _advised(store, error, cause) if is_users else None


def _advised(store: Store, error: WarehouseError | RaisedByDuckDB, cause: RaisedByDuckDB) -> str:
    """What a user's statement failed of, and what to do where that may be damage that no length shows."""
    said = str(error) if isinstance(error, WarehouseError) else f"The query failed: {reason(error)}"
    if not isinstance(store, Folder) or not _is_of_the_data(cause, is_users=True):
        return said
    return f"{said.removesuffix('.')}. That may be damage. Run: {store.command('doctor --deep')}"


def _described(store: Store, segment: Segment, fault: Fault) -> str:
    state = "is damaged" if fault.is_damage else "cannot be read"
    return (
        f"Segment {segment.segment_id!r} ({listed(segment.versions)}) {state}: "
        f"{fault.kind}.parquet {fault.what}. {store.advice(segment.segment_id, is_hidden=fault.is_hidden)}"
    )


def _may_be_damage(error: RaisedByDuckDB) -> bool:
    return isinstance(error, (*_ANY, UnicodeDecodeError)) or type(error) is duckdb.Error


def _find(store: Store, segments: dict[str, Segment], error: RaisedByDuckDB, *, is_users: bool) -> Fault | None:
    named = _named(store, segments, str(error))
    if not isinstance(store, Folder):
        return _remote_fault(named, error)
    files = [(segment, kind) for segment in segments.values() for kind in KINDS]
    for file in files:
        fault = length_fault(store, *file)
        if fault is not None and fault.is_damage:
            return fault
    suspects = named if is_users or not _is_of_the_data(error) else [*named, *files]
    faults = (digest_fault(store, *file) for file in suspects)
    return next((fault for fault in faults if fault is not None and fault.is_damage), None)


def _is_of_the_data(error: RaisedByDuckDB, *, is_users: bool = False) -> bool:
    """Says whether an error may come of what files hold, when all are there with their lengths."""
    if isinstance(error, duckdb.OutOfMemoryException | duckdb.InterruptException) or _OF_THE_DISK.search(str(error)):
        return False
    if is_users and isinstance(error, duckdb.IOException):
        return _OF_ABSENCE.search(str(error)) is None
    may_be_wrong_use = is_users and isinstance(error, duckdb.InvalidInputException) and reason(error) != UNSAID
    return not may_be_wrong_use or _OF_THE_DATA.search(str(error)) is not None


def _named(store: Store, segments: dict[str, Segment], message: str) -> list[tuple[Segment, str]]:
    """The file that a message names."""
    path = re.compile(rf"{re.escape(store.readable())}([^/]+)/({'|'.join(KINDS)})\.parquet")
    return [(segments[name], kind) for name, kind in path.findall(message)[:1] if name in segments]


def _remote_fault(named: list[tuple[Segment, str]], error: RaisedByDuckDB) -> Fault | None:
    """What DuckDB says of a file that it has read; errors of the network say nothing about files."""
    text = str(error)
    length = _OTHER_LENGTH.search(text)
    is_missing = "\nFileNotFoundError: " in text
    is_of_the_network = isinstance(error, duckdb.IOException) or "Traceback" in text
    if not named or (is_of_the_network and not is_missing and not length):
        return None
    [(segment, kind)] = named
    what = length[0] if length else "is missing" if is_missing else "cannot be read"
    return Fault(segment.segment_id, kind, what)

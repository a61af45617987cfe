"""Finds the file of a segment that an error comes from, so that the message can name it and say what to do.

What DuckDB says of a damaged file depends on the byte: often it names no file, and now and then it says nothing and
answers wrongly. So where a statement fails, the files are compared with what ``segment.json`` says of them: all that
is in them where the statement is Nightjar's own. A user can write a statement that fails as if by damage, and no file
is read for that: the message says how to compare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import reason
from nightjar.warehouse.storage.segments import Segment
from nightjar.warehouse.storage.store import Fault, Store

RaisedByDuckDB: TypeAlias = duckdb.Error | UnicodeDecodeError
"""Its errors; the latter where the message of one, which may quote damaged data, is itself no text."""

_OF_ANY_STATEMENT = (
    duckdb.IOException,
    duckdb.InvalidInputException,
    duckdb.InternalException,
    duckdb.FatalException,
    UnicodeDecodeError,
)
"""Classes of errors that damage can bring to a user's statement, beside those that have no class of their own."""

_OF_NO_FILE = (duckdb.OutOfMemoryException, duckdb.InterruptException)
_FEW_RUNS = 5


@contextmanager
def damage_named(store: Store, *, deep: bool = True, is_users: bool = False) -> Iterator[None]:
    """Raises an error that comes from a damaged file as one that names its segment and runs, and says what to do.

    Args:
        store: the warehouse.
        deep: whether all of the files is read to find out.
        is_users: whether the statement is a user's, so that most errors are no wonder, and no files are read.
    """
    try:
        yield
    except (WarehouseError, duckdb.Error, UnicodeDecodeError) as error:
        cause = error.__cause__ if isinstance(error, WarehouseError) else error
        if not isinstance(cause, RaisedByDuckDB) or not _may_be_damage(cause, is_users=is_users):
            raise
        message = _found(store, deep=deep and not is_users)
        if message is None and is_users and _is_doubtful(cause) and store.doubt():
            message = f"{str(error).removesuffix('.')}. {store.doubt()}"
        if message is None:
            raise
        raise WarehouseError(message) from cause


def refuse_damaged(store: Store, segments: Iterable[Segment]) -> None:
    """Makes sure that what is going to be copied is what was written: a copy would pass for sound.

    Raises:
        WarehouseError: a file is damaged.
    """
    for segment in segments:
        for fault in store.faults([segment], deep=True):
            raise WarehouseError(_described(store, segment, fault))


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


def _may_be_damage(error: RaisedByDuckDB, *, is_users: bool) -> bool:
    if isinstance(error, _OF_NO_FILE):
        return False
    return not is_users or isinstance(error, _OF_ANY_STATEMENT) or type(error) is duckdb.Error


def _is_doubtful(error: RaisedByDuckDB) -> bool:
    """Says whether a user's statement may have failed by damage: an invalid input is the user's, if it has a reason."""
    return not isinstance(error, duckdb.InvalidInputException) or reason(error).endswith("Error:")


def _found(store: Store, *, deep: bool) -> str | None:
    with suppress(WarehouseError):
        needed = store.catalog().needed
        for is_deep in (False, True) if deep else (False,):
            for fault in store.faults(needed.values(), deep=is_deep):
                if fault.is_damage:
                    return _described(store, needed[fault.segment_id], fault)
    return None


def _described(store: Store, segment: Segment, fault: Fault) -> str:
    state = "is damaged" if fault.is_damage else "cannot be read"
    return (
        f"Segment {segment.segment_id!r} ({listed(segment.versions)}) {state}: "
        f"{fault.file} {fault.what}. {store.advice(segment.segment_id, is_hidden=fault.is_hidden)}"
    )

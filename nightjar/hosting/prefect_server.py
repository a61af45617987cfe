"""Runs Prefect's server reliably on SQLite: ``python -P -m nightjar.hosting.prefect_server prefect server start``.

A plain ``prefect server start`` on SQLite has three faults. Two of them occur when several processes write:

- Some answers take 60 s. A statement that fails leaves its cursor to Python's garbage collector, which runs in any
  thread, mostly in that of the event loop. To free the cursor, the collector needs the lock of the cursor's connection.
  If this connection waits for another connection's transaction, there is a deadlock: the transaction waits for the
  event loop, and the event loop waits for the lock, until SQLite gives up. Here, the thread of a connection closes its
  cursors.
- Many requests fail with 503. A transaction that reads before it writes fails at once if another one is writing. Here,
  the transactions that Prefect begins explicitly wait for each other before they read.
- Removed data, such as a secret in a parameter, remains readable in SQLite's files. Here, it is overwritten with zeros,
  and SQLite's log is emptied regularly.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any

import aiosqlite.core
from prefect.cli import app
from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
from prefect.settings import get_current_settings
from sqlalchemy.engine import make_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncSession

_EMPTY_LOG_SECONDS = 20.0
_begin = AioSqliteConfiguration.begin_transaction
_set_up = AioSqliteConfiguration.setup_sqlite


class OwnThreadCursor(aiosqlite.Cursor):
    """A cursor that its connection's thread closes, even if the cursor was dropped without ``close``."""

    _is_open = True

    async def close(self) -> None:
        await super().close()
        self._is_open = False

    def __del__(self) -> None:
        if self._is_open:
            self._conn._tx.put_nowait((None, self._cursor.close))  # noqa: SLF001 - the only way to its thread


@asynccontextmanager
async def begin_to_write(database: Any, session: AsyncSession, **_: bool) -> AsyncIterator[Any]:
    """Begins a transaction that waits for others before it reads. Sessions within it read as in plain Prefect."""
    async with _begin(database, session, with_for_update=True) as transaction:
        await session.connection()
        token = SQLITE_BEGIN_MODE.set("DEFERRED")
        try:
            yield transaction
        finally:
            SQLITE_BEGIN_MODE.reset(token)


def set_up(database: AioSqliteConfiguration, connection: Any, record: Any) -> None:
    """Prepares a new connection."""
    _set_up(database, connection, record)
    cursor = connection.cursor()
    cursor.execute("PRAGMA secure_delete = ON")  # only some builds of SQLite have this default
    cursor.close()


def empty_log() -> None:
    """Writes SQLite's log into the database and empties the log, again and again. Returns for other databases."""
    url = get_current_settings().server.database.connection_url
    database = make_url(url.get_secret_value()) if url else None
    if database is None or database.get_backend_name() != "sqlite" or not database.database:
        return
    while True:
        time.sleep(_EMPTY_LOG_SECONDS)
        with suppress(sqlite3.Error), closing(sqlite3.connect(database.database, timeout=1)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # waits for readers, 1 s at most


def main() -> None:
    setattr(AioSqliteConfiguration, "begin_transaction", begin_to_write)  # noqa: B010 - typed as a fixed method
    setattr(AioSqliteConfiguration, "setup_sqlite", set_up)  # noqa: B010
    setattr(aiosqlite.core, "Cursor", OwnThreadCursor)  # noqa: B010
    threading.Thread(target=empty_log, daemon=True).start()
    sys.argv = sys.argv[1:]
    app()


if __name__ == "__main__":
    main()

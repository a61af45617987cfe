"""``AnswerCache``: answers of models, kept on disk for runs that ask the same again.

A SQLite file below ``NIGHTJAR_HOME``: any number of processes read and write it, and a process that is killed leaves it
whole. Of a request it holds the hash alone.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from nightjar.errors import ConfigError
from nightjar.home import home
from nightjar.messages import Response
from nightjar.secrecy import hide_bytes

_PATIENCE_SECONDS = 5.0
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key BLOB PRIMARY KEY, model TEXT NOT NULL, answer BLOB NOT NULL, kept_at REAL NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class CacheInfo:
    """What a cache holds.

    Attributes:
        path: the file.
        size_bytes: its size, with what is not merged into it yet.
        answers: model to how many there are.
        oldest, newest: when they were kept first and last; None where there are none.
    """

    path: Path
    size_bytes: int
    answers: Mapping[str, int]
    oldest: datetime | None
    newest: datetime | None


def cache_path() -> Path:
    """Returns where the answers of this user are."""
    return home() / "answers.sqlite"


def request_key(request: Mapping[str, Any]) -> bytes:
    """Identifies a request by all that is in it.

    Example:
        >>> request_key({"model": "a", "prompt": []}) == request_key({"prompt": [], "model": "a"})
        True
    """
    written = orjson.dumps(request, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hashlib.sha256(written).digest()


class AnswerCache:
    """Answers by the keys of their requests; safe to use in several threads.

    Args:
        path: the file; made where it is missing.

    Raises:
        ConfigError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._explained():
            self._connection = sqlite3.connect(path, _PATIENCE_SECONDS, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_TABLE)

    def get(self, key: bytes) -> Response | None:
        """Returns the answer to a request; None where it is not there.

        Raises:
            ConfigError: the file cannot be read.
        """
        with self._lock, self._explained():
            row = self._connection.execute("SELECT answer FROM answers WHERE key = ?", [key]).fetchone()
        return None if row is None else Response.model_validate_json(row[0])

    def put(self, key: bytes, response: Response) -> None:
        """Keeps an answer; what another process has kept meanwhile stays.

        Raises:
            ConfigError: the file cannot be written.
        """
        content = hide_bytes(response.model_dump_json(exclude={"is_cached"}).encode())
        values = (key, response.model, content, time.time())
        with self._lock, self._explained():
            self._connection.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", values)

    def info(self) -> CacheInfo:
        """Returns what there is.

        Raises:
            ConfigError: the file cannot be read.
        """
        with self._lock, self._explained():
            rows = self._connection.execute("SELECT model, count(*) FROM answers GROUP BY model ORDER BY 2 DESC")
            answers = dict(rows.fetchall())
            moments = self._connection.execute("SELECT min(kept_at), max(kept_at) FROM answers").fetchone()
        oldest, newest = (moment and datetime.fromtimestamp(moment, UTC) for moment in moments)
        size_bytes = sum(file.stat().st_size for file in self.path.parent.glob(f"{self.path.name}*"))
        return CacheInfo(self.path, size_bytes, answers, oldest, newest)

    def clear(self) -> int:
        """Removes all answers, and returns how many there were.

        Raises:
            ConfigError: the file cannot be written.
        """
        with self._lock, self._explained():
            count = self._connection.execute("DELETE FROM answers").rowcount
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConfigError(
                f"The cache of answers {str(self.path)!r} cannot be used: {error}. Run without --cache, or remove it"
            ) from error


@contextmanager
def open_cache() -> Iterator[AnswerCache]:
    """Gives the cache of this user, which is closed at the end."""
    with closing(AnswerCache(cache_path())) as cache:
        yield cache

"""Keeps responses of models in a SQLite file in ``NIGHTJAR_HOME`` for all processes. Requests are stored as hashes."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from nightjar.clients.client import AnyClient, ClientAround
from nightjar.core.home import home
from nightjar.core.messages import Messages, Response, Tool, dump_message, dump_messages
from nightjar.core.rollout.state import SamplingArgs
from nightjar.core.secrecy import hide_bytes
from nightjar.errors import ConfigError

_PATIENCE_SECONDS = 5.0
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key BLOB PRIMARY KEY, model TEXT NOT NULL, answer BLOB NOT NULL, kept_at REAL NOT NULL
) WITHOUT ROWID
"""

_REMEMBERED_ROLLOUTS = 65_536


@dataclass(frozen=True)
class CacheInfo:
    """The content of a cache: its size with SQLite's log, and responses by model.

    If the cache is empty, times are None.
    """

    path: Path
    size_bytes: int
    answers: Mapping[str, int]
    oldest: datetime | None
    newest: datetime | None


def cache_path() -> Path:
    return home() / "answers.sqlite"


def request_key(request: Mapping[str, Any]) -> bytes:
    """Returns the hash of a request. The order of the request's fields does not matter."""
    written = orjson.dumps(request, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hashlib.sha256(written).digest()


class AnswerCache:
    """Responses by the keys of their requests, for several threads.

    Raises ``ConfigError`` if the file cannot be used.
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
        with self._lock, self._explained():
            row = self._connection.execute("SELECT answer FROM answers WHERE key = ?", [key]).fetchone()
        return None if row is None else Response.model_validate_json(row[0])

    def put(self, key: bytes, response: Response) -> None:
        content = hide_bytes(response.model_dump_json(exclude={"is_cached"}).encode())
        values = (key, response.model, content, time.time())
        with self._lock, self._explained():
            self._connection.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", values)

    def info(self) -> CacheInfo:
        with self._lock, self._explained():
            rows = self._connection.execute("SELECT model, count(*) FROM answers GROUP BY model ORDER BY 2 DESC")
            answers = dict(rows.fetchall())
            moments = self._connection.execute("SELECT min(kept_at), max(kept_at) FROM answers").fetchone()
        oldest, newest = (moment and datetime.fromtimestamp(moment, UTC) for moment in moments)
        size_bytes = sum(file.stat().st_size for file in self.path.parent.glob(f"{self.path.name}*"))
        return CacheInfo(self.path, size_bytes, answers, oldest, newest)

    def clear(self) -> int:
        with self._lock, self._explained():
            count = self._connection.execute("DELETE FROM answers").rowcount
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    def close(self) -> None:
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
    with closing(AnswerCache(cache_path())) as cache:
        yield cache


class CachingClient(ClientAround):
    """Takes responses from the cache and sets ``is_cached``. Sends requests that are not in the cache.

    Each rollout of a run gets its own responses, and a repeated request of a rollout is a new request. Errors are never
    stored. ``endpoint`` is the base URL, the same for all replicas. If the cache fails, the client warns and sends the
    request.
    """

    def __init__(self, asked: AnyClient, cache: AnswerCache, endpoint: str) -> None:
        super().__init__(asked, asked.config)
        self._cache = cache
        self._endpoint = endpoint
        self._asked_before: OrderedDict[str, Counter[bytes]] = OrderedDict()

    async def get_response(
        self, prompt: Messages, model: str, sampling_args: SamplingArgs, tools: list[Tool] | None = None, **kwargs: Any
    ) -> Response:
        state: Mapping[str, Any] = kwargs.get("state") or {}
        rollout = state.get("input") or {}
        before = self._of_rollout(state.get("trajectory_id"))
        request = request_key(
            {
                "endpoint": self._endpoint,
                "client_type": self.config.client_type if self.config else type(self.inner).__name__,
                "headers": self.config.extra_headers if self.config else {},
                "model": model,
                "prompt": dump_messages(prompt),
                "sampling_args": {name: value for name, value in sampling_args.items() if value is not None},
                "tools": [dump_message(tool) for tool in tools or ()],
                "further": {name: value for name, value in kwargs.items() if name != "state"},
                "rollout": [rollout.get("example_id"), rollout.get("rollout_index")],
            }
        )
        key = request_key({"request": request.hex(), "time": before[request]})
        response = self._get(key)
        if response is None:
            response = await self.inner.get_response(prompt, model, sampling_args, tools, **kwargs)
            self._put(key, response)
        before[request] += 1
        return response

    def _of_rollout(self, trajectory_id: str | None) -> Counter[bytes]:
        if trajectory_id is None:
            return Counter()
        counts = self._asked_before.setdefault(trajectory_id, Counter())
        self._asked_before.move_to_end(trajectory_id)
        if len(self._asked_before) > _REMEMBERED_ROLLOUTS:
            self._asked_before.popitem(last=False)
        return counts

    def _get(self, key: bytes) -> Response | None:
        try:
            response = self._cache.get(key)
        except (ConfigError, ValueError) as broken:
            self.warn_once(str(broken))
            return None
        return response and response.model_copy(update={"is_cached": True})

    def _put(self, key: bytes, response: Response) -> None:
        try:
            self._cache.put(key, response)
        except (ConfigError, ValueError) as broken:
            self.warn_once(str(broken))

    async def close(self) -> None:
        await super().close()
        self._cache.close()

"""``ObjectStore``: the segments of a warehouse in an object store, or in any other place that fsspec reaches.

The layout is that of a folder: ``segments/{segment_id}/{kind}.parquet`` and, uploaded last, ``segment.json``. What
makes it safe without a lock, for any number of machines:

- No object is ever written twice: the folder of a segment has a name of its own, also where two processes publish
  the same content. The catalog counts it once.
- A segment exists iff its ``segment.json`` does; uploads that ended too early are removed a day later.
- Two processes may pack at the same time. Both packs hold the same versions of the same runs, so the catalog counts
  one of them, and each pack holds all examples of its rollouts, so that removing the other loses nothing.
- What was packed stays for an hour. So a process that finds, after it has packed, that another one has pruned one of
  the runs meanwhile can remove its pack again; and who prunes looks afterwards whether a pack has brought a run back.
  Only where the packer is killed between these two steps may a pruned run be there again.

The client of the store repeats requests that fail: with S3 for some 15 seconds, or as ``AWS_MAX_ATTEMPTS`` says.
"""

from __future__ import annotations

import os
import shlex
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.location import shown
from nightjar.warehouse.storage.prices import FILE_NAME as PRICES_NAME
from nightjar.warehouse.storage.prices import Price, dump_prices, load_prices
from nightjar.warehouse.storage.remote_files import RemoteFiles
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment

LEFTOVER_AFTER = timedelta(days=1)
"""How old the newest object of an upload is when nobody can be working on it any more."""

_THREADS = 16
"""DuckDB's threads mostly wait for the network."""

_EXTRAS = {"s3": "nightjar-evals[s3]", "s3a": "nightjar-evals[s3]"}

_S3_CONFIG = {"retries": {"mode": "standard", "max_attempts": 6}}
_S3_RETRY_VARIABLES = ("AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE")


class ObjectStore:
    """A place that fsspec reaches by a URL.

    Attributes:
        url: as it was given; it may hold a password, so messages use ``str()`` of the store.
    """

    is_remote = True

    def __init__(self, url: str) -> None:
        self.url = url
        self._filesystem, self._root = open_filesystem(url)
        self._segments = f"{self._root}/segments"
        self._known: dict[str, Segment] = {}
        self._files = RemoteFiles(self._filesystem, self._segments, str(self))

    def __str__(self) -> str:
        """Its URL without credentials, for messages."""
        return shown(self.url)

    def exists(self) -> bool:
        """Says whether anything was published here."""
        return bool(self._known) or bool(self.catalog().segments)

    def make(self) -> None:
        """Does nothing: the first segment makes its own folder."""

    def catalog(self) -> Catalog:
        """Returns the segments that are there now: one listing, and the ``segment.json`` of those that are new.

        Raises:
            WarehouseError: a ``segment.json`` is damaged, or the store cannot be read.
        """
        with self._explained("read"):
            names = {name for name, files in self._listing().items() if COMMIT in files}
            self._known = {name: segment for name, segment in self._known.items() if name in names}
            self._known |= self._load(sorted(names - self._known.keys()))
        catalog = Catalog(dict(self._known))
        self._files.catalog = catalog
        return catalog

    def file(self, segment_id: str, kind: str) -> str:
        """Returns where DuckDB finds a file of a segment."""
        return self._files.address(segment_id, kind)

    def advice(self, segment_id: str, *, is_hidden: bool = False) -> str:  # noqa: ARG002 - one for all
        """Says in a sentence what to do about a damaged segment."""
        return (
            f"Move {self}/segments/{segment_id} away, then publish its runs again: "
            f"nightjar warehouse import RUN_DIR --warehouse {shlex.quote(str(self))}"
        )

    def readable(self) -> str:
        """Returns the beginning of all paths that a query may read."""
        return self._files.address()

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes a connection able to read the files, without an extension of DuckDB."""
        connection.register_filesystem(self._files)
        connection.execute(f"SET threads = {_THREADS}")

    def prices(self) -> list[Price]:
        """Returns what models cost.

        Raises:
            WarehouseError: the list is damaged, or the store cannot be read.
        """
        with self._explained("read"):
            try:
                content = self._filesystem.cat_file(f"{self._root}/{PRICES_NAME}")
            except FileNotFoundError:
                return []
        return load_prices(content)

    def write_prices(self, prices: Sequence[Price]) -> None:
        """Replaces what models cost.

        Raises:
            WarehouseError: the store cannot be written.
        """
        with self._explained("write"):
            self._write(f"{self._root}/{PRICES_NAME}", dump_prices(prices).encode())

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Makes a local folder to write a segment in, and removes it afterwards."""
        with TemporaryDirectory(prefix="nightjar-") as path:
            yield Path(path)

    def commit(self, segment: Segment, scratch: Path) -> bool:
        """Uploads what is in a scratch folder, ``segment.json`` last.

        Returns:
            True: where another process uploads the same at the same time, the catalog counts it once.

        Raises:
            WarehouseError: the store cannot be written; the warehouse is as it was.
        """
        name = segment.segment_id if segment.is_pack else f"{segment.segment_id}.{uuid.uuid4().hex[:8]}"
        folder = f"{self._segments}/{name}"
        files = [f"{kind}.parquet" for kind in KINDS]
        with self._explained("write"):
            self._filesystem.put([str(scratch / file) for file in files], [f"{folder}/{file}" for file in files])
            self._write(f"{folder}/{COMMIT}", segment.dump())
        self._known[name] = replace(segment, segment_id=name)
        return True

    def remove(self, segment_id: str) -> None:
        """Removes a segment at once, as far as readers are concerned, then its files.

        Raises:
            WarehouseError: the store cannot be written.
        """
        with self._explained("write"):
            self._remove(segment_id, {COMMIT, *(f"{kind}.parquet" for kind in KINDS)})

    def remove_leftovers(self) -> None:
        """Removes uploads that never ended, and packs of which nothing counts.

        Raises:
            WarehouseError: the store cannot be written.
        """
        with self._explained("write"):
            listing = self._listing()
            for name in self._abandoned(listing):
                self._remove(name, listing[name])
        for name in idle_packs(self.catalog(), created_before=datetime.now(UTC) - LEFTOVER_AFTER):
            self.remove(name)

    @contextmanager
    def packing_alone(self, timeout_seconds: float = 0) -> Iterator[bool]:  # noqa: ARG002 - nothing to wait for
        """Yields True: nothing keeps other machines from packing or pruning meanwhile; each looks afterwards."""
        yield True

    def _listing(self) -> dict[str, set[str]]:
        """Name of a segment's folder to the files that are in it."""
        self._filesystem.invalidate_cache()
        found: dict[str, set[str]] = defaultdict(set)
        try:
            paths = self._filesystem.find(self._segments)
        except FileNotFoundError:
            return found
        for path in paths:
            name, _, file = path.removeprefix(f"{self._segments}/").partition("/")
            found[name].add(file)
        return found

    def _load(self, names: Sequence[str]) -> dict[str, Segment]:
        paths = {f"{self._segments}/{name}/{COMMIT}": name for name in names}
        contents = self._filesystem.cat(list(paths), on_error="return") if paths else {}
        loaded = {}
        for path, content in contents.items():
            if isinstance(content, FileNotFoundError):
                continue
            if isinstance(content, Exception):
                raise content
            loaded[paths[path]] = Segment.load(paths[path], content, self.advice(paths[path]))
        return loaded

    def _abandoned(self, listing: dict[str, set[str]]) -> list[str]:
        """Names of folders without a ``segment.json`` into which nothing was uploaded for a long time."""
        before = datetime.now(UTC) - LEFTOVER_AFTER
        return [
            name
            for name, files in listing.items()
            if COMMIT not in files and all(self._modified(f"{self._segments}/{name}/{file}") < before for file in files)
        ]

    def _modified(self, path: str) -> datetime:
        moment: datetime = self._filesystem.modified(path)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def _remove(self, name: str, files: Collection[str]) -> None:
        for file in sorted(files, key=lambda file: file != COMMIT):
            try:
                self._filesystem.rm_file(f"{self._segments}/{name}/{file}")
            except FileNotFoundError:
                continue
        self._known.pop(name, None)

    def _write(self, path: str, content: bytes) -> None:
        """Writes a file that nobody sees half: an object store does so by itself, others by a rename."""
        if self._filesystem.async_impl:
            self._filesystem.pipe_file(path, content)
            return
        beside = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
        self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._filesystem.pipe_file(beside, content)
        self._filesystem.mv(beside, path)

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except WarehouseError:
            raise
        except Exception as error:  # noqa: BLE001 - every library has its own
            raise WarehouseError(f"Cannot {verb} the warehouse {self}: {why(error, self.url)}") from None


def idle_packs(catalog: Catalog, created_before: datetime) -> list[str]:
    """Returns the packs of which no run counts, because another process packed or published the same meanwhile."""
    return [
        name
        for name, segment in catalog.segments.items()
        if segment.is_pack and name not in catalog.live and segment.created_at < created_before
    ]


def open_filesystem(url: str) -> tuple[Any, str]:
    """Returns fsspec's filesystem for a URL, and the path in it.

    Raises:
        WarehouseError: fsspec does not know the protocol, or a package for it is missing.
    """
    import fsspec

    scheme = url.partition("://")[0].rpartition("::")[2]
    try:
        filesystem, root = fsspec.core.url_to_fs(url, **_options(scheme))
    except ImportError as error:
        advice = f"Run: pip install '{_EXTRAS[scheme]}'" if scheme in _EXTRAS else why(error, url)
        raise WarehouseError(f"Cannot open the warehouse {shown(url)}: a package is missing. {advice}") from None
    except Exception as error:  # noqa: BLE001 - every library has its own
        raise WarehouseError(f"Cannot open the warehouse {shown(url)}: {why(error, url)}") from None
    return filesystem, str(root).rstrip("/")


def why(error: Exception, url: str) -> str:
    """Returns what a filesystem says, in one line without the credentials of its URL."""
    text = " ".join(str(error).split()) or type(error).__name__
    return shown(text.replace(url, shown(url)))


def _options(scheme: str) -> dict[str, Any]:
    if scheme not in _EXTRAS or any(variable in os.environ for variable in _S3_RETRY_VARIABLES):
        return {}
    return {"config_kwargs": _S3_CONFIG}

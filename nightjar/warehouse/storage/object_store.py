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
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import fsspec

from nightjar.errors import WarehouseError
from nightjar.scratch import scratch_folder
from nightjar.warehouse.location import shown
from nightjar.warehouse.storage.remote_files import RemoteFiles
from nightjar.warehouse.storage.segments import COMMIT, KINDS, Catalog, Segment
from nightjar.warehouse.storage.store import Fault, Store
from nightjar.warehouse.storage.writability import ADVICE, ask_patiently, in_time

LEFTOVER_AFTER = timedelta(days=1)
"""How old the newest object of an upload is when nobody can be working on it any more."""

_CATALOG_SECONDS = 10.0
"""How long the catalog is read before a run: a large one may take longer, and is no reason not to start."""

_THREADS = 16
"""DuckDB's threads mostly wait for the network."""

_EXTRAS = {"s3": "nightjar-evals[s3]", "s3a": "nightjar-evals[s3]"}

_S3_CONFIG = {"retries": {"mode": "standard", "max_attempts": 6}}
_S3_RETRY_VARIABLES = ("AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE")


class ObjectStore(Store):
    """A place that fsspec reaches by a URL; its methods are told about in ``Store``.

    Attributes:
        url: as it was given; it may hold a password, so messages use ``str()`` of the store.
    """

    is_remote = True
    path = None

    def __init__(self, url: str) -> None:
        self.url = url
        self._filesystem, self._root = open_filesystem(url)
        self._segments = f"{self._root}/segments"
        self.place = str(self)
        self._known: dict[str, Segment] = {}
        self._files = RemoteFiles(self._filesystem, self._segments, str(self))

    def __str__(self) -> str:
        """Its URL without credentials, for messages."""
        return shown(self.url)

    def exists(self) -> bool:
        """Says whether it has a segment."""
        return bool(self._known) or bool(self.catalog().segments)

    def make(self) -> None:
        """Does nothing: the first segment makes its own folder."""

    def try_to_write(self) -> None:
        """Writes an object beside the segments; gives the store half a minute."""
        try:
            ask_patiently(self._write_and_remove, str(self))
        except WarehouseError:
            raise
        except Exception as error:  # noqa: BLE001 - every library has its own
            reason = why(error, self.url).rstrip(".")
            raise WarehouseError(f"Cannot write the warehouse {self}: {reason}. {ADVICE}") from None

    def check_writable(self) -> None:
        """Gives the store half a minute, and its catalog ten seconds."""
        self.try_to_write()
        with suppress(TimeoutError):
            in_time(self.catalog, _CATALOG_SECONDS)

    def catalog(self) -> Catalog:
        """Returns the segments that are there now: one listing, and the ``segment.json`` of those that are new."""
        with self._explained("read"):
            names = {name for name, files in self._listing().items() if COMMIT in files}
            self._known = {name: segment for name, segment in self._known.items() if name in names}
            self._known |= self._load(sorted(names - self._known.keys()))
        catalog = Catalog(dict(self._known))
        self._files.catalog = catalog
        return catalog

    def file(self, segment_id: str, kind: str) -> str:
        """Returns what DuckDB calls a file."""
        return self._files.address(segment_id, kind)

    def faults(
        self,
        segments: Iterable[Segment],
        kinds: Collection[str] = KINDS,
        *,
        deep: bool = False,  # noqa: ARG002 - it would fetch everything
    ) -> Iterator[Fault]:
        """Looks at a listing."""
        with self._explained("read"):
            found = self._listing()
        for segment in segments:
            for kind in kinds:
                length, expected = found[segment.segment_id].get(f"{kind}.parquet"), segment.sizes[kind]
                if length is None:
                    yield Fault.of(segment, kind, "is missing")
                elif length != expected:
                    yield Fault.of(segment, kind, f"has {length:,} bytes instead of {expected:,}")

    def advice(self, segment_id: str, *, is_hidden: bool = False) -> str:  # noqa: ARG002 - one for all
        """Says what to move away."""
        return (
            f"Move {self}/segments/{segment_id} away, then publish its runs again: "
            f"nightjar warehouse import RUN_DIR --warehouse {shlex.quote(str(self))}"
        )

    def readable(self) -> str:
        """Returns what all of these begin with."""
        return self._files.address()

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes a connection able to read the files, without an extension of DuckDB."""
        connection.register_filesystem(self._files)
        connection.execute(f"SET threads = {_THREADS}")

    def read_beside(self, name: str) -> bytes | None:
        """Fetches an object beside the segments."""
        with self._explained("read"):
            try:
                content: bytes = self._filesystem.cat_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return None
        return content

    def write_beside(self, name: str, content: bytes) -> None:
        """Replaces an object beside the segments."""
        with self._explained("write"):
            self._write(f"{self._root}/{name}", content)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Makes a folder for temporary files."""
        with scratch_folder() as path:
            yield path

    def commit(self, segment: Segment, scratch: Path) -> bool:
        """Uploads, ``segment.json`` last; True, because the catalog counts once what others upload at the same time."""
        name = segment.segment_id if segment.is_pack else f"{segment.segment_id}.{uuid.uuid4().hex[:8]}"
        folder = f"{self._segments}/{name}"
        files = [f"{kind}.parquet" for kind in KINDS]
        with self._explained("write"):
            self._filesystem.put([str(scratch / file) for file in files], [f"{folder}/{file}" for file in files])
            self._write(f"{folder}/{COMMIT}", segment.dump())
        self._known[name] = replace(segment, segment_id=name)
        return True

    def remove(self, segment_id: str) -> None:
        """Removes ``segment.json`` first."""
        with self._explained("write"):
            self._remove(segment_id, {COMMIT, *(f"{kind}.parquet" for kind in KINDS)})

    def filesystem(self) -> tuple[Any, str]:
        """Returns its own."""
        return self._filesystem, self._root

    def remove_leftovers(self) -> None:
        """Removes uploads that never ended, and packs of which nothing counts."""
        with self._explained("write"):
            listing = self._listing()
            for name in self._abandoned(listing):
                self._remove(name, listing[name])
        for name in idle_packs(self.catalog(), created_before=datetime.now(UTC) - LEFTOVER_AFTER):
            self.remove(name)

    def _write_and_remove(self) -> None:
        """Writes an object beside the segments; one that cannot be removed goes with the uploads that never ended."""
        folder = f"{self._segments}/probe-{uuid.uuid4().hex}"
        self._write(f"{folder}/probe", b"x")
        with suppress(Exception):
            self._filesystem.rm_file(f"{folder}/probe")
            if not self._filesystem.async_impl:
                self._filesystem.rmdir(folder)

    def _listing(self) -> dict[str, dict[str, int]]:
        """Name of a segment's folder to the files that are in it, and their lengths."""
        self._filesystem.invalidate_cache()
        found: dict[str, dict[str, int]] = defaultdict(dict)
        try:
            paths = self._filesystem.find(self._segments, detail=True)
        except FileNotFoundError:
            return found
        for path, described in paths.items():
            name, _, file = path.removeprefix(f"{self._segments}/").partition("/")
            found[name][file] = described["size"]
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

    def _abandoned(self, listing: dict[str, dict[str, int]]) -> list[str]:
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

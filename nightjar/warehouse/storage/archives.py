"""``Archives``: zip files of run directories that were pushed to a warehouse, stored beside its segments.

``directories/{run_id}.{version}.zip`` is named like the segment of the same publish. The newest archive counts.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from nightjar.warehouse.location import remote_errors
from nightjar.warehouse.storage.segments import segment_id_of
from nightjar.warehouse.storage.store import Store

_FOLDER = "directories"
_ENDING = ".zip"


class Archives:
    """The archives of a warehouse. Methods raise WarehouseError if the storage cannot be read or written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._filesystem, self._root = store.filesystem()
        self._folder = f"{self._root}/{_FOLDER}"

    def newest(self, run_id: str) -> str | None:
        return max(self._versions(run_id), default=None)

    def put(self, run_id: str, version: str, archive: Path) -> None:
        path = self._path(run_id, version)
        with remote_errors("write", self._store, self._store.place):
            if self._filesystem.async_impl:  # an object store: an upload appears when it is complete
                self._filesystem.put_file(str(archive), path)
            else:
                beside = f"{self._root}/.{uuid.uuid4().hex}.tmp"  # packing removes it if this process dies
                self._filesystem.put_file(str(archive), beside)
                self._filesystem.makedirs(self._folder, exist_ok=True)
                self._filesystem.mv(beside, path)
        self._remove(run_id, [each for each in self._versions(run_id) if each < version])

    def fetch(self, run_id: str, version: str, archive: Path) -> None:
        with remote_errors("read", self._store, self._store.place):
            self._filesystem.get_file(self._path(run_id, version), str(archive))

    def remove(self, run_id: str) -> None:
        self._remove(run_id, self._versions(run_id))

    def shown(self, run_id: str, version: str) -> str:
        return f"{self._store}/{_FOLDER}/{segment_id_of(run_id, version)}{_ENDING}"

    def run_ids(self) -> set[str]:
        """Returns the ids of the archived runs. A very long id is returned as a hash."""
        return {unquote(name.partition(".")[0]) for name in self._names()}

    def _versions(self, run_id: str) -> list[str]:
        begin = segment_id_of(run_id, "")
        return [name.removeprefix(begin) for name in self._names() if name.startswith(begin)]

    def _names(self) -> list[str]:
        with remote_errors("read", self._store, self._store.place):
            self._filesystem.invalidate_cache()
            try:
                found = [str(path).rpartition("/")[2] for path in self._filesystem.ls(self._folder, detail=False)]
            except FileNotFoundError:
                return []
        return [name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING)]

    def _remove(self, run_id: str, versions: list[str]) -> None:
        with remote_errors("write", self._store, self._store.place):
            for version in versions:
                with suppress(FileNotFoundError):
                    self._filesystem.rm_file(self._path(run_id, version))

    def _path(self, run_id: str, version: str) -> str:
        return f"{self._folder}/{segment_id_of(run_id, version)}{_ENDING}"

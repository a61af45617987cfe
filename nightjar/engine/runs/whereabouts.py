"""``Whereabouts``: the locations of a run's results, so that they can be published when the run's process is gone."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nightjar.engine.runs.directory import RunDirectory
from nightjar.errors import RunDirectoryError

_FOLDER, _RUN_DIR, _WAREHOUSE = "nightjar/folder", "nightjar/run-dir", "nightjar/warehouse"


@dataclass(frozen=True)
class Whereabouts:
    """The locations of a run's results, stored in labels of its flow run. Relative paths are relative to ``folder``."""

    host: str
    folder: Path
    run_dir: str
    warehouse: str | None

    @classmethod
    def of(cls, run_dir: Path, warehouse: str | None) -> Self:
        return cls(socket.gethostname(), Path.cwd(), str(run_dir), warehouse)

    @classmethod
    def from_labels(cls, labels: Mapping[str, Any]) -> Self | None:
        if _RUN_DIR not in labels:
            return None
        host, _, folder = str(labels[_FOLDER]).partition(":")
        return cls(host, Path(folder), str(labels[_RUN_DIR]), labels.get(_WAREHOUSE))

    def labels(self) -> dict[str, Any]:
        where = {_FOLDER: f"{self.host}:{self.folder}", _RUN_DIR: self.run_dir}
        return where if self.warehouse is None else {**where, _WAREHOUSE: self.warehouse}

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname()

    def is_unfinished_here(self) -> bool:
        metadata = self._metadata() if self.folder == Path.cwd() else None
        return metadata is not None and not _is_complete(metadata)

    def is_complete(self) -> bool:
        """Returns whether the run is here, completed and published."""
        metadata = self._metadata()
        return metadata is not None and _is_complete(metadata)

    def is_unpublished(self) -> bool:
        metadata = self._metadata()
        return metadata is not None and not metadata.get("published_at")

    def _metadata(self) -> dict[str, Any] | None:
        with suppress(RunDirectoryError):
            return RunDirectory(self.folder / self.run_dir).read_metadata() if self.is_here else None
        return None


def _is_complete(metadata: Mapping[str, Any]) -> bool:
    return metadata.get("status") == "completed" and bool(metadata.get("published_at"))

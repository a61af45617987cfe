"""Exports a run to Weights & Biases as an offline run, a folder that ``wandb sync`` uploads later.

Nothing is sent: the client works offline, and its reports of its own errors are switched off. The project has the name
of the environment, and the ID of the run is its ID. A second export replaces the folder of the first.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar.core.extras import require_extra
from nightjar.core.files import file_lock, scratch_folder
from nightjar.core.home import home
from nightjar.core.secrecy import error_text
from nightjar.core.text import one_line
from nightjar.errors import ConfigError
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.exporters.contents import metrics_of, settings_of, table_of, title_of
from nightjar.exporters.reading import ReadRun, read_run

MOST_ROWS = 10_000
"""The rollouts in the table. W&B truncates longer tables."""
_LONGEST_NAME = 128
_VARIABLES = {"WANDB_ERROR_REPORTING": "false", "WANDB_DISABLE_WEAVE": "true"}
_SETTINGS: dict[str, Any] = {
    "mode": "offline",
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}
"""W&B would also store the machine, the packages and the output of this process, which did not make the run."""


@dataclass(frozen=True)
class WandbRun:
    """The folder of an offline run. Its table has the first ``shown`` of ``rollouts``."""

    folder: Path
    shown: int
    rollouts: int


def export_to_wandb(found: StoredRun, destination: Path) -> WandbRun:
    """Writes the run to ``destination/wandb/offline-run-TIME-ID``. Finishes other W&B runs of this process.

    Raises ``ConfigError`` if W&B is not installed or the folder cannot be written.
    """
    run = read_run(found, with_state=False)
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    wandb = require_extra("wandb", "wandb", "The export")
    place = destination / "wandb"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with scratch_folder() as scratch:
            written = _write(wandb, run, scratch)
            with file_lock(home() / "wandb-export.lock"):
                folder = _move(written, place, _name(found.run_id))
    except (OSError, wandb.Error) as error:
        raise ConfigError(f"Cannot write the W&B run in {str(place)!r}: {one_line(error_text(error), 500)}") from error
    return WandbRun(folder, min(len(run.rollouts), MOST_ROWS), len(run.rollouts))


def _write(wandb: Any, run: ReadRun, place: Path) -> Path:
    row = run.row
    table = table_of(run.rollouts[:MOST_ROWS])
    settings = wandb.Settings(**_SETTINGS, root_dir=str(place))
    times = {name: row[name] and row[name].isoformat() for name in ("started_at", "finished_at")}
    told = {
        "project": _name(row["env_id"]),
        "id": _name(row["run_id"]),
        "name": title_of(run),
        "group": row["suite"],
        "tags": [tag[:64] for tag in row["tags"] or [] if tag],
        "config": {**settings_of(run), **times, "commit": row["nightjar_commit"], "env_commit": row["env_commit"]},
    }
    with wandb.init(**told, settings=settings) as written:
        written.log({**metrics_of(run), "samples": wandb.Table(columns=table.columns, data=table.rows)})
        written.summary.update({"status": row["status"], "errors": row["errors"] or {}, **times})
        folder = Path(written.settings.sync_dir)
    wandb.teardown()  # finishing a run does not wait for its file
    shutil.rmtree(folder / "logs", ignore_errors=True)  # they describe this process
    return folder


def _move(folder: Path, place: Path, run_id: str) -> Path:
    """Moves a folder to its place, and then removes the folders of earlier exports of the run."""
    target, beside = place / folder.name, place / f".{run_id}.tmp"
    earlier = [path for path in place.glob("offline-run-*") if path.name.split("-", 3)[3:] == [run_id]]
    shutil.rmtree(beside, ignore_errors=True)  # of an export that was killed
    shutil.copytree(folder, beside)
    if target in earlier:
        shutil.rmtree(target)
    beside.replace(target)
    for path in earlier:
        if path != target:
            shutil.rmtree(path)
    return target


def _name(text: str) -> str:
    r"""Returns a name without the characters that W&B refuses in names of projects and runs."""
    return re.sub(r"[/\\#?%:;,']", "-", text)[:_LONGEST_NAME]

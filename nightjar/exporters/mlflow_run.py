"""Exports a run to MLflow through its client: a folder, a database or a tracking server.

The experiment has the name of the environment. A tag with the run ID identifies the run, so a second export updates the
run of the first. MLflow does not change parameters: if one has changed, its old value stays, and ``config.json`` has
the new value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

from nightjar import __version__
from nightjar.core.extras import require_extra
from nightjar.core.files import file_lock, scratch_folder
from nightjar.core.home import home
from nightjar.core.secrecy import error_text, hide_keys, note_secrets
from nightjar.core.secret_signs import passwords_of
from nightjar.core.text import one_line, shortened
from nightjar.errors import ConfigError
from nightjar.evaluation.stored_runs import StoredRun
from nightjar.exporters.contents import as_json, metrics_of, settings_of, table_of, title_of
from nightjar.exporters.reading import ReadRun, read_run
from nightjar.warehouse.reading.result import value_text

_RUN_ID = "nightjar.run_id"
_SAMPLES, _CONFIG = "samples.json", "config.json"
_TABLES = as_json([{"path": _SAMPLES, "type": "table"}])
"""The value of the tag from which MLflow's page knows the tables of a run, as ``log_table`` sets it."""
_STATUS = {"completed": "FINISHED", "cancelled": "KILLED", "running": "RUNNING"}
_LONGEST_VALUE = 499
"""The limit in characters of a parameter or tag, before "…". MLflow 2 refuses more. ``config.json`` is complete."""
_LONGEST_NAME = 200
_MOST_AT_ONCE = 100
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]|(?:(?<=/)|^)[/.]|/$")
"""Characters that MLflow refuses, and what would make a name another path than the one that is written."""
_DEFAULTS = {
    "MLFLOW_ALLOW_FILE_STORE": "true",  # MLflow 3.17 refuses folders without it
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # its 7 retries take four minutes if there is no server
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


@dataclass(frozen=True)
class MlflowRun:
    """The run in MLflow. ``kept`` are the parameters whose old values MLflow kept."""

    run_id: str
    experiment: str
    tracking_uri: str
    is_new: bool
    rollouts: int
    kept: tuple[str, ...]


def export_to_mlflow(found: StoredRun, destination: str | None = None) -> MlflowRun:
    """Writes the run with all rollouts. ``destination`` is a folder or a tracking URI; None means MLflow's default.

    Raises ``ConfigError`` if MLflow is not installed, cannot be reached or refuses the run.
    """
    run = read_run(found, with_state=False)
    with file_lock(home() / "mlflow-export.lock"):  # two exports at once would create the run twice
        client = _client(destination)
        with _errors_of_mlflow(client.tracking_uri):
            mlflow_run, is_new = _find_or_create(client, run)
    with _errors_of_mlflow(client.tracking_uri):
        kept = _write(client, mlflow_run, run, is_new)
    experiment = run.row["env_id"]
    return MlflowRun(mlflow_run.info.run_id, experiment, client.tracking_uri, is_new, len(run.rollouts), kept)


def _client(destination: str | None) -> Any:
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    mlflow = _import("mlflow")
    asked = destination or os.environ.get("MLFLOW_TRACKING_URI")
    uri = _uri(asked) if asked else None
    with _errors_of_mlflow(uri or "its default place"):
        return mlflow.MlflowClient(tracking_uri=uri)


def _import(module: str) -> Any:
    return require_extra(module, "mlflow", "The export")


def _uri(destination: str) -> str:
    """Returns a URI as it is, and a folder as a ``file:`` URI."""
    note_secrets(*passwords_of(destination))
    is_uri = re.match(r"[a-z][a-z0-9+-]+:", destination) or destination == "databricks"
    return destination if is_uri else Path(destination).expanduser().absolute().as_uri()


def _find_or_create(client: Any, run: ReadRun) -> tuple[Any, bool]:
    experiment = client.get_experiment_by_name(run.row["env_id"])
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(run.row["env_id"])
    run_id = run.row["run_id"]
    quote = '"' if "'" in run_id else "'"
    if found := client.search_runs([experiment_id], f"tags.`{_RUN_ID}` = {quote}{run_id}{quote}", max_results=1):
        return found[0], False
    tags = {_RUN_ID: run_id, "mlflow.source.name": "nightjar"}
    started = _milliseconds(run.row["started_at"])
    return client.create_run(experiment_id, start_time=started, tags=tags, run_name=title_of(run)), True


def _write(client: Any, mlflow_run: Any, run: ReadRun, is_new: bool) -> tuple[str, ...]:
    """Writes everything of a run, its final status last: a run whose export was killed stays in progress."""
    run_id, ended = mlflow_run.info.run_id, _milliseconds(run.row["finished_at"])
    client.update_run(run_id, status="RUNNING")
    params = {name: shortened(text, _LONGEST_VALUE) for name, text in _params(settings_of(run))}
    known = mlflow_run.data.params
    metrics = _named(metrics_of(run))
    changed = {name: value for name, value in metrics.items() if mlflow_run.data.metrics.get(name) != value}
    # Of two values with one time, MLflow shows the greater.
    moment = ended if is_new and ended is not None else round(time() * 1000)
    new = {name: text for name, text in params.items() if name not in known}
    _log(client, run_id, new, changed, moment, _tags(run.row))
    _write_files(client, run_id, run)
    client.set_terminated(run_id, _STATUS.get(run.row["status"], "FAILED"), ended)
    return tuple(name for name, text in params.items() if known.get(name, text) != text)


def _log(
    client: Any, run_id: str, params: Mapping[str, str], metrics: Mapping[str, float], moment: int, tags: dict[str, str]
) -> None:
    entities = _import("mlflow.entities")
    written = [entities.Param(name, text) for name, text in params.items()]
    values = [entities.Metric(name, value, moment, 0) for name, value in metrics.items()]
    for start in range(0, max(len(written), len(values)), _MOST_AT_ONCE):
        end = start + _MOST_AT_ONCE
        client.log_batch(run_id, metrics=values[start:end], params=written[start:end])
    client.log_batch(run_id, tags=[entities.RunTag(name, text) for name, text in tags.items()])


def _write_files(client: Any, run_id: str, run: ReadRun) -> None:
    table = table_of(run.rollouts)
    with scratch_folder() as folder:
        (folder / _CONFIG).write_text(as_json(settings_of(run)))
        (folder / _SAMPLES).write_text(as_json({"columns": table.columns, "data": table.rows}))
        client.log_artifacts(run_id, folder)


def _milliseconds(moment: datetime | None) -> int | None:
    """Returns a moment in milliseconds since 1970."""
    return None if moment is None else round(moment.timestamp() * 1000)


def _params(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yields the parameters that are set. Those of an object begin with its name, such as ``env_args.level``."""
    for name, value in _named(settings).items():
        if isinstance(value, dict):
            yield from _params(value, f"{before}{name}.")
        elif value not in (None, "", []):
            yield f"{before}{name}", value_text(value)


def _tags(row: Mapping[str, Any]) -> dict[str, str]:
    tags = {
        "nightjar.status": row["status"], "nightjar.tags": ", ".join(row["tags"] or []), "nightjar.suite": row["suite"],
        "nightjar.errors": row["errors"], "nightjar.stop_conditions": row["stop_conditions"],
        "nightjar.env_hash": row["env_hash"], "nightjar.scoring_hash": row["scoring_hash"],
        "nightjar.commit": row["nightjar_commit"], "nightjar.version": row["nightjar_version"] or __version__,
        "mlflow.source.git.commit": row["env_commit"], "mlflow.loggedArtifacts": _TABLES,
    }  # fmt: skip
    return {name: shortened(value_text(value), _LONGEST_VALUE) for name, value in tags.items()}


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces characters that MLflow refuses in names. Equal names get a number.

    >>> _named({"metrics/f1@5": 0.5, "metrics/f1%5": 0.6})
    {'metrics/f1_5': 0.5, 'metrics/f1_5_2': 0.6}
    """
    named: dict[str, Any] = {}
    for name, value in values.items():
        allowed = unique = _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME]
        count = 1
        while unique in named:
            count += 1
            unique = f"{allowed}_{count}"
        named[unique] = value
    return named


@contextmanager
def _errors_of_mlflow(uri: str) -> Iterator[None]:
    exceptions = _import("mlflow.exceptions")
    try:
        yield
    except (exceptions.MlflowException, OSError) as error:
        raise ConfigError(
            f"MLflow at {hide_keys(uri)} did not take the run: {one_line(error_text(error), 500)}"
        ) from error

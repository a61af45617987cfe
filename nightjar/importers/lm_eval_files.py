"""Finds results of lm-eval in a folder.

``lm_eval --output_path DIR --log_samples`` writes these files into a folder per model; version 0.4.0 to 0.4.2 wrote
names without a date::

    results_2026-01-31T10-00-00.000000.json                  results.json
    samples_gsm8k_2026-01-31T10-00-00.000000.jsonl           pretrained__EleutherAI__pythia-70m_gsm8k.jsonl
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nightjar.errors import WarehouseError
from nightjar.importers.reading import read_object

_DATE = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?"
_RESULTS = re.compile(rf"results\.json|.+_(?P<date>{_DATE})\.json")
_SAMPLES = re.compile(rf"samples_(?P<task>.+)_(?P<date>{_DATE})\.jsonl")


def results_in(folder: Path) -> list[Path]:
    """Returns the samples of each task, and the results files that have no samples."""
    files = sorted(folder.iterdir())
    results = {path: tasks for path in files if _RESULTS.fullmatch(path.name) and (tasks := _tasks(path)) is not None}
    samples = {path: results_of(path, results) for path in files if task_of(path, results)}
    alone = [path for path in results if path not in samples.values()]
    return sorted([*samples, *alone])


def results_at(path: Path) -> list[Path]:
    """Returns a samples file itself, and for a results file the samples of its tasks; nothing for other files."""
    if _SAMPLES.fullmatch(path.name):
        return [path]
    if path.suffix == ".json" and _tasks(path) is not None:
        found = [one for one in results_in(path.parent) if one == path or results_of(one) == path]
        return found or [path]
    return [path] if path.suffix == ".jsonl" and results_of(path) else []


def results_of(samples: Path, known: dict[Path, list[str]] | None = None) -> Path | None:
    """Returns the results file of a samples file, which may be damaged if its name has a date."""
    if dated := _SAMPLES.fullmatch(samples.name):
        return min(samples.parent.glob(f"*_{dated['date']}.json"), default=None)
    results = _results_files(samples.parent) if known is None else known
    return next(
        (path for path, tasks in results.items() if path.name == "results.json" and _task(samples, tasks)), None
    )


def task_of(samples: Path, known: dict[Path, list[str]] | None = None) -> str | None:
    """Returns the task of a samples file; None for other files."""
    if dated := _SAMPLES.fullmatch(samples.name):
        return dated["task"]
    results = _results_files(samples.parent) if known is None else known
    return next((task for path, tasks in results.items() if path.name == "results.json"
                 if (task := _task(samples, tasks))), None)  # fmt: skip


def _results_files(folder: Path) -> dict[Path, list[str]]:
    files = (path for path in sorted(folder.iterdir()) if _RESULTS.fullmatch(path.name))
    return {path: tasks for path in files if (tasks := _tasks(path)) is not None}


def _tasks(path: Path) -> list[str] | None:
    """Returns the tasks of a results file; None for other files."""
    try:
        content: dict[str, Any] = read_object(path)
    except WarehouseError:
        return None
    configs = content.get("configs")
    is_results = isinstance(content.get("results"), dict) and isinstance(configs, dict) and "versions" in content
    return list(configs) if is_results and isinstance(configs, dict) else None


def _task(samples: Path, tasks: list[str]) -> str | None:
    """Returns the task of a samples file: the longest task name at the end of the file's name without its date."""
    fitting = [one for one in tasks if samples.suffix == ".jsonl" and f"_{samples.stem}".endswith(f"_{one}")]
    return max(fitting, key=len, default=None)

"""``runs``: the runs on this machine and in the warehouse, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args, overload

from nightjar.api.results import ArrowTable, TabularResult, arrow
from nightjar.api.run import Run
from nightjar.core.text import counted, one_line
from nightjar.engine.runs.metadata import Status
from nightjar.errors import ConfigError
from nightjar.evaluation.stored_runs import stored_runs
from nightjar.reports.panels import Panel, PanelTable

_SHOWN = 50
_LONGEST_CELL = 60
_HEADINGS = ("Run", "Started", "Environment", "Model", "Status", "Scored", "Reward", "Cost")
_NUMBERS = frozenset(_HEADINGS[5:])
_FOLDED = frozenset({"Environment", "Model"})
_TEXTS = ("run_id", "env_id", "model", "status", "suite", "name")
_COUNTS = ("num_examples", "rollouts_per_example", "rollouts", "scored", "failed")
_MEANS = ("coverage", "avg_reward", "stderr", "cost")


class Runs(TabularResult, Sequence[Run]):
    """Runs, newest first.

    Example:
        >>> found = runs(env="gsm8k", model="*mini*")  # doctest: +SKIP
        >>> newest, *earlier = found  # doctest: +SKIP
        >>> found.to_df()[["model", "avg_reward"]]  # doctest: +SKIP
    """

    def __init__(self, found: Sequence[Run]) -> None:
        self._found = tuple(found)

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, place: int) -> Run: ...

    @overload
    def __getitem__(self, place: slice) -> Runs: ...

    def __getitem__(self, place: int | slice) -> Run | Runs:
        return Runs(self._found[place]) if isinstance(place, slice) else self._found[place]

    def panel(self) -> Panel:
        """Returns the table that is printed."""
        shown = self._found[:_SHOWN]
        table = PanelTable(
            _HEADINGS,
            [_cells(run) for run in shown],
            numbers=_NUMBERS,
            folded=_FOLDED,
            more=len(self) - len(shown),
        )
        return Panel(counted(len(self), "run"), tables=[table] if shown else [])

    def _arrow(self) -> ArrowTable:
        pa = arrow()
        columns: dict[str, Any] = {
            **{name: pa.array(self._values(name), pa.string()) for name in _TEXTS},
            "started_at": pa.array([_moment(run) for run in self], pa.timestamp("us", "UTC")),
            "tags": pa.array(self._values("tags"), pa.list_(pa.string())),
            **{name: pa.array(self._values(name), pa.int64()) for name in _COUNTS},
            **{name: pa.array(self._values(name), pa.float64()) for name in _MEANS},
        }
        return pa.table(columns)

    def _values(self, name: str) -> list[Any]:
        return [run.stored.cost if name == "cost" else run.metadata.get(name) for run in self]


def runs(
    env: str | None = None,
    model: str | None = None,
    *,
    suite: str | None = None,
    status: str | None = None,
    limit: int | None = 20,
    output_dir: str | Path | None = None,
    warehouse: str | Path | None = None,
) -> Runs:
    """Returns the runs on this machine and in the warehouse, newest first.

    Args:
        env: only runs of this environment; ``*`` is a wildcard here and in the next arguments.
        model: only runs of this model.
        suite: only runs of this suite.
        status: only runs with this status, such as ``completed``.
        limit: the maximum number of runs; None means all runs.
        output_dir: only runs in this folder.
        warehouse: only runs in this warehouse.

    Raises:
        ConfigError: if the status is unknown, or if the limit is negative.
        WarehouseError: if the given warehouse cannot be read.

    Example:
        >>> runs(env="no-such-environment")
        0 runs
    """
    _check(status, limit)
    patterns = {"env_id": env, "model": model, "suite": suite, "status": status}
    asked = {name: pattern for name, pattern in patterns.items() if pattern is not None}
    stored = stored_runs(
        None if output_dir is None else Path(output_dir), None if warehouse is None else str(warehouse)
    )
    found = [Run(one) for one in stored]
    return Runs([run for run in found if all(_matches(run, *one) for one in asked.items())][:limit])


def _check(status: str | None, limit: int | None) -> None:
    known = get_args(Status)
    if status is not None and not any(fnmatchcase(each, status) for each in known):
        raise ConfigError(f"Unknown status {status!r}. Choose one of: {', '.join(known)}")
    if limit is not None and limit < 0:
        raise ConfigError(f"limit must be 0 or more, or None for all runs, found {limit}")


def _matches(run: Run, name: str, pattern: str) -> bool:
    return fnmatchcase(str(run.metadata.get(name) or ""), pattern)


def _moment(run: Run) -> datetime | None:
    started = run.metadata.get("started_at")
    return datetime.fromisoformat(started) if started else None


def _cells(run: Run) -> tuple[str, ...]:
    known, started = run.metadata, _moment(run)
    return (
        run.id,
        f"{started:%m-%d %H:%M}" if started else "–",
        one_line(run.env, _LONGEST_CELL),
        one_line(run.model or "–", _LONGEST_CELL),
        run.status,
        f"{known['scored']:,}/{known['rollouts']:,}" if "scored" in known else "–",
        "–" if known.get("avg_reward") is None else f"{known['avg_reward']:.4f}",
        "–" if run.stored.cost is None else f"{run.stored.cost:.4f}",
    )

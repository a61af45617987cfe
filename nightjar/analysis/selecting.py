"""``selected``: finds the runs that a person names, and gathers them in one warehouse."""

from __future__ import annotations

import difflib
import glob
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from nightjar.core.files import scratch_folder, there_is
from nightjar.core.parts import Part
from nightjar.engine.runs import RunDirectory
from nightjar.engine.runs.directory import run_directories
from nightjar.errors import ConfigError, MissingWarehouseError, RunDirectoryError, WarehouseError
from nightjar.importers import convert, find_results
from nightjar.warehouse import Warehouse

_NAMED = """
WITH of_days AS (
    SELECT model || '@' || env_id || '@' || began::DATE AS name, run_id
    FROM finished_runs
    QUALIFY row_number() OVER (PARTITION BY env_id, model, began::DATE ORDER BY began DESC, run_id) = 1
),
named AS (
    SELECT model || '@' || env_id AS name, run_id FROM leaderboard
    UNION ALL
    FROM of_days
    UNION ALL
    SELECT suite || '@' || night, run_id FROM night_evaluations SEMI JOIN runs USING (run_id)
)
SELECT name, run_id FROM named WHERE name IS NOT NULL ORDER BY name, run_id
"""
_BEGINNING = "SELECT run_id, run_id FROM runs WHERE starts_with(run_id, ?)"
_SHOWN = 5
_Taken = TypeVar("_Taken")

_log = logging.getLogger(__name__)


@contextmanager
def selected(
    asked: Sequence[str | Path], warehouse: Warehouse, *, each: bool = False
) -> Iterator[tuple[Warehouse, list[list[str]]]]:
    """Yields a warehouse that holds all requested runs, and the run ids of each request.

    If all runs are published in ``warehouse``, yields that warehouse. Otherwise yields a temporary warehouse, which is
    deleted after the block.

    Args:
        asked: each request is the beginning of a run's id; a run directory; a file or folder of results, also of other
            programs, or a pattern with ``*``; ``MODEL@ENV``, the model's run on the leaderboard;
            ``MODEL@ENV@2026-11-20``, the newest finished run that started on that day (UTC); or ``SUITE@2026-11-20``,
            the runs of that night. In a folder, the newest completed run (or else the newest run) of each evaluation
            counts; runs of one evaluation have the same environment, model and name.
        each: all results in a folder count. Damaged results are left out if there are others.
    """
    with scratch_folder() as folder:
        chosen = [_chosen(one, warehouse, folder / "converted", each=each) for one in asked]
        if not any(isinstance(run, Path) for runs in chosen for run in runs):
            yield warehouse, [[str(run) for run in runs] for runs in chosen]
            return
        scratch = Warehouse(folder / "warehouse")
        yield scratch, [_whole_ones(_brought, runs, warehouse, scratch, each=each) for runs in chosen]


def check_two_sides(sides: Sequence[str | Path], a: Sequence[str], b: Sequence[str]) -> None:
    """Raises ``ConfigError`` if two sides are the same runs."""
    if not a or set(a) != set(b):
        return
    runs = ", ".join(map(repr, sorted(a)))
    if all(map(there_is, sides)):
        raise ConfigError(f"{' and '.join(repr(str(side)) for side in sides)} hold the same run: {runs}")
    raise ConfigError(f"Both sides are run {runs}. Name two runs: nightjar eval list")


def _whole_ones(take: Callable[..., _Taken], things: Sequence[Any], *arguments: Any, each: bool) -> list[_Taken]:
    """Returns the result of ``take`` for each thing.

    With ``each``, warns about damaged things and leaves them out, unless all things are damaged.
    """
    taken, damage = [], list[Exception]()
    for thing in things:
        try:
            taken.append(take(thing, *arguments))
        except (WarehouseError, RunDirectoryError) as error:
            if not each:
                raise
            damage.append(error)
    for left_out in damage if taken else damage[1:]:
        _log.warning("Left out: %s", left_out)
    if damage and not taken:
        raise damage[0]
    return taken


def _brought(run: str | Path, source: Warehouse, target: Warehouse) -> str:
    if isinstance(run, Path):
        return target.publish(run, tidies=False).run_id
    from nightjar.warehouse.exported_runs import copy_run

    copy_run(source.store(), target.store(), run)
    return run


def _chosen(asked: str | Path, warehouse: Warehouse, converted: Path, *, each: bool) -> Sequence[str | Path]:
    found_paths = [asked] if there_is(asked) else sorted(glob.glob(str(asked), recursive=True))  # noqa: PTH207 - absolute, too
    paths = [Path(path) for path in found_paths]
    if paths:
        found = {results.path: results for path in paths for results in find_results(path)}
        directories = _whole_ones(convert, list(found.values()), converted, each=each)
        return directories if each else _newest(directories)
    if "@" in str(asked):
        return _called(str(asked), warehouse)
    return [_with_id(str(asked), warehouse)]


def _newest(directories: Sequence[Path]) -> list[Path]:
    """Returns the newest completed run, or else the newest run, of each evaluation.

    A single directory stays unchanged.
    """
    if len(directories) == 1:
        return list(directories)
    dated = [(RunDirectory(path).read_metadata(), path) for path in directories]
    whole = [(metadata, path) for metadata, path in dated if not Part.of(path.name)]
    whole.sort(key=lambda one: (one[0].get("status") == "completed", one[0].get("started_at") or ""))
    return list({tuple(one.get(key) for key in ("env_id", "model", "name")): path for one, path in whole}.values())


def _called(asked: str, warehouse: Warehouse) -> list[str]:
    named = _rows(warehouse, _NAMED)
    if runs := [run_id for name, run_id in named if name == asked]:
        return runs
    names = list(dict.fromkeys(name for name, _ in named))
    near = difflib.get_close_matches(asked, names, n=_SHOWN) or names[:_SHOWN]
    there = f"Similar names: {', '.join(near)}" if near else "There is no finished run"
    raise ConfigError(
        f"No finished run in {warehouse.location} has the name {asked!r}. "
        f"Names are MODEL@ENV, MODEL@ENV@DAY and SUITE@DAY. {there}"
    )


def _with_id(asked: str, warehouse: Warehouse) -> str | Path:
    published: dict[str, str | Path] = dict(_rows(warehouse, _BEGINNING, asked))
    if asked in published:
        return asked
    found = {run.run_id: run.path for run in run_directories() if run.run_id.startswith(asked)} | published
    match [asked] if asked in found else _whole(found):
        case [run_id]:
            return found[run_id]
        case []:
            raise ConfigError(
                f"There is no run {asked!r} in {warehouse.location}, and no file or folder of that name. "
                "List them: nightjar eval list"
            )
        case several:
            shown = ", ".join(sorted(several)[:_SHOWN])
            raise ConfigError(f"{len(several)} run ids begin with {asked!r}: {shown}. Give more of the id")


def _whole(run_ids: Iterable[str]) -> list[str]:
    there = list(run_ids)
    return [run_id for run_id in there if not ((part := Part.of(run_id)) and part.run_id in there)]


def _rows(warehouse: Warehouse, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    try:
        return warehouse.query(sql, parameters).rows
    except MissingWarehouseError:
        return []

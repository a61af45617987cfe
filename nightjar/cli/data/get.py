"""``nightjar data get``: the data of benchmarks, ahead of a run, as for a machine without network.

nightjar data get gsm8k mmlu-pro
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console

from nightjar.cli.data.built_in import data_of
from nightjar.cli.terminal import echo
from nightjar.data import cache_folder
from nightjar.errors import DatasetError, error_chain
from nightjar.packages import EnvironmentPackage, built_in_packages
from nightjar.packages.names import listed_name


def data_get(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Benchmarks; see 'nightjar env list'.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those of all built-in benchmarks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Fetch the data of built-in benchmarks from the Hugging Face Hub, ahead of their runs, and keep it.

    What is here already is not fetched again. It is kept below ~/.cache/nightjar, or NIGHTJAR_CACHE; copy that folder
    to a machine without network. Exit code 1 where something cannot be had; the others are fetched all the same.

    Examples: nightjar data get gsm8k mmlu-pro | nightjar data get --all --json
    """
    wanted = _wanted(names or [], everything=everything)
    fetched = _all_fetched(wanted)
    if as_json:
        echo(json.dumps([asdict(each) for each in fetched], indent=2))
    failed = [each for each in fetched if each.error is not None]
    for each in failed:
        echo(f"Error: {each.env_id}: {each.error}", err=True)
    if not as_json:
        got, size = len(fetched) - len(failed), sum(each.num_bytes for each in fetched)
        echo(f"{got} of {len(fetched)} here, {size / 1e6:,.1f} MB in {cache_folder() / 'datasets'}", err=True)
    if failed:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Fetched:
    """What came of one benchmark.

    Attributes:
        env_id: its name.
        outcome: ``fetched``, ``here`` before, ``generated`` or ``failed``.
        files, num_bytes: in which it is kept.
        error: why it cannot be had, and what to do; None where it is here.
    """

    env_id: str
    outcome: str
    files: list[str]
    num_bytes: int
    error: str | None = None


def _wanted(names: Sequence[str], *, everything: bool) -> list[EnvironmentPackage]:
    if bool(names) == everything:
        raise typer.BadParameter("Name benchmarks, or --all.")
    known = {package.env_id: package for package in built_in_packages()}
    asked = [listed_name(name.lower()) for name in names]
    if unknown := [name for name in asked if name not in known]:
        raise typer.BadParameter(f"No built-in benchmark is called {unknown[0]!r}. There are: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(asked or known)]


def _all_fetched(wanted: Sequence[EnvironmentPackage]) -> list[_Fetched]:
    found: list[_Fetched] = []
    is_away = False
    for number, package in enumerate(wanted, start=1):
        try:
            found.append(_fetched(package, f"{number} of {len(wanted)}", is_away=is_away))
        except DatasetError as error:
            found.append(_Fetched(package.env_id, "failed", [], 0, str(error)))
            is_away = is_away or any(isinstance(each, ConnectionError) for each in error_chain(error))
    return found


def _fetched(package: EnvironmentPackage, place: str, *, is_away: bool) -> _Fetched:
    data, name = data_of(package), package.env_id
    if data is None:
        echo(f"{name}: its examples are generated, nothing is fetched", err=True)
        return _Fetched(name, "generated", [], 0)
    parts = data.variants()
    missing = [part for part in parts if not part.is_here()]
    if missing and is_away:
        raise DatasetError("Not tried, as the hub cannot be reached")
    for part in missing:
        with Console(stderr=True, highlight=False).status(f"Fetching {name}, {place}"):
            part.fetch()
    files = [file for part in parts for file in part.paths()]
    size, outcome = sum(file.stat().st_size for file in files), "fetched" if missing else "here"
    said = "fetched" if missing else "here already"
    echo(f"{name}: {said}, {size / 1e6:,.1f} MB, {data.license}", err=True)
    return _Fetched(name, outcome, [str(file) for file in files], size)

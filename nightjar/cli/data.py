"""``nightjar data``: downloads the data of built-in benchmarks before a run, for instance for use without network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer
from rich.console import Console

from nightjar.cli.options import JsonOption, argument, option
from nightjar.cli.output import print_json
from nightjar.cli.terminal import echo
from nightjar.core.environment_id import listed_name
from nightjar.environments.data import BenchmarkData, cache_folder
from nightjar.environments.packages.catalog import built_in_packages
from nightjar.environments.packages.package import EnvironmentPackage
from nightjar.errors import DatasetError, error_chain

if TYPE_CHECKING:
    from nightjar.environments.games.nltk_data import NltkData

Whereabouts: TypeAlias = Literal["here", "generated", "gated", "not yet"]


@dataclass(frozen=True)
class _Fetched:
    """The outcome for one benchmark: ``fetched``, ``here`` (already downloaded), ``generated`` or ``failed``."""

    env_id: str
    outcome: str
    files: list[str]
    num_bytes: int
    error: str | None = None


def data_of(package: EnvironmentPackage) -> BenchmarkData | NltkData | None:
    """Imports the module of a built-in benchmark and returns its data, or None if its examples are generated."""
    data: BenchmarkData | NltkData | None = getattr(import_module(package.module.name), "DATA", None)
    return data


def whereabouts(data: BenchmarkData | NltkData | None) -> Whereabouts:
    """Returns where data is or comes from; ``gated`` data can be downloaded only with the consent of its authors."""
    if data is None:
        return "generated"
    if data.is_here():
        return "here"
    return "gated" if data.is_gated else "not yet"


def data_get(
    names: Annotated[
        list[str] | None, argument("Names of benchmarks, as in 'nightjar env list'.", metavar="NAME")
    ] = None,
    everything: Annotated[bool, option("Download the data of all built-in benchmarks.", "--all")] = False,
    as_json: JsonOption = False,
) -> None:
    """Download the data of built-in benchmarks from the Hugging Face Hub before their runs, and keep it.

    The data is kept below NIGHTJAR_CACHE (default: ~/.cache/nightjar) and not downloaded again. For a machine without
    network, copy that folder to it. If a download fails, the others are completed, and the exit code is 1.

    Examples: nightjar data get gsm8k mmlu-pro | nightjar data get --all --json
    """
    fetched = _fetch_all(_wanted(names or [], everything=everything))
    if as_json:
        print_json(fetched)
    failed = [each for each in fetched if each.error is not None]
    for each in failed:
        echo(f"Error: {each.env_id}: {each.error}", err=True)
    if not as_json:
        got, size = len(fetched) - len(failed), sum(each.num_bytes for each in fetched)
        echo(f"{got} of {len(fetched)} here, {size / 1e6:,.1f} MB in {cache_folder() / 'datasets'}", err=True)
    if failed:
        raise typer.Exit(1)


def _wanted(names: Sequence[str], *, everything: bool) -> list[EnvironmentPackage]:
    if bool(names) == everything:
        raise typer.BadParameter("Name benchmarks, or use --all.")
    known = {package.env_id: package for package in built_in_packages()}
    asked = [listed_name(name.lower()) for name in names]
    if unknown := [name for name in asked if name not in known]:
        raise typer.BadParameter(f"Unknown built-in benchmark {unknown[0]!r}. Choose one of: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(asked or known)]


def _fetch_all(wanted: Sequence[EnvironmentPackage]) -> list[_Fetched]:
    fetched: list[_Fetched] = []
    is_offline = False
    for position, package in enumerate(wanted, start=1):
        try:
            fetched.append(_fetch(package, f"{position} of {len(wanted)}", is_offline=is_offline))
        except DatasetError as error:
            fetched.append(_Fetched(package.env_id, "failed", [], 0, str(error)))
            is_offline = is_offline or any(isinstance(each, ConnectionError) for each in error_chain(error))
    return fetched


def _fetch(package: EnvironmentPackage, position: str, *, is_offline: bool) -> _Fetched:
    data, name = data_of(package), package.env_id
    if data is None:
        echo(f"{name}: its examples are generated, there is nothing to download", err=True)
        return _Fetched(name, "generated", [], 0)
    parts = data.variants()
    missing = [part for part in parts if not part.is_here()]
    if missing and is_offline:
        raise DatasetError("Not tried, as the hub cannot be reached")
    for part in missing:
        with Console(stderr=True, highlight=False).status(f"Downloading {name}, {position}"):
            part.fetch()
    files = [file for part in parts for file in part.paths()]
    size = sum(file.stat().st_size for file in files)
    echo(f"{name}: {'fetched' if missing else 'here already'}, {size / 1e6:,.1f} MB, {data.license}", err=True)
    return _Fetched(name, "fetched" if missing else "here", [str(file) for file in files], size)

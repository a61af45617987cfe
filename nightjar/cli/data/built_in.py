"""The data of the built-in benchmarks: what each says of its own, and whether it is on this machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from nightjar.data import BenchmarkData
from nightjar.packages import EnvironmentPackage

if TYPE_CHECKING:
    from nightjar.envs.games.nltk_data import NltkData

Whereabouts: TypeAlias = Literal["here", "generated", "gated", "not yet"]


def data_of(package: EnvironmentPackage) -> BenchmarkData | NltkData | None:
    """Returns the data of a built-in benchmark; None for one whose examples are generated. Its module is imported."""
    data: BenchmarkData | NltkData | None = getattr(import_module(package.module.name), "DATA", None)
    return data


def whereabouts(data: BenchmarkData | NltkData | None) -> Whereabouts:
    """Says where data is, or how it comes here: ``gated`` is what asks for consent first."""
    if data is None:
        return "generated"
    if data.is_here():
        return "here"
    return "gated" if data.is_gated else "not yet"

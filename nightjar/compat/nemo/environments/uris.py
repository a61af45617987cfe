"""Splits the URIs of other programs' benchmarks into parts, and defines ``RowBenchmark``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl

from nightjar.environments.seeded.eval_environment import EvalEnvironment, VerifyResult
from nightjar.errors import ConfigError


class RowBenchmark(EvalEnvironment):
    """A benchmark that defines ``verify_row`` instead of ``verify``, because its metadata may have any names."""

    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:
        return await self.verify_row(response, expected, metadata, sandbox)


def taken_apart(
    uri: str,
    options: Collection[str],
    given: Mapping[str, Any],
    others: Collection[str] = (),
    numbers: Mapping[str, Callable[[Any, str, str], float]] | None = None,
) -> tuple[str, dict[str, Any]]:
    """Returns the part after ``scheme://`` and the options.

    ``others`` are options that only ``given`` may have; ``numbers`` maps options to the functions that convert them.

    Example:
        >>> taken_apart("skills://gpqa?split=test", {"split", "data_dir"}, {"data_dir": "data"})
        ('gpqa', {'split': 'test', 'data_dir': 'data'})
    """
    what, _, query = uri.partition("://")[2].partition("?")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := asked.keys() - {*options} | given.keys() - {*options, *others}:
        raise ConfigError(
            f"{uri!r} has an unknown option {min(unknown)!r}. Choose one of: {', '.join(sorted(options))}"
        )
    if not what:
        raise ConfigError(f"{uri!r} has no name after ://")
    found: dict[str, Any] = {**asked, **given}
    for name, convert in (numbers or {}).items():
        if found.get(name) is not None:
            found[name] = convert(found[name], name, uri)
    return what, found


def count_of(value: Any, name: str, uri: str) -> int:
    if not str(value).isdecimal():
        raise ConfigError(f"{uri!r}: {name} must be a number (found {value!r})")
    return int(value)


def number_of(value: Any, name: str, uri: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not (isfinite(number) and number > 0):
        raise ConfigError(f"{uri!r}: {name} must be a number above 0 (found {value!r})")
    return number

"""What commands on one night take."""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.comparison.judging import find_night
from nightjar.errors import ConfigError, WarehouseError
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.nights import Night, checked_night

SuiteArgument = Annotated[str, typer.Argument(metavar="SUITE", help="Name of the suite: that of its file.")]


def _date(text: str) -> str:
    try:
        return checked_night(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


NightArgument = Annotated[str, typer.Argument(metavar="DATE", callback=_date, help="The date, as 2026-01-31.")]


def night_of(warehouse: Warehouse, suite: str, night: str) -> Night:
    """Returns the night that somebody means.

    Raises:
        WarehouseError: there is none.
    """
    known = warehouse.nights()
    found = find_night(known, suite.removesuffix(".toml"), night)
    if found is None:
        suites = ", ".join(sorted({one.suite for one in known})) or "none"
        raise WarehouseError(f"There is no night {night} of suite {suite!r}. Suites with nights: {suites}")
    return found

"""``nightjar warehouse prices``: the prices of models, from which columns and views compute costs."""

from __future__ import annotations

from typing import Annotated

import typer

from nightjar.cli.options import JsonOption, WarehouseOption, argument, option
from nightjar.cli.output import print_json
from nightjar.cli.sql.output import print_records
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import open_store
from nightjar.warehouse import pricing
from nightjar.warehouse.storage.records import price

_ModelArgument = Annotated[str, argument("The model, as runs name it.")]


def prices(context: typer.Context, warehouse: WarehouseOption = None, as_json: JsonOption = False) -> None:
    """List the prices of models per million tokens, with their dates; or 'set' or 'remove' a price.

    Example: nightjar warehouse prices set gpt-4.1-mini --input 0.4 --output 1.6
    """
    if context.invoked_subcommand is None:
        _list_prices(warehouse, as_json=as_json)
    elif warehouse is not None or as_json:
        raise typer.BadParameter(f"write options after {context.invoked_subcommand!r}")


def set_price(
    model: _ModelArgument,
    input_price: Annotated[float, option("Price in USD of a million input tokens.", "--input")],
    output_price: Annotated[float, option("Price in USD of a million output tokens.", "--output")],
    since: Annotated[str | None, option("First day of the price, such as 2026-01-01 (default: for all runs).")] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the price of a model per million tokens, from a date on. Earlier runs keep the earlier prices.

    Example: nightjar warehouse prices set gpt-4.1-mini --input 0.4 --output 1.6 --since 2026-01-01
    """
    new = price(model, since or pricing.ALWAYS.isoformat(), input_price, output_price)
    store = open_store(warehouse, must_exist=False)
    store.try_to_write()
    pricing.set_price(store, new)
    _list_prices(warehouse, as_json=as_json)


def remove_price(
    model: _ModelArgument,
    since: Annotated[str | None, option("Only remove the price with this first day (default: all prices).")] = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the prices of a model.

    Example: nightjar warehouse prices remove gpt-4.1-mini
    """
    moment = price(model, since, 0, 0).since if since else None
    store = open_store(warehouse)
    store.try_to_write()
    pricing.remove_prices(store, model, moment)
    _list_prices(warehouse, as_json=as_json)


def _list_prices(warehouse: str | None, *, as_json: bool) -> None:
    prices = open_store(warehouse, must_exist=False).prices()
    if as_json:
        print_json(prices)
    elif prices:
        print_records([{**vars(one), "since": one.since.date()} for one in prices])
        echo("Per million tokens. See: nightjar sql 'FROM cost'", err=True)
    else:
        echo("No prices. Example: nightjar warehouse prices set gpt-4.1-mini --input 0.4 --output 1.6", err=True)

"""Changes what models cost, one process after the other."""

from __future__ import annotations

from datetime import UTC, datetime

from nightjar.errors import WarehouseError
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.prices import Price
from nightjar.warehouse.storage.store import Store

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
"""Before any model was asked."""


def set_price(store: Store, price: Price) -> None:
    """Adds a price; replaces that of the same model and moment.

    Raises:
        WarehouseError: the list is damaged, or cannot be written.
    """
    with store.changing_prices() as prices:
        prices[:] = [one for one in prices if (one.model, one.since) != (price.model, price.since)]
        prices.append(price)
    write_snapshot(store)


def set_first_price(store: Store, model: str, input_price: float, output_price: float) -> None:
    """Sets what a model costs where nothing is known of that: what the owner of a warehouse has set stays.

    Raises:
        WarehouseError: the list is damaged, or cannot be written.
    """
    if all(one.model != model for one in store.prices()):
        set_price(store, Price(model, ALWAYS, input_price, output_price))


def remove_prices(store: Store, model: str, since: datetime | None = None) -> int:
    """Removes what a model costs, from one moment on or altogether, and returns how many prices that were.

    Raises:
        WarehouseError: there is no such price, the list is damaged, or cannot be written.
    """
    with store.changing_prices() as prices:
        gone = [one for one in prices if one.model == model and since in {None, one.since}]
        if not gone:
            known = ", ".join(sorted({one.model for one in prices})) or "none"
            moment = f" since {since:%Y-%m-%d}" if since else ""
            raise WarehouseError(f"There is no price of {model!r}{moment}. Models with prices: {known}.")
        prices[:] = [one for one in prices if one not in gone]
    write_snapshot(store)
    return len(gone)

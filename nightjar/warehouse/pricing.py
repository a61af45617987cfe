"""Changes what models cost, one process after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from filelock import FileLock

from nightjar.errors import NightjarError, WarehouseError
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.prices import Price
from nightjar.warehouse.storage.store import Store

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
"""Before any model was asked."""

_LOCK_NAME = "prices.lock"
_LOCK_TIMEOUT_SECONDS = 30.0


def set_price(store: Store, price: Price) -> None:
    """Adds a price; replaces that of the same model and moment.

    Raises:
        WarehouseError: the list is damaged, or cannot be written.
    """
    with _changed(store) as prices:
        prices[:] = [one for one in prices if (one.model, one.since) != (price.model, price.since)]
        prices.append(price)


def remove_prices(store: Store, model: str, since: datetime | None = None) -> int:
    """Removes what a model costs, from one moment on or altogether, and returns how many prices that were.

    Raises:
        WarehouseError: there is no such price, the list is damaged, or cannot be written.
    """
    with _changed(store) as prices:
        gone = [one for one in prices if one.model == model and since in {None, one.since}]
        if not gone:
            known = ", ".join(sorted({one.model for one in prices})) or "none"
            moment = f" since {since:%Y-%m-%d}" if since else ""
            raise WarehouseError(f"There is no price of {model!r}{moment}. Models with prices: {known}.")
        prices[:] = [one for one in prices if one not in gone]
    return len(gone)


@contextmanager
def _changed(store: Store) -> Iterator[list[Price]]:
    """Gives the prices to a body that changes them, and writes them afterwards."""
    if not isinstance(store, Folder):
        prices = store.prices()
        yield prices
        store.write_prices(prices)
        return
    store.make()
    try:
        with FileLock(store.path / _LOCK_NAME, timeout=_LOCK_TIMEOUT_SECONDS, mode=0o666):
            prices = store.prices()
            yield prices
            store.write_prices(prices)
    except (OSError, NightjarError) as error:
        if isinstance(error, WarehouseError):
            raise
        raise WarehouseError(f"Cannot change the prices of the warehouse {store}: {error}") from error
    write_snapshot(store)

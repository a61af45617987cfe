"""Changes what models cost, one process after the other."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from nightjar.errors import RunDirectoryError, WarehouseError
from nightjar.runs import RunDirectory
from nightjar.warehouse.reading.snapshot import write_snapshot
from nightjar.warehouse.storage.prices import Price
from nightjar.warehouse.storage.store import Store

logger = logging.getLogger(__name__)

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


def note_price(store: Store, run_dir: Path) -> None:
    """Sets what the model of a run costs where the run's configuration says it, and nothing is known of that."""
    try:
        config = RunDirectory(run_dir).read_config()
    except RunDirectoryError:  # a run of another program says less
        return
    said = (config.get("input_price"), config.get("output_price"))
    if said == (None, None):
        return
    model, asked = config["model"], (said[0] or 0.0, said[1] or 0.0)
    try:
        set_first_price(store, model, *asked)
        known = max((one for one in store.prices() if one.model == model), key=lambda one: one.since)
    except (WarehouseError, OSError) as error:
        logger.warning("The price of %r cannot be kept: %s", model, error)
        return
    if (known.input, known.output) != asked:
        logger.warning(
            "The warehouse's price of %r is %g and %g, the run's %g and %g: the warehouse's holds. To change it: "
            "nightjar warehouse prices set",
            model, known.input, known.output, *asked,
        )  # fmt: skip


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

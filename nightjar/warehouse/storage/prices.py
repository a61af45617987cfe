"""What models cost: ``prices.csv`` in the folder of the warehouse, kept by its owner.

model,since,input,output
gpt-4.1-mini,2025-04-14,0.4,1.6
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite

from nightjar.errors import WarehouseError

FILE_NAME = "prices.csv"

_HEADER = ["model", "since", "input", "output"]
_MOST_CHARACTERS = 80


@dataclass(frozen=True)
class Price:
    """What a model costs from a moment on, per million tokens, in the currency of the house.

    Attributes:
        model: as runs name it.
        since: the price holds for runs that start then or later.
        input: of a million tokens given.
        output: of a million tokens answered.
    """

    model: str
    since: datetime
    input: float
    output: float


def price(model: str, since: str, input_price: float, output_price: float) -> Price:
    """Returns a price.

    Args:
        model, input_price, output_price: as in ``Price``.
        since: a date or moment in ISO 8601; UTC where it names no zone.

    Raises:
        WarehouseError: the moment cannot be read, or a price is negative or no number.
    """
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise WarehouseError(f"Cannot read the date {since!r}: write it as 2026-01-31.") from None
    if not all(isfinite(value) and value >= 0 for value in (input_price, output_price)):
        raise WarehouseError(f"A price of {model!r} is negative or no number: {input_price}, {output_price}.")
    return Price(model, moment if moment.tzinfo else moment.replace(tzinfo=UTC), input_price, output_price)


def load_prices(content: bytes) -> list[Price]:
    """Reads the content of ``prices.csv``, of several prices of one model and moment the last one.

    Args:
        content: of the file, in UTF-8; it may begin with a byte order mark, as Excel writes it.

    Raises:
        WarehouseError: it is damaged; the line is named.
    """
    prices: dict[tuple[str, datetime], Price] = {}
    number = 1
    try:
        text = content.decode("utf-8-sig")
        rows = csv.reader(io.StringIO(text, newline=""))
        if text.strip():
            _check_header(next(rows))
        for row in rows:
            number = rows.line_num
            if row:
                found = _price(row)
                prices[found.model, found.since] = found
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise WarehouseError(f"{FILE_NAME}, line {number}: it is no text in UTF-8: {error.reason}") from error
    except (csv.Error, WarehouseError) as error:
        raise WarehouseError(f"{FILE_NAME}, line {number}: {str(error).rstrip('.')}") from error
    return list(prices.values())


def _check_header(row: Sequence[str]) -> None:
    if row != _HEADER:
        raise WarehouseError(f"expected {','.join(_HEADER)!r}, found {_short(','.join(row))}")


def _price(row: Sequence[str]) -> Price:
    if len(row) != len(_HEADER):
        raise WarehouseError(f"expected {len(_HEADER)} values, found {len(row)}: {_short(','.join(row))}")
    model, since, *amounts = row
    if not model.strip():
        raise WarehouseError("it names no model")
    input_price, output_price = map(_amount, amounts)
    return price(model, since, input_price, output_price)


def _amount(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WarehouseError(f"Cannot read the price {_short(text)}: write it as 0.25.") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…")


def dump_prices(prices: Sequence[Price]) -> str:
    """Returns the content of ``prices.csv``; of several prices of one model and moment the last one."""
    kept = {(price.model, price.since): price for price in prices}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    writer.writerows((p.model, p.since.isoformat(), p.input, p.output) for _, p in sorted(kept.items()))
    return text.getvalue()

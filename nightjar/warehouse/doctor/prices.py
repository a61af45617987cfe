"""Looks at ``prices.csv``: a line that cannot be read keeps everybody from asking anything."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nightjar.warehouse.doctor.findings import Finding
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.prices import FILE_NAME, PriceLine, price_lines


def price_findings(folder: Folder) -> Iterator[Finding]:
    """Yields the lines that cannot be read, and those that say again what another says."""
    path = folder.path / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding(f"{path} cannot be read: {error.strerror}", "give yourself the right to read it")
        return
    earlier: dict[tuple[str, datetime], PriceLine] = {}
    for line in price_lines(content):
        where = f"{path}, line {line.number}"
        if line.price is None:
            prices = folder.command("prices set MODEL --input PRICE --output PRICE")
            remedy = f"mend this line in an editor; or remove the file, then for each model: {prices}"
            yield Finding(f"{where}: {line.fault}", remedy)
            continue
        key = (line.price.model, line.price.since)
        if known := earlier.get(key):
            what = (
                f"{where}: a price of {key[0]!r} since {key[1]:%Y-%m-%d} is in line {known.number} too; this one counts"
            )
            yield Finding(what, f"remove line {known.number} or {line.number}", needs_action=False)
        earlier[key] = line

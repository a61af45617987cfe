"""Which warehouse a command of ``nightjar warehouse`` works on."""

from __future__ import annotations

from nightjar.errors import WarehouseError
from nightjar.warehouse import backend, resolve_warehouse
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.store import Store


def open_folder(warehouse: str | None, *, must_exist: bool = True) -> Folder:
    """Returns the folder that is meant; otherwise like ``open_store``.

    Raises:
        WarehouseError: the warehouse is in no folder.
    """
    store = open_store(warehouse, must_exist=must_exist)
    if not isinstance(store, Folder):
        raise WarehouseError(f"{store} is in no folder: this command works on a local or shared one.")
    return store


def open_store(warehouse: str | None, *, must_exist: bool = True) -> Store:
    """Returns what keeps the segments of the warehouse that is meant.

    Raises:
        WarehouseError: there is none, or it has no segments.
    """
    store = backend.open_store(resolve_warehouse(warehouse))
    if must_exist:
        store.require()
    return store

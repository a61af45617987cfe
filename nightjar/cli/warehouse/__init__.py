"""``nightjar warehouse`` and ``nightjar publish``: maintains the warehouse, and moves runs into and out of it."""

from __future__ import annotations

from nightjar.errors import WarehouseError
from nightjar.warehouse import backend, resolve_warehouse
from nightjar.warehouse.storage.folder import Folder
from nightjar.warehouse.storage.store import Store


def open_store(warehouse: str | None, *, must_exist: bool = True) -> Store:
    store = backend.open_store(resolve_warehouse(warehouse))
    if must_exist:
        store.require()
    return store


def open_folder(warehouse: str | None, *, must_exist: bool = True) -> Folder:
    """Opens a warehouse in a folder; raises ``WarehouseError`` for an object store, and errors of ``open_store``."""
    store = open_store(warehouse, must_exist=must_exist)
    if not isinstance(store, Folder):
        raise WarehouseError(f"{store} is not a folder: this command works only on a local or shared folder.")
    return store

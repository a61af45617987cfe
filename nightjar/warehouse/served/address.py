"""``Address``: what ``md:name``, ``ducklake:…`` and ``duckdb:path`` mean, and how DuckDB attaches them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import duckdb

from nightjar.errors import WarehouseError
from nightjar.warehouse.database import STORAGE_VERSION, quoted, reason
from nightjar.warehouse.location import has_secret, shown

_ALIAS = "served"
_DATA_PATH = "?data_path="
_TOKENS = ("MOTHERDUCK_TOKEN", "motherduck_token")
_CATALOGS = {"postgres": "postgres", "postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql"}


@dataclass(frozen=True)
class Address:
    """Where tables are that DuckDB attaches.

    Attributes:
        location: as it was given.
        target: what is attached.
        catalog: what the database is called then.
        extensions: of DuckDB, that this needs.
        file: the database file of ``duckdb:path``; None for a service.
        data_path: where a DuckLake that is made now keeps its files; None for its default.
    """

    location: str
    target: str
    catalog: str = _ALIAS
    extensions: tuple[str, ...] = ()
    file: Path | None = None
    data_path: str | None = None

    @property
    def is_motherduck(self) -> bool:
        """Says whether it is a database of MotherDuck."""
        return self.extensions == ("motherduck",)

    def __str__(self) -> str:
        """Its location for messages."""
        return shown(self.location)

    def attach(self, connection: duckdb.DuckDBPyConnection, *, read_only: bool) -> None:
        """Attaches the database, and makes it where there is none and it is to be written.

        Raises:
            WarehouseError: an extension of DuckDB is missing, or a token.
            duckdb.Error: it cannot be reached, or another process has it.
        """
        if self.is_motherduck and not any(map(os.environ.get, _TOKENS)):
            raise WarehouseError(f"Cannot open the warehouse {self}: set MOTHERDUCK_TOKEN to an access token.")
        for extension in self.extensions:
            self._load(connection, extension)
        connection.execute(f"ATTACH IF NOT EXISTS {quoted(self.target)}{self._options(read_only=read_only)}")

    def _options(self, *, read_only: bool) -> str:
        if self.is_motherduck:  # takes neither another name nor options; its tokens say what may be done
            return ""
        options = ["READ_ONLY"] if read_only else []
        if self.file and not read_only:
            options.append(f"STORAGE_VERSION {quoted(STORAGE_VERSION)}")
        if self.data_path and not read_only:
            options.append(f"DATA_PATH {quoted(self.data_path)}")
        return f" AS {self.catalog}" + (f" ({', '.join(options)})" if options else "")

    def _load(self, connection: duckdb.DuckDBPyConnection, extension: str) -> None:
        try:
            try:
                connection.execute(f"LOAD {extension}")
            except duckdb.Error:
                connection.execute(f"INSTALL {extension}; LOAD {extension}")
        except duckdb.Error as error:
            raise WarehouseError(
                f"Cannot open the warehouse {self}: DuckDB {duckdb.__version__} needs its extension {extension!r}, "
                f"which is not installed and cannot be downloaded: {reason(error).rstrip('.')}. "
                f"Where there is a network: python -c \"import duckdb; duckdb.execute('INSTALL {extension}')\""
            ) from error


def parse_address(location: str) -> Address:
    """Returns what a location means.

    Raises:
        WarehouseError: it names nothing, or holds a password or a token.

    Example:
        >>> parse_address("md:runs").catalog, parse_address("ducklake:postgres:dbname=runs").extensions
        ('runs', ('postgres', 'ducklake'))
    """
    if has_secret(location):
        raise WarehouseError(
            f"The warehouse's location {shown(location)!r} holds a secret, which logs and queries would show. "
            "Give it apart from the location: MOTHERDUCK_TOKEN, or PGPASSWORD or ~/.pgpass for Postgres."
        )
    scheme, _, rest = location.partition(":")
    if not rest:
        raise WarehouseError(f"The warehouse's location {location!r} names no database.")
    if scheme == "duckdb":
        path = Path(rest).expanduser().absolute()
        return Address(location, str(path), file=path)
    if scheme == "ducklake":
        target, _, data_path = rest.partition(_DATA_PATH)
        needed = _CATALOGS.get(target.partition(":")[0])
        extensions = (needed, "ducklake") if needed else ("ducklake",)
        return Address(location, f"ducklake:{target}", extensions=extensions, data_path=data_path or None)
    name = rest.partition("?")[0]
    return Address(location, f"md:{rest}", catalog=name, extensions=("motherduck",))

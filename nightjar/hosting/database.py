"""The PostgreSQL database of the Prefect server that ``nightjar up`` starts."""

from __future__ import annotations

import os
import re
from urllib.parse import quote

from nightjar.core.secret_signs import looks_secret
from nightjar.errors import ConfigError, MissingKeyError

_POSTGRESQL = re.compile(r"postgres(ql)?(\+asyncpg)?://")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def database_settings(url: str) -> dict[str, str]:
    """Returns environment variables that make Prefect's server use a database. An empty URL means Prefect's choice.

    ``$NAME`` in the URL stands for the value of an environment variable. Raises ``ConfigError`` for the URL of another
    kind of database and for a URL with a password, and ``MissingKeyError`` for a variable that is not set.
    """
    if not url:
        return {}
    if not _POSTGRESQL.match(url):
        raise ConfigError("--database-url must begin with postgresql://")
    if looks_secret(url):
        raise ConfigError(
            "--database-url holds a password, which others on this machine could read. Name the variable that holds "
            "it: 'postgresql://USER:$NAME@HOST/DATABASE'"
        )
    if missing := [name for name in _VARIABLE.findall(url) if name not in os.environ]:
        raise MissingKeyError(missing)
    with_driver = _POSTGRESQL.sub("postgresql+asyncpg://", url)
    full = _VARIABLE.sub(lambda reference: quote(os.environ[reference[1]], safe=""), with_driver)
    return {"PREFECT_SERVER_DATABASE_CONNECTION_URL": full}

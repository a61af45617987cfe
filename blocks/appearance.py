"""How the blocks look in Prefect's UI, and which version of their fields this is."""

from __future__ import annotations

from pydantic import HttpUrl

SCHEMA_VERSION = "1.0.0"
"""Of the fields of all blocks: they are only ever added to, each with a default, so that saved blocks stay readable."""
DOCUMENTATION_URL = HttpUrl("https://docs.prefect.io/v3/concepts/blocks")
LOGO_URL = HttpUrl(
    "https://raw.githubusercontent.com/PrefectHQ/prefect/420d0d6a78bb6df1fc18bcf188fdad43c1d22ea9/assets/block-logos/secret.png"
)

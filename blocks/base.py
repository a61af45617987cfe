"""``NightjarBlock``: how Nightjar's blocks look in Prefect's UI, and the version of their fields."""

from __future__ import annotations

from prefect.blocks.core import Block
from pydantic import ConfigDict, HttpUrl


class NightjarBlock(Block):
    """Base of all blocks. Fields are only ever added, each with a default, so that saved blocks stay readable."""

    _block_schema_version = "1.0.0"
    _documentation_url = HttpUrl("https://docs.prefect.io/v3/concepts/blocks")
    _logo_url = HttpUrl(
        "https://raw.githubusercontent.com/PrefectHQ/prefect/420d0d6a78bb6df1fc18bcf188fdad43c1d22ea9/assets/block-logos/secret.png"
    )

    model_config = ConfigDict(hide_input_in_errors=True)

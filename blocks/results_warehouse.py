"""``ResultsWarehouse``: where a team's results are published."""

from __future__ import annotations

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, field_validator

from blocks.appearance import DOCUMENTATION_URL, LOGO_URL, SCHEMA_VERSION


class ResultsWarehouse(Block):
    """Where a team's results are published; a run names it as its warehouse, ``block:NAME``.

    Example:
        ```python
        from blocks import ResultsWarehouse

        ResultsWarehouse(location="s3://team/evaluations").save("BLOCK_NAME")
        warehouse = ResultsWarehouse.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightjar Results Warehouse"
    _block_type_slug = "nightjar-results-warehouse"
    _block_schema_version = SCHEMA_VERSION
    _documentation_url = DOCUMENTATION_URL
    _logo_url = LOGO_URL

    model_config = ConfigDict(hide_input_in_errors=True)

    location: str = Field(
        description="Folder, s3://bucket/prefix, md:database or another location of a warehouse; its credentials are "
        "environment variables of workers, or in a block of secrets that the run names."
    )

    @field_validator("location")
    @classmethod
    def _check_location(cls, location: str) -> str:
        if not location.strip():
            raise ValueError("the location is empty")
        return location.strip()

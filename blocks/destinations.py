"""Where results go: ``ResultsWarehouse`` and ``HubPublisher``."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from nightjar.blocks.base import NightjarBlock


class ResultsWarehouse(NightjarBlock):
    """Where a team's results are published; a run names it as its warehouse, ``block:NAME``.

    Example:
        ```python
        from nightjar.blocks import ResultsWarehouse

        ResultsWarehouse(location="s3://team/evaluations").save("BLOCK_NAME")
        warehouse = ResultsWarehouse.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightjar Results Warehouse"
    _block_type_slug = "nightjar-results-warehouse"

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


class HubPublisher(NightjarBlock):
    """A dataset of the Hugging Face Hub for results; a run names it as its hf_hub_dataset_name, ``block:NAME``.

    Example:
        ```python
        from nightjar.blocks import HubPublisher

        HubPublisher(repo_name="team/evaluations", token="hf_1234567890").save("BLOCK_NAME")
        publisher = HubPublisher.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightjar Hub Publisher"
    _block_type_slug = "nightjar-hub-publisher"

    repo_name: str = Field(default="", description="Dataset on the Hub, owner/name; empty for a generated name.")
    token: SecretStr = Field(
        default=SecretStr(""), description="Token that may write there; empty for the one of the worker."
    )
    private: bool = Field(default=True, description="Makes a new dataset private.")

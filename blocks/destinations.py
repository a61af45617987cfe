"""Where results go: ``ResultsWarehouse`` and ``HubPublisher``."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from nightjar.blocks.base import NightjarBlock


class ResultsWarehouse(NightjarBlock):
    """The warehouse in which a team's results are published. A run names the block as warehouse ``block:NAME``.

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
        description="Folder, s3://bucket/prefix, md:database or another location of a warehouse. Its credentials are "
        "environment variables of the workers, or in a block of secrets that the run names."
    )

    @field_validator("location")
    @classmethod
    def _check_location(cls, location: str) -> str:
        if not location.strip():
            raise ValueError("the location is empty")
        return location.strip()


class HubPublisher(NightjarBlock):
    """A dataset of the Hugging Face Hub for results. A run names the block as hf_hub_dataset_name ``block:NAME``.

    Example:
        ```python
        from nightjar.blocks import HubPublisher

        HubPublisher(repo_name="team/evaluations", token="hf_1234567890").save("BLOCK_NAME")
        publisher = HubPublisher.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightjar Hub Publisher"
    _block_type_slug = "nightjar-hub-publisher"

    repo_name: str = Field(default="", description="Dataset on the Hub, owner/name. If empty, a name is generated.")
    token: SecretStr = Field(
        default=SecretStr(""), description="Token that may write the dataset. If empty, the worker's token is used."
    )
    private: bool = Field(default=True, description="Whether a new dataset is private.")

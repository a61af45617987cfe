"""``HubPublisher``: a repository of the Hugging Face Hub that results go to."""

from __future__ import annotations

from prefect.blocks.core import Block
from pydantic import ConfigDict, Field, SecretStr

from blocks.appearance import DOCUMENTATION_URL, LOGO_URL, SCHEMA_VERSION


class HubPublisher(Block):
    """A repository of the Hugging Face Hub that results go to.

    Example:
        ```python
        from blocks import HubPublisher

        HubPublisher(repo_name="team/evaluations", token="hf_1234567890").save("BLOCK_NAME")
        publisher = HubPublisher.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightjar Hub Publisher"
    _block_type_slug = "nightjar-hub-publisher"
    _block_schema_version = SCHEMA_VERSION
    _documentation_url = DOCUMENTATION_URL
    _logo_url = LOGO_URL

    model_config = ConfigDict(hide_input_in_errors=True)

    repo_name: str = Field(default="", description="Data set on the hub, owner/name.")
    token: SecretStr = Field(default=SecretStr(""), description="Token with which the hub may be written.")
    private: bool = Field(default=True, description="Makes a new data set private.")

"""``EnvironmentSecrets``: environment variables of a run, with values that nobody is to see."""

from __future__ import annotations

import re

from prefect.blocks.core import Block
from prefect.types import SecretDict
from pydantic import ConfigDict, Field, field_validator

from blocks.appearance import DOCUMENTATION_URL, LOGO_URL, SCHEMA_VERSION

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class EnvironmentSecrets(Block):
    """Environment variables of a run, with values that nobody is to see: keys of judges, tools, data sets, warehouses.

    Example:
        Make one, and name it in a run, as ``secrets``:
        ```python
        from blocks import EnvironmentSecrets

        EnvironmentSecrets(values={"JUDGE_API_KEY": "sk-1234567890"}).save("BLOCK_NAME")
        secrets = EnvironmentSecrets.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightjar Environment Secrets"
    _block_type_slug = "nightjar-environment-secrets"
    _block_schema_version = SCHEMA_VERSION
    _documentation_url = DOCUMENTATION_URL
    _logo_url = LOGO_URL

    model_config = ConfigDict(hide_input_in_errors=True)

    values: SecretDict = Field(
        default_factory=lambda: SecretDict({}),
        description='Environment variables and their values, such as {"JUDGE_API_KEY": "sk-…"}: set while a run that '
        "names this block lasts, in its process alone.",
    )

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: SecretDict) -> SecretDict:
        for name, value in values.get_secret_value().items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of an environment variable")
            if not isinstance(value, str) or "\0" in value:
                raise ValueError(f"the value of {name!r} must be a text")
        return values

    def variables(self) -> dict[str, str]:
        """Returns the environment variables with their values."""
        return dict(self.values.get_secret_value())

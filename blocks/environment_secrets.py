"""``EnvironmentSecrets``: secret environment variables of a run."""

from __future__ import annotations

import re

from prefect.types import SecretDict
from pydantic import Field, field_validator

from nightjar.blocks.base import NightjarBlock

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class EnvironmentSecrets(NightjarBlock):
    """Secret environment variables of a run: keys of judges, tools, datasets and warehouses.

    Example:
        Create a block, and name it in a run as ``secrets``:
        ```python
        from nightjar.blocks import EnvironmentSecrets

        EnvironmentSecrets(values={"JUDGE_API_KEY": "sk-1234567890"}).save("BLOCK_NAME")
        secrets = EnvironmentSecrets.load("BLOCK_NAME")
        ```
    """

    _block_type_name = "Nightjar Environment Secrets"
    _block_type_slug = "nightjar-environment-secrets"

    values: SecretDict = Field(
        default_factory=lambda: SecretDict({}),
        description='Environment variables and their values, such as {"JUDGE_API_KEY": "sk-…"}. They are set only in '
        "the process of a run that names this block, and only during the run.",
    )

    @field_validator("values")
    @classmethod
    def _check_values(cls, values: SecretDict) -> SecretDict:
        for name, value in values.get_secret_value().items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name of an environment variable")
            if not isinstance(value, str) or "\0" in value:
                raise ValueError(f"the value of {name!r} must be a text")
        return values

    def variables(self) -> dict[str, str]:
        """Returns the environment variables with their values."""
        return dict(self.values.get_secret_value())

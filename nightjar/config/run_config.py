"""``RunConfig``: all that a run is started with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nightjar.clients import ClientConfig, ClientType
from nightjar.config.endpoints import PROVIDERS
from nightjar.errors import ConfigError
from nightjar.packages import EvalDefaults, eval_defaults
from nightjar.runs import ENVIRONMENTS_DIR

ALL_EXAMPLES = -1
_SET_BY_ENVIRONMENTS = frozenset(EvalDefaults.model_fields)
_DEFAULT = PROVIDERS["prime"]


class RunConfig(BaseModel):
    """One environment × one model × one configuration.

    It holds names of secrets, never values, so it can be written down as it is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    env_id: str = Field(min_length=1)
    """The environment: ``name``, ``owner/name`` or ``owner/name@version``."""
    env_dir_path: str = Field(str(ENVIRONMENTS_DIR), min_length=1)
    """The folder where environments are developed."""
    model: str = Field("openai/gpt-4.1-mini", min_length=1)
    """The model's name, as the endpoint knows it."""
    base_url: str = _DEFAULT.base_url
    """Where requests go, without the route."""
    api_key_var: str = _DEFAULT.key_var
    """The environment variable that holds the key."""
    api_client_type: ClientType = _DEFAULT.client_type
    """The protocol that the endpoint speaks."""
    env_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the environment's ``load_environment``."""
    extra_env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment once it is loaded: ``max_turns``, ``hook_timeout_seconds`` and so on."""
    sampling_args: dict[str, Any] = Field(default_factory=dict)
    """``temperature``, ``max_tokens`` and so on, as the endpoint takes them."""
    num_examples: int = 5
    """How many examples; -1 for all."""
    rollouts_per_example: int = Field(3, ge=1)
    """Rollouts of each example."""
    shuffle_seed: int | None = None
    """Seed to draw examples in random order; None takes them in the dataset's order."""
    max_concurrent: int = Field(32, ge=1)
    """Requests in flight at the most."""
    max_concurrent_generation: int | None = Field(None, ge=1)
    """The same for generation alone; None for ``max_concurrent``."""
    max_concurrent_scoring: int | None = Field(None, ge=1)
    """Groups scored at once; None for ``max_concurrent``."""
    max_retries: int = Field(0, ge=0)
    """Further attempts at a rollout after errors that can heal."""
    request_timeout: float = Field(3600.0, gt=0)
    """Seconds for one request."""
    scoring_timeout: float | None = Field(None, gt=0)
    """Seconds for scoring one rollout; None for what the environment's rubric says, 600 unless it does."""
    interleave_scoring: bool = True
    """Score each group as soon as it is generated; False scores after everything is generated."""
    independent_scoring: bool = False
    """Score each rollout by itself instead of in its group."""
    state_columns: list[str] = Field(default_factory=list)
    """Keys of the state that results keep besides their own."""
    max_shards: int = Field(16, ge=1)
    """Blocks of groups, each one Prefect task for generation and one for scoring."""
    tags: list[str] = Field(default_factory=list)
    """Words to find the run by."""
    suite: str | None = None
    """The suite that the run is part of; None for a run of its own."""
    tolerated_failures: float = Field(0.0, ge=0, le=1)
    """The part of the rollouts that may fail before the run counts as incomplete."""

    @field_validator("num_examples")
    @classmethod
    def _check_num_examples(cls, value: int) -> int:
        if value != ALL_EXAMPLES and value < 1:
            raise ValueError("must be 1 or more, or -1 for all examples")
        return value

    @property
    def environments_dir(self) -> Path:
        """The folder where environments are developed."""
        return Path(self.env_dir_path)

    def client_config(self) -> ClientConfig:
        """Returns how the endpoint is reached.

        Raises:
            ConfigError: the base URL is none.
        """
        try:
            return ClientConfig(
                client_type=self.api_client_type,
                api_base_url=self.base_url,
                api_key_var=self.api_key_var,
                timeout=self.request_timeout,
            )
        except ValidationError as error:
            raise ConfigError(_first_message(error)) from error


def parse_run_config(values: Mapping[str, Any]) -> RunConfig:
    """Checks a configuration, and completes it with the defaults that its environment sets.

    Args:
        values: field to value. ``num_examples`` and ``rollouts_per_example``, left out or None, are what the
            ``pyproject.toml`` of the environment says, and else the defaults of ``RunConfig``.

    Raises:
        ConfigError: a field is unknown or its value wrong; the field is named.

    Example:
        >>> config = parse_run_config({"env_id": "arithmetic", "num_examples": None})
        >>> config.num_examples, config.rollouts_per_example
        (5, 3)
    """
    given = {name: value for name, value in values.items() if value is not None or name not in _SET_BY_ENVIRONMENTS}
    try:
        return RunConfig.model_validate({**_defaults_of_environment(given), **given})
    except ValidationError as error:
        raise ConfigError(_first_message(error)) from error


def _defaults_of_environment(given: Mapping[str, Any]) -> dict[str, Any]:
    env_id, folder = given.get("env_id"), given.get("env_dir_path") or ENVIRONMENTS_DIR
    is_checkable = isinstance(env_id, str) and isinstance(folder, str | Path)
    if given.keys() >= _SET_BY_ENVIRONMENTS or not is_checkable:
        return {}
    return eval_defaults(str(env_id), Path(folder)).model_dump(exclude_none=True)


def _first_message(error: ValidationError) -> str:
    found = error.errors()[0]
    place = ".".join(str(part) for part in found["loc"])
    return f"{place}: {found['msg'].removeprefix('Value error, ')} (found {found['input']!r})"

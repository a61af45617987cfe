"""``EvalConfig``: an evaluation in the words of verifiers, for programs that are written for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nightjar.clients import ClientConfig
from nightjar.config.run_config import RunConfig, parse_run_config
from nightjar.errors import ConfigError

_SAME_NAMES = (
    "env_id", "env_args", "env_dir_path", "model", "sampling_args", "num_examples", "rollouts_per_example",
    "max_concurrent", "independent_scoring", "extra_env_kwargs", "max_retries",
)  # fmt: skip


class EvalConfig(BaseModel):
    """One environment × one model, as verifiers describes it; ``run_config()`` is the same as Nightjar runs it.

    ``num_workers``, ``disable_env_server``, ``verbose`` and ``disable_tui`` are accepted and steer nothing here.

    Example:
        >>> config = EvalConfig(env_id="arithmetic", model="local", num_examples=20)
        >>> config.run_config().num_examples
        20
    """

    model_config = ConfigDict(extra="forbid")

    env_id: str
    """The environment: ``name``, ``owner/name`` or ``owner/name@version``."""
    env_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of its ``load_environment``."""
    env_dir_path: str = "./environments"
    """The folder where environments are developed."""
    endpoint_id: str | None = None
    """The endpoint's name in the registry from which ``client_config`` was made."""
    model: str
    """The model's name, as the endpoint knows it."""
    client_config: ClientConfig = Field(default_factory=ClientConfig)
    """Where the model is."""
    sampling_args: dict[str, Any] = Field(default_factory=dict)
    """``temperature``, ``max_tokens`` and so on."""
    num_examples: int = 5
    """How many examples; -1 for all."""
    rollouts_per_example: int = 3
    """Rollouts of each example."""
    max_concurrent: int = 32
    """Requests in flight at the most."""
    num_workers: int | str = "auto"
    independent_scoring: bool = False
    """Score each rollout by itself instead of in its group."""
    extra_env_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Attributes to set on the environment once it is loaded."""
    max_retries: int = 0
    """More attempts at a rollout after errors that can heal."""
    disable_env_server: bool = False
    verbose: bool = False
    disable_tui: bool = False
    output_dir: str | None = None
    """Where run directories go."""
    state_columns: list[str] | None = None
    """Keys of the state that results keep besides their own."""
    save_results: bool = False
    """Write a run directory."""
    resume_path: Path | None = None
    """The run directory to go on with."""
    save_to_hf_hub: bool = False
    """Push the results to the Hugging Face Hub."""
    hf_hub_dataset_name: str | None = None
    """Their name there."""

    def run_config(self) -> RunConfig:
        """Returns what of it says how to run; not where results go, which the caller of a run says.

        Raises:
            ConfigError: it asks for something that a run has no place for, or a value is wrong.
        """
        client = self.client_config
        homeless = {
            "client_config.endpoint_configs": client.endpoint_configs,
            "client_config.extra_headers": client.extra_headers,
            "client_config.extra_headers_from_state": client.extra_headers_from_state,
        }
        if unplaced := [name for name, value in homeless.items() if value]:
            raise ConfigError(f"A run has no place for {', '.join(unplaced)}. Use Environment.evaluate() for it")
        fields = {name: getattr(self, name) for name in _SAME_NAMES}
        return parse_run_config(
            {
                **fields,
                "base_url": client.api_base_url,
                "api_key_var": client.api_key_var,
                "api_client_type": client.client_type,
                "request_timeout": client.timeout,
                "state_columns": self.state_columns or [],
            }
        )


class EvalRunConfig(BaseModel):
    """Several evaluations that are run together."""

    model_config = ConfigDict(extra="forbid")

    evals: list[EvalConfig]
    """The evaluations."""
    heartbeat_url: str | None = None
    """An address that is called while they run; accepted for compatibility."""

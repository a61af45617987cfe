"""Configuration: what a run is started with, and the providers it can name."""

from nightjar.config.endpoints import PROVIDERS, Provider, find_provider
from nightjar.config.run import ALL_EXAMPLES, RunConfig, parse_run_config

__all__ = [
    "ALL_EXAMPLES",
    "PROVIDERS",
    "Provider",
    "RunConfig",
    "find_provider",
    "parse_run_config",
]

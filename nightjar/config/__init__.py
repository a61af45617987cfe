"""Configuration: what a run is started with, and the providers it can name."""

from nightjar.config.endpoints import PROVIDERS, Endpoint, Endpoints, Provider, find_provider
from nightjar.config.run_config import ALL_EXAMPLES, RunConfig, parse_run_config

__all__ = [
    "ALL_EXAMPLES",
    "PROVIDERS",
    "Endpoint",
    "Endpoints",
    "Provider",
    "RunConfig",
    "find_provider",
    "parse_run_config",
]

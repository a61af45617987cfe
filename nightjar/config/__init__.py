"""Configuration: what a run is started with, and the providers it can name."""

from nightjar.config.endpoints import PROVIDERS, Endpoint, Endpoints, Provider, find_provider
from nightjar.config.parameters import After, groups, parameters, plain_type, takes_fields
from nightjar.config.run_config import RunConfig, parse_run_config
from nightjar.packages.defaults import ALL_EXAMPLES

__all__ = [
    "ALL_EXAMPLES",
    "PROVIDERS",
    "After",
    "Endpoint",
    "Endpoints",
    "Provider",
    "RunConfig",
    "find_provider",
    "groups",
    "parameters",
    "parse_run_config",
    "plain_type",
    "takes_fields",
]

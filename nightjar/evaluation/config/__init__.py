"""Configuration of runs and suites, and the providers and endpoints that a configuration can name."""

from nightjar.clients.providers import PROVIDERS, Provider, find_provider
from nightjar.environments.packages.lookup import ALL_EXAMPLES
from nightjar.evaluation.config.endpoints import Endpoint, Endpoints
from nightjar.evaluation.config.parameters import After, groups, parameters, plain_type, takes_fields
from nightjar.evaluation.config.precedence import Evaluation, Layer, resolve_evaluation
from nightjar.evaluation.config.registry import Registry
from nightjar.evaluation.config.run_config import RunConfig, parse_run_config
from nightjar.evaluation.config.suite import load_suite

__all__ = [
    "ALL_EXAMPLES",
    "PROVIDERS",
    "After",
    "Endpoint",
    "Endpoints",
    "Evaluation",
    "Layer",
    "Provider",
    "Registry",
    "RunConfig",
    "find_provider",
    "groups",
    "load_suite",
    "parameters",
    "parse_run_config",
    "plain_type",
    "resolve_evaluation",
    "takes_fields",
]

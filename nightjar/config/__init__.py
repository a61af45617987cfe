"""Configuration: what a run is started with, suites, and the providers and endpoints that it can name."""

from nightjar.config.endpoints import PROVIDERS, Endpoint, Endpoints, Provider, find_provider
from nightjar.config.parameters import After, groups, parameters, plain_type, takes_fields
from nightjar.config.precedence import Evaluation, Layer, resolve_evaluation
from nightjar.config.registry import Registry
from nightjar.config.run_config import RunConfig, parse_run_config
from nightjar.config.suite import load_suite
from nightjar.packages.defaults import ALL_EXAMPLES

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

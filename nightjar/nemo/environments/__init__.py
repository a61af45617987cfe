"""Benchmarks: the base class, ``register``, ``@benchmark`` and ``@scorer``."""

from nightjar.nemo.environments.base import EvalEnvironment, SeedResult, VerifyResult
from nightjar.nemo.environments.composite import CompositeEnvironment
from nightjar.nemo.environments.custom import BenchmarkDefinition, ByobEnvironment, benchmark, image_builder, scorer
from nightjar.nemo.environments.registry import get_environment, list_environments, load_benchmark_file, register

__all__ = [
    "BenchmarkDefinition",
    "ByobEnvironment",
    "CompositeEnvironment",
    "EvalEnvironment",
    "SeedResult",
    "VerifyResult",
    "benchmark",
    "get_environment",
    "image_builder",
    "list_environments",
    "load_benchmark_file",
    "register",
    "scorer",
]

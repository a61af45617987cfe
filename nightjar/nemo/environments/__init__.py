"""Benchmarks: the base class, ``register``, ``@benchmark`` and ``@scorer``."""

from nightjar.envs.seeded.benchmark import BenchmarkDefinition, ByobEnvironment, benchmark, image_builder, scorer
from nightjar.envs.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.envs.seeded.lookup import get_environment, list_environments, load_benchmark_file
from nightjar.envs.seeded.registry import register

__all__ = [
    "BenchmarkDefinition",
    "ByobEnvironment",
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

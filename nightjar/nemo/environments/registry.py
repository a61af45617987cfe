"""Benchmarks by their names."""

from nightjar.envs.seeded.lookup import get_environment, list_environments, load_benchmark_file
from nightjar.envs.seeded.registry import register

__all__ = ["get_environment", "list_environments", "load_benchmark_file", "register"]

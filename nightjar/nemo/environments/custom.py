"""Benchmarks of rows, a prompt and a scorer."""

from nightjar.envs.seeded.benchmark import BenchmarkDefinition, ByobEnvironment, benchmark, image_builder, scorer
from nightjar.envs.seeded.scorer_input import ScorerInput

__all__ = ["BenchmarkDefinition", "ByobEnvironment", "ScorerInput", "benchmark", "image_builder", "scorer"]

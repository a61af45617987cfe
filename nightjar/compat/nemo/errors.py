"""The errors that solvers and benchmarks raise; they are Nightjar's own."""

from nightjar.errors import GracefulError, InfraError

__all__ = ["GracefulError", "InfraError"]

"""The base class of benchmarks."""

from nightjar.envs.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult

__all__ = ["EvalEnvironment", "SeedResult", "VerifyResult"]

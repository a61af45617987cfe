"""Benchmarks: the base class, ``register``, ``@benchmark``, ``@scorer`` and ``CompositeEnvironment``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.compat.nemo.environments.uris import RowBenchmark
from nightjar.environments.seeded.benchmark import (
    BenchmarkDefinition,
    ByobEnvironment,
    benchmark,
    image_builder,
    scorer,
)
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.environments.seeded.lookup import get_environment, list_environments, load_benchmark_file
from nightjar.environments.seeded.registry import register

__all__ = [
    "BenchmarkDefinition", "ByobEnvironment", "CompositeEnvironment", "EvalEnvironment", "SeedResult", "VerifyResult",
    "benchmark", "get_environment", "image_builder", "list_environments", "load_benchmark_file", "register", "scorer",
]  # fmt: skip


class CompositeEnvironment(RowBenchmark):
    """Takes problems from one benchmark; another benchmark verifies the answers."""

    def __init__(self, seed_env: EvalEnvironment, verify_env: EvalEnvironment) -> None:
        super().__init__()
        self.name = seed_env.name
        self._asking, self._verifying = seed_env, verify_env

    async def prepare(self) -> None:
        await self._asking.prepare()
        await self._verifying.prepare()

    async def dataset_size(self) -> int:
        return await self._asking.dataset_size()

    async def seed(self, idx: int) -> SeedResult:
        return await self._asking.seed(idx)

    async def verify_row(
        self, response: str, expected: str, metadata: Mapping[str, Any], sandbox: Any = None
    ) -> VerifyResult:
        return await self._verifying.verify_row(response, expected, metadata, sandbox)

    async def close(self) -> None:
        await self._asking.close()
        await self._verifying.close()

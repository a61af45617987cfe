"""Benchmarks: the base class, ``register``, ``@benchmark``, ``@scorer`` and ``CompositeEnvironment``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


class CompositeEnvironment(EvalEnvironment):
    """Takes problems from one benchmark and has another verify the answers."""

    def __init__(self, seed_env: EvalEnvironment, verify_env: EvalEnvironment) -> None:
        super().__init__()
        self.name = seed_env.name
        self._asking, self._verifying = seed_env, verify_env

    async def prepare(self) -> None:
        """Prepares both benchmarks."""
        await self._asking.prepare()
        await self._verifying.prepare()

    async def dataset_size(self) -> int:
        """Returns the number of problems of the first benchmark."""
        return await self._asking.dataset_size()

    async def seed(self, idx: int) -> SeedResult:
        """Returns a problem of the first benchmark."""
        return await self._asking.seed(idx)

    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:
        """Has the second benchmark verify an answer."""
        return await self._verifying.verify_row(response, expected, metadata, sandbox)

    async def verify_row(
        self, response: str, expected: str, metadata: Mapping[str, Any], sandbox: Any = None
    ) -> VerifyResult:
        """Has the second benchmark verify an answer; the metadata may have any names."""
        return await self._verifying.verify_row(response, expected, metadata, sandbox)

    async def close(self) -> None:
        """Closes both benchmarks."""
        await self._asking.close()
        await self._verifying.close()

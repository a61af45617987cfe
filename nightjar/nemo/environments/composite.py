"""``CompositeEnvironment``: one benchmark asks, another verifies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.nemo.environments.base import EvalEnvironment, SeedResult, VerifyResult


class CompositeEnvironment(EvalEnvironment):
    """Asks what one benchmark asks, and has another one verify the answers.

    Args:
        seed_env: asks.
        verify_env: verifies.
    """

    def __init__(self, seed_env: EvalEnvironment, verify_env: EvalEnvironment) -> None:
        super().__init__()
        self.name = seed_env.name
        self._asking, self._verifying = seed_env, verify_env

    async def prepare(self) -> None:
        """Gets both ready."""
        await self._asking.prepare()
        await self._verifying.prepare()

    async def dataset_size(self) -> int:
        """Returns how many problems the first has."""
        return await self._asking.dataset_size()

    async def seed(self, idx: int) -> SeedResult:
        """Returns a problem of the first."""
        return await self._asking.seed(idx)

    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:
        """Has the second verify."""
        return await self._verifying.verify_row(response, expected, metadata, sandbox)

    async def verify_row(
        self, response: str, expected: str, metadata: Mapping[str, Any], sandbox: Any = None
    ) -> VerifyResult:
        """Has the second verify, whatever the metadata are called."""
        return await self._verifying.verify_row(response, expected, metadata, sandbox)

    async def close(self) -> None:
        """Closes both."""
        await self._asking.close()
        await self._verifying.close()

"""``ChatSolver``: asks a model for a chat answer."""

from __future__ import annotations

from typing import Any

from nightjar.envs.seeded.bridge import messages_of
from nightjar.envs.seeded.eval_environment import SeedResult
from nightjar.nemo.solvers.base import SolveResult


class ChatSolver:
    """Asks a model for a chat answer.

    Args:
        client: a ``ModelClient``, or anything with its ``chat``.
        system_prompt: in the place of the benchmark's; None for that.
    """

    def __init__(self, client: Any, system_prompt: str | None = None) -> None:
        self.client = client
        self.system_prompt = system_prompt

    async def solve(self, task: SeedResult) -> SolveResult:
        """Answers one problem."""
        if task.messages or task.images:
            said = await self.client.chat(messages=messages_of(task, self.system_prompt))
        else:
            said = await self.client.chat(task.prompt, system=self.system_prompt or task.system)
        return SolveResult(said.content, said)

    async def close(self) -> None:
        """Closes the client, which opens again when it is needed."""
        await self.client.close()

"""``SingleTurnEnv``: one question, one answer."""

from __future__ import annotations

from typing import Any

from nightjar.envs.multiturn import MultiTurnEnv
from nightjar.messages import Messages
from nightjar.rollout.state import State


class SingleTurnEnv(MultiTurnEnv):
    """Asks each question once.

    Args:
        **kwargs: as for ``MultiTurnEnv``, without ``max_turns``.

    Example:
        >>> SingleTurnEnv(dataset=[{"question": "What is 2+2?", "answer": "4"}]).max_turns
        1
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_turns=1, **kwargs)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        """Is never reached: there is one turn."""
        raise NotImplementedError("A SingleTurnEnv does not answer the model")

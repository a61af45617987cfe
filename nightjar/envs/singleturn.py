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
        >>> from nightjar.clients import ClientConfig
        >>> from nightjar.rubrics import Rubric
        >>> from nightjar.testing import FixedAnswer, ModelServer
        >>> def correct(completion, answer, parser):
        ...     return float(parser.parse_answer(completion) == answer)
        >>> env = SingleTurnEnv(dataset=[{"question": "What is 2+2?", "answer": "4"}], rubric=Rubric([correct]))
        >>> with ModelServer(FixedAnswer("4")) as server:
        ...     results = env.evaluate_sync(ClientConfig(api_base_url=server.base_url), "local")
        >>> results["outputs"][0]["reward"]
        1.0
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_turns=1, **kwargs)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        """Is never reached: there is one turn."""
        raise NotImplementedError("A SingleTurnEnv does not answer the model")

"""``RubricEnvironment``: an environment of one turn as a benchmark that seeds and verifies, to be served or solved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nightjar.clients.unasked import UnaskedClient
from nightjar.envs.environment import Environment
from nightjar.envs.seeded.bridge import SeededEnv
from nightjar.envs.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.envs.singleturn import SingleTurnEnv
from nightjar.envs.teardown import tear_down
from nightjar.errors import ConfigError
from nightjar.messages import AssistantMessage, Response, ResponseMessage, content_text
from nightjar.rollout.state import RolloutInput, State
from nightjar.rollout.trajectory import new_step

PROBLEM = "problem_idx"
"""The number of a problem in its metadata: by it ``verify`` finds the example."""


class RubricEnvironment(EvalEnvironment):
    """An environment of one turn as a benchmark: its examples are seeded, its rubric verifies.

    Raises:
        ConfigError: it takes several turns, or its rubric needs whole groups.

    Example:
        >>> import asyncio
        >>> from nightjar.rubrics import Rubric
        >>> def right(completion, answer):
        ...     return float(completion[-1]["content"] == answer)
        >>> rubric = Rubric([right])
        >>> env = RubricEnvironment(SingleTurnEnv(dataset=[{"question": "2+2?", "answer": "4"}], rubric=rubric))
        >>> seed = asyncio.run(env.seed(0))
        >>> seed.prompt, asyncio.run(env.verify("4", seed.expected_answer, **seed.metadata)).reward
        ('2+2?', 1.0)
    """

    def __init__(self, env: Environment) -> None:
        super().__init__()
        name = env.env_id or type(env).__name__
        if not isinstance(env, SingleTurnEnv):
            raise ConfigError(f"Environment {name!r} takes several turns, which seed and verify have no room for")
        if env.rubric.has_group_rewards:
            raise ConfigError(f"Environment {name!r} scores whole groups, and seed and verify know one answer alone")
        self.name = name
        self.env = env

    def __len__(self) -> int:
        return len(self.env.examples)

    async def seed(self, idx: int) -> SeedResult:
        """Returns an example; its metadata are the ``info`` and its number."""
        if not 0 <= idx < len(self):
            raise IndexError(f"idx={idx} out of range [0, {len(self)})")
        row = self.env.examples[idx]
        asked = [message for message in row["prompt"] if message["role"] in {"user", "text"}]
        return SeedResult(
            prompt=content_text(asked[-1]["content"]) if asked else "",
            expected_answer=str(row.get("answer", "")),
            metadata={**(row.get("info") or {}), PROBLEM: idx},
            messages=row["prompt"],
        )

    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:
        """Scores an answer with the rubric."""
        return await self.verify_row(response, expected, metadata, sandbox)

    async def verify_row(
        self,
        response: str,
        expected: str,
        metadata: Mapping[str, Any],
        sandbox: Any = None,  # noqa: ARG002
    ) -> VerifyResult:
        """Scores an answer with the rubric; what a reward function raises is raised here."""
        state = await self._state(response, expected, metadata)
        await self.env.rubric.score_group([state])
        await self.env.rubric.cleanup(state)
        if state["error"] is not None:
            raise state["error"]
        extracted = state.get("extracted_answer") or self.env.rubric.parser.parse_answer(state["completion"])
        metrics = {name: value for name, value in state["metrics"].items() if name != "num_turns"}
        details = {**(state.get("scoring_details") or {}), **metrics}
        return VerifyResult(state["reward"], None if extracted is None else str(extracted), details)

    async def close(self) -> None:
        """Tears the environment down."""
        await tear_down(self.env)

    async def _state(self, response: str, expected: str, metadata: Mapping[str, Any]) -> State:
        number = metadata.get(PROBLEM)
        row: dict[str, Any] = {"prompt": [], "example_id": -1}
        if isinstance(number, int) and 0 <= number < len(self):
            row = self.env.examples[number]
        info = {name: value for name, value in metadata.items() if name != PROBLEM}
        asked = RolloutInput(**{**row, "answer": expected, "info": info, "rollout_index": 0})  # type: ignore[typeddict-item]
        state = await self.env.init_state(asked, UnaskedClient(), "")
        message = ResponseMessage(content=response, finish_reason="stop", is_truncated=False)
        answer = Response(id="", created=0, model="", message=message)
        state["trajectory"] = [new_step(state["prompt"], answer, state["trajectory_id"], None)]
        state.update(completion=[AssistantMessage(content=response)], is_completed=True)
        return state


def as_benchmark(env: Environment) -> EvalEnvironment:
    """Returns an environment as a benchmark: the one that it was made of, where it was made of one."""
    return env.benchmark if isinstance(env, SeededEnv) else RubricEnvironment(env)

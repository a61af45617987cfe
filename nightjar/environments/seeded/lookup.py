"""``get_environment`` returns the benchmark for a name, a file or a URI, or wraps an environment of one turn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nightjar.clients.client import UnaskedClient
from nightjar.core.environment_id import is_uri
from nightjar.core.messages import AssistantMessage, Response, ResponseMessage, content_text
from nightjar.core.rollout.state import RolloutInput, State, new_step
from nightjar.environments.environment import Environment
from nightjar.environments.loading import import_source, load_environment
from nightjar.environments.multiturn import SingleTurnEnv
from nightjar.environments.packages.lookup import installed_environments
from nightjar.environments.packages.package import ModuleSource
from nightjar.environments.rollouts import tear_down
from nightjar.environments.seeded.bridge import SeededEnv
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.environments.seeded.registry import benchmark_of_uri, registered, registered_in, registered_names
from nightjar.errors import ConfigError

PROBLEM = "problem_idx"
"""Metadata key of the problem's number, by which ``verify`` finds the example."""


class RubricEnvironment(EvalEnvironment):
    """An environment of one turn as a benchmark: ``seed`` returns its examples, and ``verify`` uses its rubric."""

    def __init__(self, env: Environment) -> None:
        super().__init__()
        name = env.env_id or type(env).__name__
        if not isinstance(env, SingleTurnEnv):
            raise ConfigError(f"Environment {name!r} takes several turns, which seed and verify do not support")
        if env.rubric.has_group_rewards:
            raise ConfigError(f"Environment {name!r} scores whole groups, which seed and verify do not support")
        self.name = name
        self.env = env

    def __len__(self) -> int:
        return len(self.env.examples)

    async def seed(self, idx: int) -> SeedResult:
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
        return await self.verify_row(response, expected, metadata, sandbox)

    async def verify_row(
        self,
        response: str,
        expected: str,
        metadata: Mapping[str, Any],
        sandbox: Any = None,  # noqa: ARG002
    ) -> VerifyResult:
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
    return env.benchmark if isinstance(env, SeededEnv) else RubricEnvironment(env)


def get_environment(name: str, **kwargs: Any) -> EvalEnvironment:
    """Returns the benchmark for a registered name, ``path.py``, ``path.py:name``, a URI or a one-turn environment.

    Raises ``EnvironmentNotFoundError`` (a ValueError), or ``ConfigError`` for an unknown scheme or several turns.
    """
    if is_uri(name):
        return benchmark_of_uri(name, **kwargs)
    if (known := registered(name)) is not None:
        return known.make(**kwargs)
    return as_benchmark(load_environment(name, **kwargs))


def list_environments() -> list[str]:
    return sorted({*registered_names(), *installed_environments()})


def load_benchmark_file(file_path: str) -> list[str]:
    path = Path(file_path)
    if not path.is_file():
        raise ConfigError(f"There is no file {file_path!r}")
    import_source(path.stem, ModuleSource(path.stem, path, path.parent))
    return [each.name for each in registered_in(path)]

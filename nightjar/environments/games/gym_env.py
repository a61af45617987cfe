"""``GymEnv``: episodes in any world with Gym's ``reset`` and ``step``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from nightjar.core.calling import call, is_async
from nightjar.core.calling.decorators import cleanup, stop
from nightjar.core.calling.loops import OwnThread
from nightjar.core.messages import Messages, UserMessage, content_text
from nightjar.core.rollout.state import State, TrajectoryStep
from nightjar.environments.games.episodes import (
    EpisodeEnv,
    EpisodicSumRubric,
    json_ready,
    made_datasets,
    overridden,
    splits,
    sum_step_rewards,
)  # fmt: skip
from nightjar.environments.parsers import Parser
from nightjar.environments.rubrics import Rubric

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = [
    "EpisodicSumRubric",
    "GymEnv",
    "ResetOut",
    "StepOut",
    "StepResetEnv",
    "normalize_reset",
    "normalize_step",
    "sum_step_rewards",
]

logger = logging.getLogger(__name__)

ResetOut: TypeAlias = Any | tuple[Any, dict[str, Any]]
StepOut: TypeAlias = tuple[Any, float, bool, bool, dict[str, Any]] | tuple[Any, float, bool, dict[str, Any]]

_MAX_EPISODE_STEPS = 1000
_CLOSE_SECONDS = 10.0


class StepResetEnv(Protocol):
    """Gym's interface of a world; methods may be sync or async, and ``close()`` is optional."""

    def reset(self, *, seed: int) -> Any:
        """Starts an episode; returns an observation, or (observation, info)."""

    def step(self, action: Any) -> Any:
        """Returns (observation, reward, done, info), or (observation, reward, terminated, truncated, info)."""


def normalize_reset(out: ResetOut) -> tuple[Any, dict[str, Any]]:
    if isinstance(out, tuple) and len(out) == 2 and (out[1] is None or isinstance(out[1], Mapping)):  # noqa: PLR2004
        return out[0], dict(out[1] or {})
    return out, {}


def normalize_step(out: StepOut) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    if not isinstance(out, tuple | list) or len(out) not in {4, 5}:
        raise TypeError(f"step() must return a tuple of 4 or 5 values, found {out!r}")
    observation, reward, terminated, *truncated, info = out
    return observation, float(reward), bool(terminated), any(truncated), dict(info or {})


class GymEnv(EpisodeEnv):
    """Plays episodes: the model's text is an action, the world returns the next observation.

    An example's ``answer`` is the seed of its episode. The trajectory has the rewards of the steps;
    ``state["gym_done"]`` records whether the world has ended the episode. A sync world runs in one thread until its
    ``close()``; an async world runs in the event loop.

    Args:
        action_parser: turns the text of a reply into an action; by default, the action is the text. An exception in the
            parser ends the episode, with reward 0.0 for that step.
        max_episode_steps: maximum number of actions; None means 1000.
        ask_after_end: after the end, send the model the last observation, as verifiers does. False saves this request.

    Example:
        >>> from nightjar.model_server import FixedAnswer, ModelServer
        >>> from nightjar.clients import ClientConfig
        >>> class Countdown:
        ...     def reset(self, seed):
        ...         self.left = 2
        ...         return "2 to go"
        ...     def step(self, action):
        ...         self.left -= int(action)
        ...         return f"{self.left} to go", 0.5, self.left == 0, {}
        >>> env = GymEnv(Countdown, num_train_episodes=0, num_eval_episodes=1)
        >>> with ModelServer(FixedAnswer("1")) as server:
        ...     out = env.evaluate_sync(ClientConfig(api_base_url=server.url), "m", state_columns=["gym_done"])
        >>> out["outputs"][0]["reward"], out["outputs"][0]["gym_done"]
        (1.0, True)
    """

    done_key = "gym_done"

    def __init__(
        self,
        env_cls: Callable[..., Any],
        env_kwargs: dict[str, Any] | None = None,
        action_parser: Callable[[str], Any] | None = None,
        obs_to_text: Callable[[Any], str] | None = None,
        num_train_episodes: int = 1000,
        num_eval_episodes: int = 20,
        max_episode_steps: int | None = None,
        seed: int = 0,
        system_prompt: str | None = None,
        few_shot: Any = None,
        parser: Parser | None = None,
        rubric: Rubric | None = None,
        message_type: str = "chat",
        ask_after_end: bool = True,
        **kwargs: Any,
    ) -> None:
        self.env_cls = env_cls
        self.env_kwargs = dict(env_kwargs or {})
        self.action_parser = action_parser or (lambda text: text)
        self.obs_to_text_fn = obs_to_text
        self.num_train_episodes = num_train_episodes
        self.num_eval_episodes = num_eval_episodes
        self.seed = seed
        self.ask_after_end = ask_after_end
        own = overridden(self, "gym_to_hf", GymEnv)
        super().__init__(
            **splits(self._rows, num_train_episodes, num_eval_episodes, own),
            rubric=rubric or EpisodicSumRubric(parser=parser),
            max_turns=max_episode_steps or _MAX_EPISODE_STEPS,
            system_prompt=system_prompt,
            few_shot=few_shot,
            parser=parser,
            message_type=message_type,
            **kwargs,
        )

    def gym_to_hf(self) -> tuple[Dataset, Dataset | None]:
        """Returns the training and evaluation datasets, made by resetting a world with each seed."""
        return made_datasets(self._rows, self.num_train_episodes, self.num_eval_episodes)

    async def _first_rows(self, seeds: range) -> list[dict[str, Any]]:
        thread, world, rows = OwnThread(), None, []
        try:
            world = await self._new_world(thread)
            for seed in seeds:
                observation, _ = normalize_reset(await thread.call(world.reset, seed=seed))
                rows.append({"question": await call(self.obs_to_text, observation), "answer": str(seed)})
            return rows
        finally:
            await _close(world, thread)

    def obs_to_text(self, obs: Any) -> str:
        """Returns the text of an observation; subclasses may override it."""
        return self.obs_to_text_fn(obs) if self.obs_to_text_fn else str(obs)

    def wrap_response(self, text: str) -> Messages:
        """Returns the messages that show a text of the world to the model."""
        return [UserMessage(content=text)]

    async def _take_turn_in_world(self, messages: Messages, state: State) -> Messages:
        step: TrajectoryStep = state["trajectory"][-1]
        world = await self._world(state)
        try:
            found = self.parser.parse_answer(messages[-1:])  # earlier messages hold actions that were already taken
            text = content_text(messages[-1].get("content")) if found is None else found
            action = await call(self.action_parser, text)
        except Exception as error:  # noqa: BLE001 - the model said something that is no action
            return self.wrap_response(self._refuse(error, state))
        out = await state["gym_thread"].call(world.step, action)
        observation, step["reward"], terminated, truncated, info = normalize_step(out)
        step["extras"]["gym_info"] = json_ready(info)
        state["gym_done"] = terminated or truncated
        shown: str = await call(self.obs_to_text, observation)
        return self.wrap_response(f"{shown}\nEpisode already ended." if state["gym_done"] else shown)

    async def _world(self, state: State) -> Any:
        thread: OwnThread = state.setdefault("gym_thread", OwnThread())
        if "gym_env" not in state:
            state["gym_env"] = world = await self._new_world(thread)
            await thread.call(world.reset, seed=int(state["answer"]))
            state["gym_done"] = False
        return state["gym_env"]

    async def _new_world(self, thread: OwnThread) -> Any:
        if any(is_async(getattr(self.env_cls, name, None)) for name in ("reset", "step")):  # type: ignore[arg-type]
            return self.env_cls(**self.env_kwargs)
        return await thread.call(lambda: self.env_cls(**self.env_kwargs))

    @stop
    async def is_done(self, state: State) -> bool:
        """Stops when the world has ended the episode."""
        return bool(state.get("gym_done"))

    @cleanup
    async def cleanup_env(self, state: State) -> None:
        """Closes the world. A world that does not close within 10 seconds is abandoned."""
        await _close(state.pop("gym_env", None), state.pop("gym_thread", None) or OwnThread())


async def _close(world: Any, thread: OwnThread) -> None:
    try:
        if hasattr(world, "close"):
            await asyncio.wait_for(thread.call(world.close), _CLOSE_SECONDS)
    except TimeoutError:
        logger.warning("%s did not close within %s s and is abandoned", type(world).__name__, _CLOSE_SECONDS)
    finally:
        thread.end()

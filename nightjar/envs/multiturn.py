"""``MultiTurnEnv``: the model and the environment take turns until a stop condition holds."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Any, final

from nightjar.cancellation import user_error
from nightjar.clients import Client
from nightjar.decorators import cleanup, stop
from nightjar.envs.environment import Environment
from nightjar.errors import OverlongPromptError
from nightjar.messages import (
    AssistantMessage,
    Messages,
    Response,
    concat_messages,
    normalize_messages,
)
from nightjar.rubrics import Rubric
from nightjar.state import RolloutInput, SamplingArgs, State, TrajectoryStep


class MultiTurnMonitorRubric(Rubric):
    """Records ``num_turns``, the number of model calls."""

    def __init__(self) -> None:
        super().__init__()
        self.add_metric(self.num_turns)

    async def num_turns(self, state: State) -> int:
        """Counts the model calls of a rollout."""
        return len(state["trajectory"])


class MultiTurnEnv(Environment):
    """An exchange of several turns; subclasses say what the environment answers.

    Args:
        max_turns: model calls at the most; -1 for no limit.
        timeout_seconds: for one attempt at a rollout; None for no limit. What was said until then is scored.
        **kwargs: as for ``Environment``.
    """

    def __init__(self, max_turns: int = -1, timeout_seconds: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_turns = max_turns
        self.timeout_seconds = timeout_seconds
        self.add_rubric(MultiTurnMonitorRubric())

    @abstractmethod
    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages | str:
        """Returns what the environment says after ``messages``, the conversation so far."""

    async def setup_state(self, state: State) -> State | None:
        """Prepares the state of a rollout; may change it, or return another."""
        return state

    async def get_prompt_messages(self, state: State) -> Messages:
        """Returns what the model is asked with next: the conversation, and the environment's answer."""
        if not state["trajectory"]:
            prompt: Messages = state["prompt"]
            return prompt
        last = state["trajectory"][-1]
        conversation = [*last["prompt"], *last["completion"]]
        answer = await self.env_response(conversation, state)
        return [*conversation, *normalize_messages(answer, field_name="env_response")]

    async def render_completion(self, state: State) -> None:
        """Sets ``state["completion"]``: all that was said after the prompt."""
        if not state["trajectory"]:
            state["completion"] = []
            return
        last = state["trajectory"][-1]
        said = [*last["prompt"], *last["completion"]][len(state["prompt"]) :]
        state["completion"] = concat_messages([said, state.get("final_env_response") or []])

    async def add_trajectory_step(self, state: State, trajectory_step: TrajectoryStep) -> None:
        """Appends a model call to the trajectory."""
        state["trajectory"].append(trajectory_step)

    async def add_model_response(self, state: State, prompt_messages: Messages, response: Response) -> None:
        """Makes a trajectory step of a response."""
        message = response.message
        said = AssistantMessage(
            content=message.content,
            reasoning_content=message.reasoning_content,
            thinking_blocks=message.thinking_blocks,
            tool_calls=message.tool_calls,
        )
        step = TrajectoryStep(
            prompt=prompt_messages,
            completion=[said],
            response=response,
            tokens=None,
            reward=None,
            advantage=None,
            is_truncated=bool(message.is_truncated),
            trajectory_id=state["trajectory_id"],
            extras={},
        )
        await self.add_trajectory_step(state, step)

    @stop(priority=100)
    async def has_error(self, state: State) -> bool:
        """Stops after an error."""
        return state["error"] is not None

    @stop
    async def prompt_too_long(self, state: State) -> bool:
        """Stops when the endpoint said that the prompt is too long."""
        return bool(state.get("prompt_too_long"))

    @stop
    async def max_turns_reached(self, state: State) -> bool:
        """Stops after ``max_turns`` model calls."""
        return 0 < self.max_turns <= len(state["trajectory"])

    @stop
    async def has_final_env_response(self, state: State) -> bool:
        """Stops when the environment has set ``state["final_env_response"]``."""
        return state.get("final_env_response") is not None

    @cleanup(priority=100)
    async def render_state(self, state: State) -> None:
        """Renders the completion before any other cleanup needs it."""
        await self.render_completion(state)

    @final
    async def rollout(
        self,
        input: RolloutInput,  # noqa: A002 - the name that environments know
        client: Client[Any, Any, Any, Any],
        model: str,
        sampling_args: SamplingArgs | None = None,
    ) -> State:
        """Makes one attempt. What goes wrong is in ``state["error"]``; a timeout is not an error."""
        state = await self.init_state(input, client, model, sampling_args)
        limit = asyncio.timeout(self.timeout_seconds)
        try:
            async with limit:
                state = await self.setup_state(state) or state
                while not await self.is_completed(state):
                    await self._take_turn(state)
        except BaseException as raised:  # noqa: BLE001 - environments are user code
            await self._end(state, raised, limit)
        return state

    async def _end(self, state: State, raised: BaseException, limit: asyncio.Timeout) -> None:
        """Ends a rollout that raised, or ran out of time; cleans up after one that is cancelled, and raises again."""
        try:
            error = user_error(raised)
        except BaseException:
            await self.cleanup(state)
            raise
        is_late = isinstance(error, TimeoutError) and limit.expired()
        state["error"] = None if is_late else error
        state["is_completed"], state["stop_condition"] = True, "timeout_reached" if is_late else "has_error"

    async def _take_turn(self, state: State) -> None:
        prompt = await self.get_prompt_messages(state)
        if state.get("final_env_response") is not None:
            return
        try:
            response = await self.get_model_response(state, prompt)
        except OverlongPromptError:
            state["prompt_too_long"] = state["is_truncated"] = True
            return
        await self.add_model_response(state, prompt, response)

"""In a ``MultiTurnEnv``, model and environment take turns; in a ``SingleTurnEnv``, the model answers once."""

# ruff: noqa: A002 - environments know the argument ``input`` by this name
from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from typing import Any, TypeVar, final

from nightjar.clients.client import AnyClient
from nightjar.core.calling import OverdueError, call, call_named, within
from nightjar.core.calling.decorators import cleanup, decorated_names, stop
from nightjar.core.calling.functions import user_error
from nightjar.core.calling.limits import Places
from nightjar.core.messages import Messages, Response, concat_messages, normalize_messages
from nightjar.core.rollout.state import RolloutInput, SamplingArgs, State, TrajectoryStep, new_step, usage_of
from nightjar.environments.environment import Environment
from nightjar.environments.rubrics import Rubric
from nightjar.errors import OverlongPromptError, TurnLimitError

T = TypeVar("T")

HOOK_TIMEOUT_SECONDS = 600.0
"""Default time limit of one call of environment code, the same as for scoring."""


class MultiTurnMonitorRubric(Rubric):
    """Records ``num_turns``, the number of model calls."""

    never_waits = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.num_turns)

    async def num_turns(self, state: State) -> int:
        """Returns the number of model calls."""
        return len(state["trajectory"])


class MultiTurnEnv(Environment):
    """An exchange of several turns; subclasses define the environment's responses.

    Hooks may be async or sync; sync hooks run in threads. An exception in a hook ends its rollout with that error.

    Args:
        max_turns: maximum number of model calls; -1 means no limit.
        timeout_seconds: time limit of one attempt at a rollout; its output until then is scored. None means no limit.
        hook_timeout_seconds: time limit of one call of environment code; a timeout fails the rollout. None means no
            limit.

    Example:
        >>> class Echo(MultiTurnEnv):
        ...     async def env_response(self, messages, state):
        ...         return [{"role": "user", "content": f"You said: {messages[-1]['content']}"}]
        >>> Echo(dataset=[{"question": "Hello"}], max_turns=3).max_turns
        3
    """

    places: Places | None = None
    """Limits the rollouts at once; None means no limit beyond that of the run."""

    is_setup_timed = True
    """Whether the time limit of a rollout includes ``setup_state``."""

    def __init__(
        self,
        max_turns: int = -1,
        timeout_seconds: float | None = None,
        hook_timeout_seconds: float | None = HOOK_TIMEOUT_SECONDS,
        max_total_completion_tokens: int = -1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_turns = max_turns
        self.timeout_seconds = timeout_seconds
        self.hook_timeout_seconds = hook_timeout_seconds
        self.max_total_completion_tokens = max_total_completion_tokens
        self.add_rubric(MultiTurnMonitorRubric())

    def set_max_total_completion_tokens(self, max_total_completion_tokens: int) -> None:
        """Sets the maximum number of tokens that the model may generate in a rollout; -1 means no limit."""
        self.max_total_completion_tokens = max_total_completion_tokens

    @abstractmethod
    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages | str:
        """Returns the environment's response to ``messages``, the conversation so far."""

    async def setup_state(self, state: State) -> State | None:
        """Prepares the state of a rollout; may change the state, or return another state."""
        return state

    async def get_prompt_messages(self, state: State) -> Messages:
        """Returns the next prompt: the conversation with the environment's response."""
        if not state["trajectory"]:
            prompt: Messages = state["prompt"]
            return prompt
        last = state["trajectory"][-1]
        conversation = [*last["prompt"], *last["completion"]]
        with state["timing"].env.measure():
            answer = await call(self.env_response, conversation, state)
        return [*conversation, *normalize_messages(answer, field_name="env_response")]

    async def render_completion(self, state: State) -> None:
        """Sets ``state["completion"]``: all messages after the prompt."""
        state["completion"] = _completion(state)

    async def add_trajectory_step(self, state: State, trajectory_step: TrajectoryStep) -> None:
        """Appends a model call to the trajectory."""
        state["trajectory"].append(trajectory_step)

    async def add_model_response(self, state: State, prompt_messages: Messages, response: Response) -> None:
        """Adds a response to the trajectory."""
        await call(self.add_trajectory_step, state, self._step(state, prompt_messages, response))

    @stop(priority=100)
    async def has_error(self, state: State, **kwargs: Any) -> bool:  # noqa: ARG002 - others pass more
        """Stops after an error."""
        return _OWN_CONDITIONS["has_error"](self, state)

    @stop
    async def prompt_too_long(self, state: State) -> bool:
        """Stops if the endpoint rejected the prompt as too long."""
        return _OWN_CONDITIONS["prompt_too_long"](self, state)

    @stop
    async def turn_limit_reached(self, state: State) -> bool:
        """Stops if the endpoint's middleware reported that its turn limit is reached."""
        return _OWN_CONDITIONS["turn_limit_reached"](self, state)

    @stop
    async def max_turns_reached(self, state: State) -> bool:
        """Stops after ``max_turns`` model calls."""
        return _OWN_CONDITIONS["max_turns_reached"](self, state)

    @stop
    async def max_total_completion_tokens_reached(self, state: State) -> bool:
        """Stops after ``max_total_completion_tokens``, as counted by the endpoint."""
        return _OWN_CONDITIONS["max_total_completion_tokens_reached"](self, state)

    @stop
    async def has_final_env_response(self, state: State) -> bool:
        """Stops once ``state["final_env_response"]`` is set."""
        return _OWN_CONDITIONS["has_final_env_response"](self, state)

    async def is_completed(self, state: State, **kwargs: Any) -> bool:
        for name, holds in _stop_conditions(type(self)).items():
            if holds is None:
                condition = getattr(self, name)
                if await call_named(condition, state=state, env=self, **kwargs):
                    self._complete(state, condition.__name__)
                    return True
            elif holds(self, state):
                self._complete(state, name)
                return True
        return False

    def start_clock(self, state: State, limit: asyncio.Timeout) -> None:  # noqa: ARG002 - for subclasses
        """Starts the time limit of a rollout if its setup is not timed. A subclass may set another limit."""
        if not self.is_setup_timed and self.timeout_seconds is not None:
            limit.reschedule(asyncio.get_running_loop().time() + self.timeout_seconds)

    def mark_timed_out(self, state: State) -> None:
        """Ends a rollout after its ``timeout_seconds`` without an error, so that it is scored."""
        state.update(timed_out=True, is_completed=True, stop_condition="timeout_reached")

    @cleanup(priority=100)
    async def render_state(self, state: State) -> None:
        """Renders the completion before any other clean-up needs it."""
        state["timing"].end_generation()
        await call(self.render_completion, state)

    def _has_own(self, *hooks: str) -> bool:
        """Returns whether hooks are those of this class, which return at once and so need no task, thread or timer.

        Any of them may be replaced at any time: in a subclass, in an object and in ``MultiTurnEnv`` itself.
        """
        kind = type(self)
        for name in hooks:  # noqa: SIM110 - a generator takes three times as long
            if getattr(kind, name) is not _OWN[name] or name in self.__dict__:
                return False
        return True

    @final
    async def rollout(
        self, input: RolloutInput, client: AnyClient, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        """Makes one attempt and cleans up. Errors are in ``state["error"]``; a timeout is not an error."""
        state = await self.init_state(input, client, model, sampling_args)
        if self.places is None:
            return await self._attempt(state)
        async with self.places:  # waits before any time limit begins
            return await self._attempt(state)

    async def _attempt(self, state: State) -> State:
        limit = asyncio.timeout(self.timeout_seconds if self.is_setup_timed else None)
        try:
            if self.timeout_seconds is None and self.is_setup_timed:
                state = await self._converse(state, limit)
            else:
                async with limit:
                    state = await self._converse(state, limit)
        except BaseException as raised:  # noqa: BLE001 - environments are user code
            self._end(state, user_error(raised), limit)
        finally:
            await self._clean_up(state)
        return state

    async def _converse(self, state: State, limit: asyncio.Timeout) -> State:
        state = await self._set_up(state)
        self.start_clock(state, limit)
        while not await self._is_at_end(state):
            _check_time_and_cancellation(limit)
            await self._take_turn(state)
        return state

    async def _is_at_end(self, state: State) -> bool:
        conditions = _stop_conditions(type(self))
        if None in conditions.values() or not self._has_own("is_completed", *conditions):
            return await self._within("a stop condition", self.is_completed(state))
        held = next((name for name, holds in conditions.items() if holds is not None and holds(self, state)), None)
        if held is not None:
            self._complete(state, held)
        return held is not None

    async def _set_up(self, state: State) -> State:
        timing = state["timing"]
        timing.setup.start = timing.setup.end = time.time()
        if self._has_own("setup_state"):
            return state
        try:
            changed = await self._within("setup_state", call(self.setup_state, state))
        finally:
            timing.setup.end = time.time()
        if isinstance(changed, State):
            changed.remember_input_of(state)
            return changed
        state.update(changed if isinstance(changed, dict) else {})
        return state

    async def _take_turn(self, state: State) -> None:
        said: Any = state["prompt"]
        if state["trajectory"] or not self._has_own("get_prompt_messages"):
            said = await self._within("env_response", call(self.get_prompt_messages, state))
        prompt = normalize_messages(said, field_name="prompt_messages")
        if state.get("final_env_response") is not None:
            return
        try:
            with state["timing"].model.measure():
                response = await self.get_model_response(state, prompt)
        except OverlongPromptError:
            state["prompt_too_long"] = state["is_truncated"] = True
            return
        except TurnLimitError:
            state["turn_limit_reached"] = True
            del state["timing"].model.spans[-1]  # no request was sent
            return
        if self._has_own("add_model_response", "add_trajectory_step"):
            state["trajectory"].append(self._step(state, prompt, response))
        else:
            await self._within("add_model_response", call(self.add_model_response, state, prompt, response))

    def _step(self, state: State, prompt: Messages, response: Response) -> TrajectoryStep:
        return new_step(prompt, response, state["trajectory_id"], self.max_seq_len)

    async def _within(self, name: str, hook: Coroutine[Any, Any, T]) -> T:
        try:
            return await within(self.hook_timeout_seconds, hook)
        except OverdueError as error:
            raise TimeoutError(f"{name} {error} (hook_timeout_seconds)") from error

    def _end(self, state: State, error: Exception, limit: asyncio.Timeout) -> None:
        if isinstance(error, TimeoutError) and limit.expired():
            self.mark_timed_out(state)
        else:
            state["error"] = error
            self._complete(state, "has_error")

    async def _clean_up(self, state: State) -> None:
        try:
            if self._has_own("cleanup", "render_state", "render_completion") and _has_no_more_cleanups(type(self)):
                state["timing"].end_generation()
                state["completion"] = _completion(state)
            else:
                await self._within("a clean-up", self.cleanup(state))
        except BaseException as raised:  # noqa: BLE001 - environments are user code
            error = user_error(raised)
            if state.get("error") is None:
                state["error"] = error
                self._complete(state, "has_error")


_OWN_CONDITIONS: dict[str, Callable[[Any, State], bool]] = {
    "has_error": lambda _, state: state.get("error") is not None,
    "prompt_too_long": lambda _, state: bool(state.get("prompt_too_long")),
    "turn_limit_reached": lambda _, state: bool(state.get("turn_limit_reached")),
    "max_turns_reached": lambda env, state: 0 < env.max_turns <= len(state["trajectory"]),
    "max_total_completion_tokens_reached": lambda env, state: (
        0 < env.max_total_completion_tokens <= (usage_of(state) or {"output_tokens": 0.0})["output_tokens"]
    ),
    "has_final_env_response": lambda _, state: state.get("final_env_response") is not None,
}
"""The stop conditions of ``MultiTurnEnv`` as plain functions, which need no coroutine."""


_OWN = {name: getattr(MultiTurnEnv, name) for name in dir(MultiTurnEnv)}
"""The methods of ``MultiTurnEnv`` as they are defined above."""


@lru_cache(maxsize=1024)
def _stop_conditions(kind: type[MultiTurnEnv]) -> Mapping[str, Callable[[Any, State], bool] | None]:
    """Returns a class's stop conditions by name, in order, each with its sync function if it has one."""
    names = decorated_names(kind, "stop_priority")
    return {name: _OWN_CONDITIONS[name] if getattr(kind, name) is _OWN.get(name) else None for name in names}


@lru_cache(maxsize=1024)
def _has_no_more_cleanups(kind: type[MultiTurnEnv]) -> bool:
    return decorated_names(kind, "cleanup_priority") == ("render_state",)


def _completion(state: State) -> Messages:
    """Returns all messages after the prompt."""
    if not state["trajectory"]:
        return []
    last = state["trajectory"][-1]
    said = [*last["prompt"], *last["completion"]][len(state["prompt"]) :]
    return concat_messages([said, state.get("final_env_response") or []])


def _check_time_and_cancellation(limit: asyncio.Timeout) -> None:
    """Raises if the rollout timed out or was cancelled while environment code swallowed the exception."""
    task = asyncio.current_task()
    if limit.expired():
        raise TimeoutError
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class SingleTurnEnv(MultiTurnEnv):
    """Asks each question once; the arguments are those of ``MultiTurnEnv`` without ``max_turns``.

    Example:
        >>> SingleTurnEnv(dataset=[{"question": "What is 2+2?", "answer": "4"}]).max_turns
        1
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_turns=1, **kwargs)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        """Is never called, because there is only one turn."""
        raise NotImplementedError("A SingleTurnEnv does not answer the model")

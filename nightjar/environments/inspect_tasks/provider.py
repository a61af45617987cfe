"""Nightjar's client as a model provider of Inspect, ``nightjar/MODEL``.

Inspect makes the prompts, calls tools and enforces its limits. Each request goes through the client of the rollout, so
retries, pace, budget, usage and the journal are Nightjar's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from inspect_ai.event import ModelEvent
from inspect_ai.log._transcript import transcript
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, modelapi
from inspect_ai.model._model import use_model_event_sink
from inspect_ai.tool import ToolChoice, ToolInfo

from nightjar.environments.inspect_tasks.rollout_requests import RolloutRequests
from nightjar.errors import ConfigError

PROVIDER = "nightjar"
NO_LIMIT = 1_000_000
"""Connections at once. Nightjar's pace is the limit."""


_current: ContextVar[RolloutRequests] = ContextVar("inspect_rollout")


@modelapi(name=PROVIDER)
class NightjarAPI(ModelAPI):  # type: ignore[misc]
    """Sends requests through the client of the rollout in whose task it is called."""

    def __init__(self, model_name: str, **kwargs: Any) -> None:
        super().__init__(model_name=model_name, config=kwargs.get("config") or GenerateConfig())

    def max_connections(self) -> int:
        """Returns a number that no run reaches."""
        return NO_LIMIT

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 - Inspect passes it by this name
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Sends one request."""
        rollout = _current.get(None)
        if rollout is None:
            raise ConfigError(f"The model {PROVIDER}/{self.model_name} can only be asked in a rollout of Nightjar")
        return await rollout.ask(self.model_name, input, tools, tool_choice, config)


class _OnlyThisProvider:
    """Passes Inspect's events on, and refuses requests to other providers before they are sent."""

    def on_pending(self, event: ModelEvent) -> None:
        if not event.model.startswith(f"{PROVIDER}/"):
            raise ConfigError(
                f"A solver or scorer asks the model {event.model!r} without Nightjar. Name it "
                f"'{PROVIDER}/MODEL' to ask MODEL at the run's endpoint, or use the role 'grader' and set judge_model"
            )
        transcript()._event(event)  # noqa: SLF001 - the same as Inspect does without a sink

    def on_complete(self, event: ModelEvent) -> None:
        transcript()._event_updated(event)  # noqa: SLF001 - as above


@contextmanager
def requests_of(rollout: RolloutRequests) -> Iterator[None]:
    """Sends the requests of the current task, and of the tasks that it starts, through ``rollout``."""
    token = _current.set(rollout)
    try:
        with use_model_event_sink(_OnlyThisProvider()):
            yield
    finally:
        _current.reset(token)

"""Nightjar: LLM evaluations as Prefect flows, every result in DuckDB.

``import nightjar as vf`` gives the environments API under the names of verifiers 0.1. Names load on first
use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from nightjar.clients import (
        Client,
        ClientConfig,
        ClientType,
        EndpointClientConfig,
        OpenAIChatCompletionsClient,
    )
    from nightjar.decorators import cleanup, stop, teardown
    from nightjar.envs import Environment, MultiTurnEnv, SingleTurnEnv, load_environment
    from nightjar.errors import (
        EmptyModelResponseError,
        Error,
        InfraError,
        InvalidModelResponseError,
        MissingKeyError,
        ModelError,
        NightjarError,
        OverlongPromptError,
        SandboxError,
        ToolCallError,
        ToolError,
        ToolParseError,
        TunnelError,
    )
    from nightjar.messages import (
        AssistantMessage,
        ChatMessage,
        Message,
        Messages,
        Response,
        SystemMessage,
        Tool,
        ToolCall,
        ToolMessage,
        Usage,
        UserMessage,
    )
    from nightjar.parsers import Parser, extract_boxed_answer, extract_hash_answer
    from nightjar.rubrics import Rubric, RubricGroup
    from nightjar.state import (
        Info,
        RewardFunc,
        RolloutInput,
        RolloutTiming,
        SamplingArgs,
        State,
        TokenUsage,
        TrajectoryStep,
    )

_HOMES = {
    "nightjar.clients": (
        "Client ClientConfig ClientType EndpointClientConfig OpenAIChatCompletionsClient"
    ),
    "nightjar.decorators": "cleanup stop teardown",
    "nightjar.envs": "Environment MultiTurnEnv SingleTurnEnv load_environment",
    "nightjar.errors": (
        "EmptyModelResponseError Error InfraError InvalidModelResponseError MissingKeyError ModelError "
        "NightjarError OverlongPromptError SandboxError ToolCallError ToolError ToolParseError TunnelError"
    ),
    "nightjar.messages": (
        "AssistantMessage ChatMessage Message Messages Response SystemMessage Tool ToolCall ToolMessage "
        "Usage UserMessage"
    ),
    "nightjar.parsers": "Parser extract_boxed_answer extract_hash_answer",
    "nightjar.rubrics": "Rubric RubricGroup",
    "nightjar.state": (
        "Info RewardFunc RolloutInput RolloutTiming SamplingArgs State TokenUsage TrajectoryStep"
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: PLE0604 - made from _HOMES, the one list of names
    "__version__",
    *_HOME_OF,
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})

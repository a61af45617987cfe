"""A local model server, to test environments and runs without a provider and without mocks."""

from nightjar.model_server.answerers import ArithmeticSolver, Recording, Script
from nightjar.model_server.answers import (
    Answer,
    Answerer,
    FixedAnswer,
    Message,
    ToolCallAnswer,
    last_user_text,
    tool_call,
)
from nightjar.model_server.faults import FaultKind, Faults
from nightjar.model_server.model_server import ModelServer
from nightjar.model_server.server_stats import RecordedRequest, ServerStats

__all__ = [
    "Answer",
    "Answerer",
    "ArithmeticSolver",
    "FaultKind",
    "Faults",
    "FixedAnswer",
    "Message",
    "ModelServer",
    "RecordedRequest",
    "Recording",
    "Script",
    "ServerStats",
    "ToolCallAnswer",
    "last_user_text",
    "tool_call",
]

"""Things to test environments and runs with, without a provider and without mocks."""

from nightjar.testing.answers import Answer, Answerer, FixedAnswer, Message, last_user_text
from nightjar.testing.arithmetic import ArithmeticSolver
from nightjar.testing.faults import FaultKind, Faults
from nightjar.testing.model_server import ModelServer
from nightjar.testing.recording import Recording
from nightjar.testing.server_stats import ServerStats

__all__ = [
    "Answer",
    "Answerer",
    "ArithmeticSolver",
    "FaultKind",
    "Faults",
    "FixedAnswer",
    "Message",
    "ModelServer",
    "Recording",
    "ServerStats",
    "last_user_text",
]

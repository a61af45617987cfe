"""Solvers: what answers the problems of a benchmark."""

from nightjar.nemo.solvers.asking import ChatSolver, CompletionSolver, VLMSolver
from nightjar.nemo.solvers.base import ErrorKind, Solver, SolveResult
from nightjar.nemo.solvers.oracle import OracleSolver
from nightjar.nemo.solvers.react import ReActSolver, ToolBackend

__all__ = [
    "ChatSolver",
    "CompletionSolver",
    "ErrorKind",
    "OracleSolver",
    "ReActSolver",
    "SolveResult",
    "Solver",
    "ToolBackend",
    "VLMSolver",
]

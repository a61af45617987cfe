"""Solvers, which answer the problems of a benchmark."""

from nightjar.compat.nemo.solvers.base import ErrorKind, Solver, SolveResult
from nightjar.compat.nemo.solvers.model_solvers import ChatSolver, CompletionSolver, GymSolver, OracleSolver, VLMSolver
from nightjar.compat.nemo.solvers.react import HttpToolBackend, ReActSolver, ToolBackend, ToolResult

__all__ = [
    "ChatSolver",
    "CompletionSolver",
    "ErrorKind",
    "GymSolver",
    "HttpToolBackend",
    "OracleSolver",
    "ReActSolver",
    "SolveResult",
    "Solver",
    "ToolBackend",
    "ToolResult",
    "VLMSolver",
]

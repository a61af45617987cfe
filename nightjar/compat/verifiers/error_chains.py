"""Combines errors and their causes into one value, to compare, count and print."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TypedDict

from nightjar.errors import Error, error_chain


class ErrorInfo(TypedDict):
    """An error as data: its class, the chain of causes with messages, and the chain of classes."""

    error: str
    error_chain_repr: str
    error_chain_str: str


def get_error_chain(
    error: BaseException | None, parent_type: type[BaseException] = BaseException
) -> list[BaseException]:
    """Returns an error and its causes, up to the first cause that is not a ``parent_type``."""
    chain = error_chain(error) if error is not None else ()
    return list(takewhile(lambda cause: isinstance(cause, parent_type), chain))


def get_vf_error_chain(error: BaseException) -> list[BaseException]:
    """Returns an error and its causes, up to the first cause that is not an error of rollouts."""
    return get_error_chain(error, Error)


class ErrorChain:
    """An error and its causes. Chains of the same classes are equal, whatever their messages.

    Example:
        >>> chain = ErrorChain(ValueError("no number"))
        >>> str(chain), chain == ErrorChain(ValueError("no word")), ValueError in chain
        ('ValueError', True, True)
    """

    def __init__(
        self, error: BaseException, build_error_chain: Callable[[BaseException], list[BaseException]] = get_error_chain
    ) -> None:
        self.root_error = error
        self.chain = build_error_chain(error)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(type(error).__name__ for error in self.chain)

    def __hash__(self) -> int:
        return hash(self._names)

    def __eq__(self, other: object) -> bool:
        return self._names == other._names if isinstance(other, ErrorChain) else NotImplemented

    def __contains__(self, kind: type[BaseException]) -> bool:
        return any(isinstance(error, kind) for error in self.chain)

    def __str__(self) -> str:
        return " -> ".join(self._names)

    def __repr__(self) -> str:
        return " -> ".join(map(repr, self.chain))


def error_info(error: BaseException) -> ErrorInfo:
    chain = ErrorChain(error)
    return ErrorInfo(error=type(error).__name__, error_chain_repr=repr(chain), error_chain_str=str(chain))

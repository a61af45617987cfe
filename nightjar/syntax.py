"""Python's syntax as trees, read in any thread. None of the code that is read is run.

CPython before 3.11.8 keeps the depth of all trees that it builds in one place: where garbage collection lets another
thread parse in between, one of both fails with a ``SystemError`` (https://github.com/python/cpython/issues/106905) that
says nothing of the source. So it is parsed again.
"""

from __future__ import annotations

import ast
from typing import Any, cast

_TRIES = 20


def parse_python(source: str | bytes) -> ast.Module:
    """Parses the source of a module as ``ast.parse`` does, beside other threads that parse too.

    Example:
        >>> [type(statement).__name__ for statement in parse_python("import ast; x = 1").body]
        ['Import', 'Assign']

    Raises:
        SyntaxError: it is not Python.
        ValueError: it has a null byte.
    """
    return cast(ast.Module, _parse(source, "exec"))


def parse_expression(text: str) -> ast.expr:
    """Parses one expression, beside other threads that parse too.

    Example:
        >>> parse_expression("1 + 2").right.value
        2

    Raises:
        SyntaxError: it is no expression.
        ValueError: it has a null byte.
    """
    return cast(ast.Expression, _parse(text.lstrip(" \t"), "eval")).body


def read_literal(text: str) -> Any:
    """Reads a Python value as ``ast.literal_eval`` does, beside other threads that parse too.

    Example:
        >>> read_literal("{'topic': 'Science', 'urls': ['a', 'b']}")["urls"]
        ['a', 'b']

    Raises:
        SyntaxError: it is not Python.
        ValueError: it is more than a literal.
    """
    return ast.literal_eval(parse_expression(text))


def _parse(source: str | bytes, mode: str) -> ast.AST:
    for _ in range(_TRIES - 1):
        try:
            return ast.parse(source, mode=mode)
        except SystemError:
            continue
    return ast.parse(source, mode=mode)

"""Parses Python source in any thread, without running it.

Parsing is retried, because CPython's parser is not thread-safe before 3.11.8
(https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
from typing import Any, cast

_TRIES = 20


def parse_python(source: str | bytes) -> ast.Module:
    """Parses a module like ``ast.parse``. Raises ``SyntaxError``, or ``ValueError`` for a null byte."""
    return cast(ast.Module, _parse(source, "exec"))


def parse_expression(text: str) -> ast.expr:
    return cast(ast.Expression, _parse(text.lstrip(" \t"), "eval")).body


def read_literal(text: str) -> Any:
    """Reads a literal like ``ast.literal_eval``. Raises ``SyntaxError``, or ``ValueError`` for other expressions."""
    return ast.literal_eval(parse_expression(text))


def _parse(source: str | bytes, mode: str) -> ast.AST:
    for _ in range(_TRIES - 1):
        try:
            return ast.parse(source, mode=mode)
        except SystemError:
            continue
    return ast.parse(source, mode=mode)

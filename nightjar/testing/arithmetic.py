"""A scripted model that solves arithmetic, with a known share of wrong answers."""

from __future__ import annotations

import ast
import hashlib
import itertools
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from nightjar.errors import ConfigError
from nightjar.syntax import parse_expression
from nightjar.testing.answers import Answer, Message, last_user_text

_EXPRESSION = re.compile(
    r"""
    (?<![\w.,])
    (?: [-(][ ]* )* NUMBER
    (?: [) ]* [-+*/x\u00d7] [-( ]* NUMBER )+
    (?: [ ]*\) )*
    """.replace("NUMBER", r"(?: [0-9]{1,3}(?:,[0-9]{3})+ | [0-9]+ ) (?! [^\Wx] | [.,][0-9] )"),
    re.VERBOSE,
)
_NUMBER = re.compile(r"[0-9][0-9,]*")
_TO_PYTHON = str.maketrans("x\u00d7", "**")
_LONGEST_EXPRESSION = 200  # keeps the syntax tree and the result small

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ArithmeticSolver:
    r"""Computes the last arithmetic expression of the last user message.

    Expressions hold integers, ``+ - * /``, parentheses, and for a product also ``x`` or the
    multiplication sign. The result is exact: an integer or a fraction such as ``7/2``, in
    ``\boxed{}``.

    Whether an answer is wrong depends on the seed, the question, and how often it was asked before;
    so a run gives the same answers in whatever order its questions arrive.

    Args:
        error_rate: share of wrong answers, from 0 to 1.
        seed: which answers are wrong.

    Example:
        >>> print(ArithmeticSolver().answer([{"role": "user", "content": "What is 12 x (3 + 4)?"}]).text)
        12 * (3 + 4) = 84
        The answer is \boxed{84}.
    """

    def __init__(self, error_rate: float = 0.0, seed: int = 0) -> None:
        if not 0 <= error_rate <= 1:
            raise ConfigError(f"error_rate is {error_rate}. A share lies between 0 and 1.")
        self._error_rate = error_rate
        self._seed = seed
        self._times_asked: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def answer(self, messages: Sequence[Message]) -> Answer:
        """Answers with a line of work and the boxed result."""
        question = last_user_text(messages)
        solved = solve(question)
        if solved is None:
            return Answer(question=question, text="I cannot solve this.")
        expression, value = solved
        value += self._error(question)
        return Answer(question=question, text=f"{expression} = {value}\nThe answer is \\boxed{{{value}}}.")

    def _error(self, question: str) -> int:
        """Returns 0 for a right answer, otherwise by how much it is wrong."""
        times_asked = next(self._times_asked[question])
        key = f"{self._seed}\n{times_asked}\n{question}".encode()
        digest = hashlib.blake2b(key, digest_size=9).digest()
        is_wrong = int.from_bytes(digest[:8]) < self._error_rate * 2**64
        return 1 + digest[8] % 9 if is_wrong else 0


def solve(text: str) -> tuple[str, Fraction] | None:
    """Returns the last arithmetic expression of a text, and its exact value; None where none has a value."""
    for match in reversed(list(_EXPRESSION.finditer(text))):
        expression = _without_stray_parentheses(match[0].translate(_TO_PYTHON))
        if len(expression) > _LONGEST_EXPRESSION:
            continue
        plain = _NUMBER.sub(lambda number: str(int(number[0].replace(",", ""))), expression)
        try:
            return expression, _value(parse_expression(plain))
        except (SyntaxError, ZeroDivisionError):
            continue
    return None


def _without_stray_parentheses(expression: str) -> str:
    """Cuts off parentheses of the surrounding sentence, as in '(that is, 3 + 4)'."""
    while expression.endswith(")") and expression.count(")") > expression.count("("):
        expression = expression[:-1].rstrip()
    while expression.startswith("(") and expression.count("(") > expression.count(")"):
        expression = expression[1:].lstrip()
    return expression


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int(number)):
            return Fraction(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
    raise SyntaxError(f"Not arithmetic: {ast.dump(node)}")

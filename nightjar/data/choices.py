"""Multiple choice: choices with their letters, in an order that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from string import ascii_uppercase

from nightjar.errors import DatasetError


def lettered(choices: Sequence[str]) -> str:
    r"""Returns choices as lines.

    Example:
        >>> lettered(["four", " five"])
        'A) four\nB) five'
    """
    return "\n".join(f"{letter}) {choice.strip()}" for letter, choice in zip(ascii_uppercase, choices, strict=False))


def shuffled(choices: Sequence[str], right: int, seed: int | None, question: str) -> tuple[list[str], str]:
    """Returns choices in the order that a seed gives to a question, and the letter of the right one.

    The order depends on nothing but seed and question: neither on the rows before it, nor on their number.

    Args:
        choices: of the question.
        right: the position of the right one.
        seed: None leaves them as they are.
        question: whose choices they are.

    Raises:
        DatasetError: the right one is none of them.

    Example:
        >>> shuffled(["four", "five"], 1, None, "2+3?")
        (['four', 'five'], 'B')
    """
    if not 0 <= right < len(choices):
        raise DatasetError(f"the answer {right} is none of {len(choices)} choices, which are counted from 0")
    order = list(range(len(choices)))
    if seed is not None:
        random.Random(f"{seed}:{question}").shuffle(order)  # noqa: S311 - no secret is made of it
    return [choices[position] for position in order], ascii_uppercase[order.index(right)]

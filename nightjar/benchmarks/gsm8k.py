r"""GSM8K: 1,319 grade school math word problems.

Cobbe et al., 2021, "Training Verifiers to Solve Math Word Problems". Data: MIT.

Run it::

    nightjar eval run gsm8k -m gpt-4.1-mini -p openai -n 100
    nightjar eval run gsm8k -m my-model -b http://127.0.0.1:8000/v1 -n -1 -r 1 -a '{"dataset": "test.jsonl"}'

One example::

    question: Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How
              many clips did Natalia sell altogether in April and May?
    answer:   72                      (in the dataset: "… #### 72")
"""

from __future__ import annotations

import re
from typing import Any

from nightjar.data import BenchmarkData
from nightjar.envs import SingleTurnEnv
from nightjar.parsers import AfterThinkParser, Parser, extract_boxed_answer, extract_hash_answer
from nightjar.rubrics import Rubric
from nightjar.scorers import equated_number, same_number, stated_number

DATA = BenchmarkData("openai/gsm8k", 1319, "MIT", ("question", "answer"), ("main",), others=[{"split": "train"}])
SYSTEM_PROMPT = "Solve the problem step by step. Give the final answer, a number, inside \\boxed{}."

_HASHED = re.compile(r"####(?=[^\w\n]{0,9}\d)(?![^\w\n]{0,9}\d+[.):][*_ ]+\S)([^\n]*)")
"""A number behind `####`, which is no heading such as `#### Step 1` and `#### 2. Add them`."""


def load_environment(
    dataset: str | None = None,
    split: str = "test",
    system_prompt: str | None = SYSTEM_PROMPT,
) -> SingleTurnEnv:
    """Loads GSM8K.

    Args:
        dataset: a file with ``question`` and ``answer``; None for the hub.
        split: of the hub's dataset, ``test`` or ``train``.
        system_prompt: None for none.
    """
    parser = AfterThinkParser(extract_answer)
    return SingleTurnEnv(
        eval_dataset=lambda: DATA.examples(to_example, dataset, split),
        system_prompt=system_prompt,
        parser=parser,
        rubric=Rubric(funcs=[correct_answer], parser=parser),
    )


def to_example(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with its bare answer."""
    return {**row, "answer": reference_answer(row["answer"])}


def reference_answer(answer: Any) -> str:
    """Returns what stands after ``####`` in a reference solution, or all of it where there is none."""
    text = str(answer)
    return extract_hash_answer(text) or text


def extract_answer(text: str) -> str:
    r"""Finds the final answer in what a model wrote; empty where there is no number.

    It is in the last ``\boxed{}``, else behind the last ``####``, else where ``stated_number`` finds it.

    Example:
        >>> extract_answer(r"\boxed{3 \times 400 = 1200}"), extract_answer("#### Step 1\n6 * 7 = 42\n#### $42")
        ('1200', '42')
    """
    places = (extract_boxed_answer(text, strict=True), *reversed(_HASHED.findall(text)))
    numbers = (number for number in map(equated_number, places) if number is not None)
    number = next(numbers, None)
    number = stated_number(text) if number is None else number
    return "" if number is None else f"{number:f}"


def correct_answer(completion: Any, answer: str, parser: Parser) -> float:
    """1.0 where the answer given and the reference are the same number, else 0.0."""
    return float(same_number(parser.parse_answer(completion) or "", answer))

r"""MATH-500: 500 competition problems in seven subjects and five levels.

Lightman et al., 2023, "Let's Verify Step by Step", of the problems of Hendrycks et al., 2021, "Measuring Mathematical
Problem Solving With the MATH Dataset". Data: MIT (the parent set was taken off the hub after a notice of its source).

Run it::

    nightjar eval run math500 -m gpt-4.1-mini -p openai -n -1
    nightjar eval stats RUN --by level

One example::

    problem: What is $\frac{1}{2} + \frac{1}{3}$?
    answer:  \frac{5}{6}                          (subject: Prealgebra, level: 1)

Answers are compared as mathematics, so that `\frac56` and `5/6` are the same, and `0.5` and `\frac12`.
Decimals count where math-verify finds them equal to six digits after the point: `1.41421356` is `\sqrt2`, `1.4142` not.
"""

from __future__ import annotations

from typing import Any

from nightjar.data import BenchmarkData
from nightjar.envs import SingleTurnEnv
from nightjar.parsers import AfterThinkParser, extract_boxed_answer
from nightjar.rubrics import MathRubric
from nightjar.scorers import stated_answer

DATA = BenchmarkData("HuggingFaceH4/MATH-500", 500, "MIT", ("problem", "answer"))
SYSTEM_PROMPT = "Work the problem out step by step. Put the final answer, and nothing else, inside \\boxed{}."


def load_environment(dataset: str | None = None, system_prompt: str | None = SYSTEM_PROMPT) -> SingleTurnEnv:
    """Loads MATH-500.

    Args:
        dataset: a file with the hub's columns; None for the hub.
        system_prompt: None for none.
    """
    parser = AfterThinkParser(extract_answer)
    return SingleTurnEnv(
        eval_dataset=lambda: DATA.examples(to_example, dataset),
        system_prompt=system_prompt,
        parser=parser,
        rubric=MathRubric(parser=parser),
    )


def to_example(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row as a question with its answer."""
    level = row.get("level")
    info = {"category": row.get("subject"), "level": None if level is None else str(level)}
    return {"question": row["problem"], "answer": row["answer"], "info": info}


def extract_answer(text: str) -> str:
    r"""Finds the answer: what is in the last ``\boxed{}``, else what follows ``Answer:``, else the last line."""
    return extract_boxed_answer(text, strict=True) or stated_answer(text)

"""Loads datasets by a short name: ``load_example_dataset("gsm8k")``. The first use downloads the rows from the hub."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, TypeAlias

from nightjar.core.extras import import_extra
from nightjar.environments.data.hub import load_hub_dataset
from nightjar.environments.data.sources import read_rows
from nightjar.environments.parsers import extract_boxed_answer, extract_hash_answer, strip_non_numeric

if TYPE_CHECKING:
    from datasets import Dataset

THINK_BOXED_SYSTEM_PROMPT = (
    "Think step-by-step inside <think>...</think> tags.     Then, give your final answer inside \\boxed{}."
)
BOXED_SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."

Row: TypeAlias = Mapping[str, Any]
_GPQA_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_PRIME_CODE_START = "Solve the following coding problem using the programming language python:"


@dataclass(frozen=True)
class ExampleDataset:
    repository: str
    split: str
    preprocess: Callable[[Row], dict[str, Any]]
    configs: Sequence[str | None] = (None,)
    is_wanted: Callable[[Row], Any] = lambda row: True  # noqa: ARG005


def _columns(question: str, answer: str, convert: Callable[[Any], Any] = lambda value: value) -> Callable[[Row], Any]:
    return lambda row: {"question": row[question], "answer": convert(row[answer])}


def _gpqa_question(row: Row) -> dict[str, str]:
    order = list(_GPQA_CHOICES)
    random.Random(row["Question"]).shuffle(order)  # noqa: S311 - no secret is made of it
    answer = ascii_uppercase[order.index("Correct Answer")]
    return _multiple_choice(row["Question"], (row[name] for name in order), answer)


def _openbookqa_question(row: Row) -> dict[str, str]:
    labelled = zip(row["choices"]["label"], row["choices"]["text"], strict=True)
    choices = "\n".join(f"{label}. {text}" for label, text in labelled)
    return {"question": f"Question: {row['question_stem']}\n\nChoices:\n{choices}", "answer": row["answerKey"]}


def _multiple_choice(question: str, choices: Iterable[str], answer: str) -> dict[str, str]:
    lines = "\n".join(f"{letter}: {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return {"question": f"Question: {question}\n\n{lines}", "answer": answer}


_PROBLEM = _columns("problem", "answer")

EXAMPLE_DATASETS: Mapping[str, ExampleDataset] = {
    "aime2024": ExampleDataset(
        "HuggingFaceH4/aime_2024", "train", _columns("problem", "answer", lambda answer: str(int(answer)))
    ),
    "aime2025": ExampleDataset(
        "opencompass/AIME2025", "test", _columns("question", "answer", strip_non_numeric), ("AIME2025-I", "AIME2025-II")
    ),
    "amc2023": ExampleDataset("knoveleng/AMC-23", "train", _PROBLEM),
    "gpqa_diamond": ExampleDataset("Idavidrein/gpqa", "train", _gpqa_question, configs=("gpqa_diamond",)),
    "gpqa_main": ExampleDataset("Idavidrein/gpqa", "train", _gpqa_question, configs=("gpqa_main",)),
    "gsm8k": ExampleDataset("openai/gsm8k", "test", _columns("question", "answer", extract_hash_answer), ("main",)),
    "math": ExampleDataset(
        "chiayewken/competition_math", "train", _columns("problem", "solution", extract_boxed_answer)
    ),
    "math500": ExampleDataset("HuggingFaceH4/MATH-500", "test", _PROBLEM),
    "mmlu": ExampleDataset(
        "cais/mmlu",
        "dev",
        lambda row: _multiple_choice(row["question"], row["choices"], ascii_uppercase[row["answer"]]),
        configs=("all",),
    ),
    "mmlu_pro": ExampleDataset(
        "TIGER-Lab/MMLU-Pro",
        "validation",
        lambda row: _multiple_choice(row["question"], row["options"], row["answer"]),
    ),
    "openbookqa": ExampleDataset("allenai/openbookqa", "train", _openbookqa_question, configs=("main",)),
    "openrs": ExampleDataset("knoveleng/open-rs", "train", _PROBLEM),
    "openrs_easy": ExampleDataset("knoveleng/open-rs", "train", _PROBLEM, is_wanted=lambda row: row["level"] == "Easy"),
    "openrs_hard": ExampleDataset("knoveleng/open-rs", "train", _PROBLEM, is_wanted=lambda row: row["level"] == "Hard"),
    "prime_code": ExampleDataset(
        "PrimeIntellect/verifiable-coding-problems",
        "train",
        _columns("prompt", "verification_info"),
        is_wanted=lambda row: row["prompt"].startswith(_PRIME_CODE_START),
    ),
}


def load_example_dataset(
    name: str = "gsm8k", split: str | None = None, n: int | None = None, seed: int = 0, path: str | Path | None = None
) -> Dataset:
    """Loads a dataset by its short name, one of ``EXAMPLE_DATASETS``, as rows with ``question`` and ``answer``.

    ``n`` rows are drawn with ``seed``; None or 0 means all rows in their order.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("gsm8k.jsonl").write_text('{"question": "6 * 7?", "answer": "6 * 7 = 42 #### 42"}')
        >>> load_example_dataset("gsm8k", path="gsm8k.jsonl")[0]
        {'question': '6 * 7?', 'answer': '42'}
    """
    import numpy as np

    datasets = import_extra("datasets", "datasets", "load_example_dataset()")
    known = _known(name)
    split = split or known.split
    parts = (load_hub_dataset(known.repository, config, split) for config in known.configs)
    rows = [row for part in ([read_rows(path)] if path else parts) for row in part if known.is_wanted(row)]
    if n and n > 0:  # the rows that Dataset.shuffle(seed) puts first
        rows = [rows[position] for position in np.random.default_rng(seed).permutation(len(rows))[:n]]
    return datasets.Dataset.from_list([known.preprocess(row) for row in rows])


def get_preprocess_fn(name: str) -> Callable[[Row], dict[str, Any]]:
    r"""Returns the function that turns a row of the hub into ``question`` and ``answer``.

    Example:
        >>> get_preprocess_fn("math")({"problem": "6 * 7?", "solution": r"It is \boxed{42}."})
        {'question': '6 * 7?', 'answer': '42'}
    """
    return _known(name).preprocess


def _known(name: str) -> ExampleDataset:
    if name not in EXAMPLE_DATASETS:
        raise ValueError(f"Unknown example dataset {name!r}. Choose one of: {', '.join(EXAMPLE_DATASETS)}")
    return EXAMPLE_DATASETS[name]

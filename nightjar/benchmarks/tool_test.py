"""Call the requested tools: whether a model and its endpoint can call tools at all.

From verifiers' `tool-test`; its questions are generated, without a download. Run and example::

    nightjar eval run tool-test -m gpt-4.1-mini -p openai -n 100

    question: Call these tools, each once, with any arguments: tool_A, tool_C
    answer:   tool_A tool_C

The reward is 1 if the reply calls exactly these tools, in any order. There is one turn, without tool results.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from nightjar.core.messages import AssistantMessage, ToolCall
from nightjar.environments import ToolEnv
from nightjar.environments.rubrics import Rubric


def tool_A(x: int) -> int:  # noqa: N802 - the names are the test's
    """Returns an integer.

    Args:
        x: any integer.
    """
    return x


def tool_B(x: str) -> str:  # noqa: N802
    """Returns a text.

    Args:
        x: any text.
    """
    return x


def tool_C(x: float) -> float:  # noqa: N802
    """Returns a number.

    Args:
        x: any number.
    """
    return x


def tool_D(x: bool) -> bool:  # noqa: N802
    """Returns a truth value.

    Args:
        x: true or false.
    """
    return x


TOOLS = (tool_A, tool_B, tool_C, tool_D)


def load_environment(num_train_examples: int = 1000, num_eval_examples: int = 100) -> ToolEnv:
    return ToolEnv(
        tools=list(TOOLS),
        dataset=lambda: make_examples(num_train_examples, seed=42),
        eval_dataset=lambda: make_examples(num_eval_examples, seed=43),
        rubric=Rubric(funcs=[called_as_asked]),
        reference_reply=reference_reply,
        max_turns=1,
    )


def make_examples(number: int, seed: int) -> list[dict[str, Any]]:
    generator = random.Random(seed)  # noqa: S311 - no secret is made of it
    examples = []
    for _ in range(number):
        names = sorted(tool.__name__ for tool in generator.sample(TOOLS, generator.randint(1, len(TOOLS))))
        question = f"Call these tools, each once, with any arguments: {', '.join(names)}"
        info = {"tool_names": names, "category": f"{len(names)} tools"}
        examples.append({"question": question, "answer": " ".join(names), "info": info})
    return examples


def reference_reply(example: Mapping[str, Any]) -> AssistantMessage:
    names = example["info"]["tool_names"]
    return AssistantMessage(
        content=None, tool_calls=[ToolCall(id=name, name=name, arguments='{"x": 1}') for name in names]
    )


def called_as_asked(completion: Any, info: dict[str, Any]) -> float:
    """1.0 if the last message has exactly the requested calls, else 0.0."""
    said = [message for message in completion if message["role"] == "assistant"]
    called = sorted(call["name"] for call in (said[-1].get("tool_calls") or ())) if said else []
    return float(called == info["tool_names"])

"""Shows some rollouts in the terminal: what was asked, what was said, what it is worth."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from nightjar.adapters.verifiers.error_chains import ErrorChain
from nightjar.messages import content_text

if TYPE_CHECKING:
    from rich.text import Text


@overload
def print_prompt_completions_sample(outputs: Any, n: int = 3) -> None: ...
@overload
def print_prompt_completions_sample(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    errors: Sequence[Any],
    rewards: Sequence[float | None],
    step: int,
    num_samples: int = 1,
) -> None: ...
def print_prompt_completions_sample(*args: Any, **kwargs: Any) -> None:
    """Prints the first rollouts of ``generate`` or ``evaluate`` as a table.

    Args:
        *args: what ``generate`` returns, or its rows; or prompts, completions, errors, rewards and the number of a
            training step.
        **kwargs: the same by name; ``n``, or ``num_samples``, is how many are printed.

    Example:
        >>> row = {"prompt": "2+2?", "completion": [{"role": "assistant", "content": "4"}], "reward": 1.0}
        >>> print_prompt_completions_sample({"outputs": [row]}, n=1)  # doctest: +ELLIPSIS
        ╭─...
    """
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table

    has_columns = len(args) > 2 or "prompts" in kwargs or "completions" in kwargs  # noqa: PLR2004 - outputs and n
    title, rows = (_of_columns if has_columns else _of_outputs)(*args, **kwargs)
    table = Table("Prompt", "Completion", expand=True, show_lines=True)
    table.add_column("Reward", justify="right")
    for row in rows:
        reward = "none" if row.get("reward") is None else f"{row['reward']:.2f}"
        table.add_row(_text(row.get("prompt")), _said(row), reward)
    Console().print(Panel(table, title=title))


def _of_outputs(outputs: Any, n: int = 3) -> tuple[str, Sequence[Any]]:
    rows = outputs["outputs"] if isinstance(outputs, Mapping) else outputs
    return f"{min(n, len(rows))} of {len(rows)} rollouts", rows[:n]


def _of_columns(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    errors: Sequence[Any],
    rewards: Sequence[float | None],
    step: int,
    num_samples: int = 1,
) -> tuple[str, Sequence[Any]]:
    known = [*rewards, *[None] * (len(prompts) - len(rewards))]
    columns = zip(prompts, completions, errors, known, strict=False)
    names = ("prompt", "completion", "error", "reward")
    return f"Step {step}", [dict(zip(names, row, strict=True)) for row in columns][:num_samples]


def _said(row: Any) -> Text:
    text, error = _text(row.get("completion")), row.get("error")
    if error is not None:
        chain = ErrorChain(error) if isinstance(error, BaseException) else error["error_chain_repr"]
        text.append(f"\n\nerror: {chain}", style="bold red")
    return text


def _text(messages: Any) -> Text:
    from rich.text import Text

    text = Text()
    if isinstance(messages, str):
        return text.append(_printable(messages))
    for number, message in enumerate(messages or []):
        text.append("\n\n" if number else "").append(f"{message.get('role')}: ", style="bold")
        text.append(_printable(message.get("reasoning_content") or ""), style="dim")
        text.append(_printable(content_text(message.get("content"))))
        for call in message.get("tool_calls") or ():
            text.append(_printable(f"\n[tool call] {_call(call)}"), style="cyan")
    return text


def _call(call: Any) -> str:
    function = call.get("function", call) if not isinstance(call, str) else call
    return function if isinstance(function, str) else f"{function.get('name')}({function.get('arguments')})"


def _printable(text: str) -> str:
    """Returns a text without what a terminal would obey or cannot show."""
    return "".join("\ufffd" if _is_odd(character) else character for character in text)


def _is_odd(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in {"Cc", "Cs", "Co", "Cn"}

"""Prints results of verifiers to the terminal: sample rollouts, rewards, metrics, timing and tokens."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, overload

from nightjar.compat.verifiers.error_chains import ErrorChain
from nightjar.core.messages import content_text
from nightjar.core.text import harmless
from nightjar.environments.generation import GenerateOutputs

if TYPE_CHECKING:
    from rich.text import Text


def to_col_order(list_of_dicts: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Returns a list of values for each name that all rows have."""
    shared = [name for name in (list_of_dicts[0] if list_of_dicts else {}) if all(name in row for row in list_of_dicts)]
    return {name: [row[name] for row in list_of_dicts] for name in shared}


def output_env_id(output: Mapping[str, Any]) -> str:
    """Returns the environment of a row in a group of environments; empty if the row names no environment."""
    info = output.get("info")
    return str((info.get("env_id") if isinstance(info, Mapping) else None) or output.get("env_id") or "")


def get_env_outputs(results: Mapping[str, Any], env_id: str) -> GenerateOutputs:
    rows = [row for row in results["outputs"] if output_env_id(row) == env_id]
    return GenerateOutputs(outputs=rows, metadata=results["metadata"])


def print_rewards(results: Mapping[str, Any]) -> None:
    rows = results["outputs"]
    rewards = [row["reward"] for row in rows if row.get("reward") is not None]
    _print("Rewards:")
    _print_spread("reward", rewards)
    for name, values in to_col_order([row["metrics"] for row in rows if row.get("metrics")]).items():
        _print_spread(name, [value for value in values if value is not None])
    for label, sign in (("pass_at_k", "pass@"), ("pass_all_k", "pass^")):
        for k, value in (results["metadata"].get(label) or {}).items():
            _print(f"  {sign}{k}: {value:.3f}")


def print_info(results: Mapping[str, Any]) -> None:
    rows = results["outputs"]
    _print("Info:")
    _print(f"  is_truncated: {sum(bool(row.get('is_truncated')) for row in rows)} of {len(rows)}")
    for title, names in (
        ("stop_conditions", Counter(row.get("stop_condition") or "none" for row in rows)),
        ("errors", Counter(row["error"]["error_chain_repr"] for row in rows if row.get("error"))),
    ):
        if names:
            _print(f"  {title}: " + ", ".join(f"{name} ({count})" for name, count in names.most_common()))


def print_timing(results: Mapping[str, Any]) -> None:
    _print("Timing:")
    for name, values in to_col_order([row["timing"] for row in results["outputs"] if row.get("timing")]).items():
        _print(f"  {name}: min {min(values):.0f}, mean {fmean(values):.0f}, max {max(values):.0f}")


def print_usage(results: Mapping[str, Any]) -> None:
    usages = [row["token_usage"] for row in results["outputs"] if row.get("token_usage")]
    if usages:
        _print("Usage:")
        for name, values in to_col_order(usages).items():
            _print(f"  {name}: mean {fmean(values):.1f}")


def print_results(results: Mapping[str, Any], num_samples: int = 1) -> None:
    """Prints an evaluation with some sample rollouts. The environments of a group are printed one after the other."""
    metadata = results["metadata"]
    _print(f"--- {metadata['env_id']} | {metadata['model']} ---")
    _print(f"Examples: {metadata['num_examples']}, rollouts of each: {metadata['rollouts_per_example']}")
    print_prompt_completions_sample(results, n=num_samples)
    env_ids = sorted({output_env_id(row) for row in results["outputs"]} - {""})
    is_group = len(env_ids) > 1
    for part in [get_env_outputs(results, env_id) for env_id in env_ids] if is_group else [results]:
        if is_group:
            _print(f"--- {output_env_id(part['outputs'][0])} ---")
        for show in (print_rewards, print_info, print_timing, print_usage):
            show(part)


def _print(text: str) -> None:
    print(harmless(text))  # noqa: T201 - printing is what verifiers' functions of these names do


def _print_spread(name: str, values: Sequence[float]) -> None:
    _print(f"  {name}: avg {fmean(values):.3f}, std {pstdev(values):.3f}" if values else f"  {name}: none")


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

    The arguments are the outputs or their rows, or prompts, completions, errors, rewards and the training step. All may
    be passed by name. ``n`` or ``num_samples`` is the number of rollouts to print.

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
        table.add_row(_text(row.get("prompt")), _completion_text(row), reward)
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


def _completion_text(row: Any) -> Text:
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
    """Replaces control characters, surrogates and unassigned characters, which a terminal may obey or cannot show."""
    return "".join("\ufffd" if _is_odd(character) else character for character in text)


def _is_odd(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in {"Cc", "Cs", "Co", "Cn"}

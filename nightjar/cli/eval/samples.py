"""``nightjar eval samples``: the rollouts of a run, as they were said.

nightjar eval samples 0a1b2c3d4e5f --failed
nightjar eval samples 0a1b2c3d4e5f --example 12 --full
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

import typer

from nightjar.cli.eval.arguments import RunArgument
from nightjar.cli.terminal import echo
from nightjar.cli.warehouse import JsonOption, WarehouseOption
from nightjar.cli.warehouse.output import print_json
from nightjar.evaluation.stored_runs import find_stored_run
from nightjar.messages import content_text
from nightjar.terminal import harmless

_LONGEST_TEXT = 1_500


def eval_samples(
    run: RunArgument,
    failed: Annotated[bool, typer.Option("--failed", help="Those with an error alone.")] = False,
    example: Annotated[int | None, typer.Option(metavar="N", help="Those of one example, by its id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="So many at the most.")] = 3,
    skip: Annotated[int, typer.Option(min=0, metavar="N", help="Leave out the first so many.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="Cut no text.")] = False,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show rollouts of a run: prompt, completion, answer, reward, error.

    Examples: nightjar eval samples 0a1b2c --failed | nightjar eval samples 0a1b2c --example 12 --full
    """
    found = find_stored_run(run, warehouse=warehouse)
    wanted = (row for row in found.rows() if _is_wanted(row, example=example, failed=failed))
    rows = [*islice(wanted, skip, skip + limit)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        _print_rollout(row, None if full else _LONGEST_TEXT)
    if next(wanted, None):
        echo(f"There are more: --skip {skip + limit}", err=True)
    elif not rows:
        echo("There is no such rollout.", err=True)


def _is_wanted(row: Mapping[str, Any], *, example: int | None, failed: bool) -> bool:
    return bool(row["error"] or not failed) and example in {None, row["example_id"]}


def _print_rollout(row: Mapping[str, Any], longest: int | None) -> None:
    reward = "not scored" if row["reward"] is None else f"reward {row['reward']:g}"
    echo(harmless(f"══ example {row['example_id']}, rollout {row['rollout_index']}: {reward} ".ljust(72, "═")))
    for label, text in _parts(row):
        is_cut = longest is not None and len(text) > longest
        shown = f"{text[:longest]}… ({len(text) - (longest or 0):,} more characters: --full)" if is_cut else text
        echo(harmless(f"── {label}\n{shown}"))
    echo()


def _parts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _messages(row["prompt"], "prompt, ")
    yield from _messages(row["completion"] or (), "completion, ")
    if row.get("answer"):
        yield "answer", str(row["answer"])
    if row["metrics"]:
        yield "metrics", "  ".join(f"{name}: {value}" for name, value in row["metrics"].items())
    if row["error"]:
        yield "error", f"{row['error']['error']}: {row['error']['message']}"


def _messages(messages: str | Iterable[Mapping[str, Any]], part: str) -> Iterator[tuple[str, str]]:
    if isinstance(messages, str):
        yield part + "text", messages
        return
    for message in messages:
        calls = [f"{call['name']}({call['arguments']})" for call in message.get("tool_calls") or ()]
        yield part + message["role"], "\n".join([content_text(message.get("content")), *calls]).strip("\n")

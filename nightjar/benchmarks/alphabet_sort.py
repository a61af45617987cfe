"""Sort names by first or last name, and keep sorting as more names come, turn by turn.

From verifiers' `alphabet-sort`; its data, names of the authors of papers, has no stated licence. Run and example::

    nightjar eval run alphabet-sort -m gpt-4.1-mini -p openai -n 50

    user:      Sort these names by last name … AdaLovelace, AlanTuring
    assistant: <alphabetical_sorted>AdaLovelace, AlanTuring (one per line)</alphabetical_sorted>
    user:      Add these names … GraceHopper
    assistant: <combined_alphabetical_sorted>GraceHopper // new name!, AdaLovelace, AlanTuring</combined_…>

The score of a turn is the similarity of its list to the correct list (`difflib`, line by line), raised to the power of
`similarity_power`. The reward is the mean over turns. A turn scores 0 if its tag is missing or occurs several times.
Ties are sorted by the rest of the name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from nightjar.core.calling.decorators import stop
from nightjar.core.messages import Messages, UserMessage, content_text
from nightjar.core.rollout.state import State
from nightjar.environments import MultiTurnEnv
from nightjar.environments.data import BenchmarkData
from nightjar.environments.parsers import without_thoughts
from nightjar.environments.rubrics import Rubric

DATA = BenchmarkData(
    "kalomaze/alphabetic-arxiv-authors-it1", None, "not stated", ("names",), split="train", nested={"names": list}
)
NEW = " // new name!"
_LONGEST = 10
"""A reply is compared if it is at most this many times as long as the correct list."""

FIRST, LATER = "alphabetical_sorted", "combined_alphabetical_sorted"

_FIRST_PROMPT = """Sort these names in alphabetical order by {by} name:

{names}

Give the list inside <alphabetical_sorted> tags, a name a line, each as it is written here."""
_LATER_PROMPT = """Here are more names:

{names}

Sort all names of this conversation by {by} name. Give the whole list inside <combined_alphabetical_sorted> tags, a \
name a line, and put "// new name!" behind each of the names that are new in this message."""


class AlphabetSortEnv(MultiTurnEnv):
    @stop
    async def sorted_all(self, state: State) -> bool:
        return len(state["trajectory"]) == len(state["info"]["lists"])

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:  # noqa: ARG002
        turn = len(state["trajectory"])
        return [UserMessage(content=state["info"]["follow_ups"][turn - 1])]


def load_environment(
    dataset: str | None = None,
    max_turns: int = 3,
    min_turns: int = 1,
    min_names_per_turn: int = 1,
    max_names_per_turn: int = 5,
    similarity_power: float = 4,
    power_per_turn: bool = True,
    dataset_split: str = "train",
    seed: int = 1337420,
) -> MultiTurnEnv:
    """Loads lists of names; ``seed`` decides the turns, names and orders of each example.

    ``similarity_power`` is the exponent of each turn's similarity, or of the mean over turns if ``power_per_turn`` is
    false. With a high exponent, only correct lists score well.
    """
    turns, names = range(min_turns, max_turns + 1), range(min_names_per_turn, max_names_per_turn + 1)
    rubric = Rubric(funcs=[sorted_right])
    rubric.add_class_object("similarity_power", similarity_power)
    rubric.add_class_object("power_per_turn", power_per_turn)
    return AlphabetSortEnv(
        eval_dataset=lambda: DATA.examples(
            partial(make_example, turns=turns, names=names, seed=seed), dataset, dataset_split
        ),
        rubric=rubric,
        reference_reply=reference_reply,
        max_turns=max_turns,
    )


def make_example(row: dict[str, Any], turns: range, names: range, seed: int) -> dict[str, Any] | None:
    """Returns an example made from a list of names; None if the list is too short for a turn."""
    generator = random.Random(f"{seed}:{row['names']}")  # noqa: S311
    known = list({"".join(name.split()): name for name in row["names"] if len(name.split()) > 1}.values())
    generator.shuffle(known)
    parts = []
    for _ in range(generator.choice(turns)):
        number = generator.choice(names)
        part, known = known[:number], known[number:]
        parts += [part] if part else []
    if not parts:
        return None
    by = generator.choice(["first", "last"])
    asked = [_asked(part, by, is_first=part is parts[0]) for part in parts]
    lists = [_sorted_list(parts[: turn + 1], by) for turn in range(len(parts))]
    info = {"follow_ups": asked[1:], "lists": lists, "category": f"{len(parts)} turns", "sorted_by": by}
    return {"question": asked[0], "answer": "\n".join(lists[-1]), "info": info}


def _asked(part: Sequence[str], by: str, *, is_first: bool) -> str:
    prompt = _FIRST_PROMPT if is_first else _LATER_PROMPT
    return prompt.format(by=by, names="\n".join("".join(name.split()) for name in part))


def _sorted_list(parts: Sequence[Sequence[str]], by: str) -> list[str]:
    fresh = set(parts[-1]) if len(parts) > 1 else set()
    ordered = sorted((name for part in parts for name in part), key=lambda name: _key(name, by))
    return ["".join(name.split()) + (NEW if name in fresh else "") for name in ordered]


def _key(name: str, by: str) -> tuple[str, ...]:
    first, _, last = name.lower().partition(" ")
    return (first, last) if by == "first" else (last, first)


def reference_reply(example: Mapping[str, Any]) -> list[str]:
    tags = [FIRST] + [LATER] * len(example["info"]["follow_ups"])
    lists = ("\n".join(names) for names in example["info"]["lists"])
    return [f"<{tag}>\n{names}\n</{tag}>" for tag, names in zip(tags, lists, strict=True)]


def sorted_right(completion: Any, info: dict[str, Any], similarity_power: float, power_per_turn: bool) -> float:
    """The mean similarity of the lists of all turns to the correct lists, from 0 to 1."""
    said = [content_text(message["content"] or "") for message in completion if message["role"] == "assistant"]
    said += [""] * (len(info["lists"]) - len(said))
    likenesses = [
        _likeness(text, right, turn) for turn, (text, right) in enumerate(zip(said, info["lists"], strict=False))
    ]
    if power_per_turn:
        return float(sum(likeness**similarity_power for likeness in likenesses) / len(likenesses))
    return float((sum(likenesses) / len(likenesses)) ** similarity_power)


def _likeness(text: str, right: Sequence[str], turn: int) -> float:
    tag = LATER if turn else FIRST
    found = re.findall(rf"<{tag}>((?:(?!<{tag}>).)*?)</{tag}>", without_thoughts(text), re.DOTALL)
    if len(found) != 1:
        return 0.0
    lines = [" ".join(line.split()).lower() for line in found[0].splitlines() if line.strip()]
    wanted = [" ".join(line.split()).lower() for line in right]
    given, expected = "\n".join(lines), "\n".join(wanted)
    if len(given) > _LONGEST * len(expected):
        return 0.0
    return SequenceMatcher(None, given, expected, autojunk=False).ratio()

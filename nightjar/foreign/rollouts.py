"""``Rollout``: one of another program's; ``ResultsWriter`` puts a run's into ``results.jsonl``, in order."""

from __future__ import annotations

import hashlib
import json
import logging
from array import array
from collections.abc import Iterator
from contextlib import suppress
from math import fsum, isclose, isnan, nan
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, ConfigDict

from nightjar.data import example_hash, fingerprint
from nightjar.errors import ConfigError
from nightjar.foreign.reading import Lenient, measures
from nightjar.messages import dump_messages, normalize_messages
from nightjar.runs import Key
from nightjar.runs.index import RolloutIndex
from nightjar.runs.jsonl import JsonLines, replace_file

_AVERAGES_AGREE = 1e-4
"""NeMo Evaluator rounds to four digits."""
_LEFT_OUT_WHEN_EMPTY = frozenset({"answer", "info", "task", "tool_defs"})
_log = logging.getLogger(__name__)


def messages(value: Any) -> Any:
    """Returns messages as Nightjar writes them; what is no message stays as it is.

    Tool calls may be texts of JSON, as ``verifiers`` saves them, or nested, as OpenAI nests them.
    """
    if not isinstance(value, str | list):
        return None
    read = [_with_read_calls(message) for message in value] if isinstance(value, list) else value
    try:
        return dump_messages(normalize_messages(read))
    except ConfigError:
        return value


def _with_read_calls(message: Any) -> Any:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    return {**message, "tool_calls": [parsed(call) for call in calls]} if isinstance(calls, list) else message


def parsed(value: Any) -> Any:
    """Returns what a text of JSON holds; anything else as it is."""
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value


class Rollout(Lenient):
    """A rollout as ``results.jsonl`` has it; what is not told is null, and any further field is a state column."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    example_id: int = 0
    rollout_index: int = 0
    example_hash: str = ""
    prompt: Annotated[Any, AfterValidator(messages)] = None
    completion: Annotated[Any, AfterValidator(messages)] = None
    answer: Any = None
    info: Annotated[Any, AfterValidator(parsed)] = None
    task: Any = None
    reward: float | None = None
    advantage: None = None
    metrics: Annotated[dict[str, Any], AfterValidator(measures)]
    error: dict[str, Any] | None = None
    timing: dict[str, float | None]
    is_completed: bool | None = None
    is_truncated: bool | None = None
    stop_condition: str | None = None
    token_usage: dict[str, int] | None = None
    attempts: None = None
    model: str | None = None
    tool_defs: Any = None

    def row(self) -> dict[str, Any]:
        """Returns the row of one that is alone of its example; one that failed has no reward, metrics and model."""
        row = {name: value for name, value in self if value or name not in _LEFT_OUT_WHEN_EMPTY}
        if self.error is not None:
            row |= {"reward": None, "metrics": {}, "model": None}
        return row | {"advantage": None if row["reward"] is None else 0.0}


class ResultsWriter:
    """Writes a run's results; of a rollout only a few numbers are kept in memory.

    Args:
        folder: gets ``results.jsonl``.

    Attributes:
        path: of that.
        hashes: example_id to the content hash that its first row gave it: one example has one hash in a run.
        state_columns: names, in the order in which they are met.
        most_rollouts: the highest rollout index of any example, plus 1.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.jsonl"
        self.hashes: dict[int, str] = {}
        self.state_columns: dict[str, None] = {}
        self.most_rollouts = 0
        self._unordered = JsonLines(folder / ".unordered.jsonl")
        self._index = RolloutIndex()
        self._said_rewards = array("d")

    def close(self) -> None:
        """Closes its files."""
        self._unordered.close()

    def __len__(self) -> int:
        """Returns how many rollouts there are."""
        return len(self._said_rewards)

    def add(self, rollout: Rollout) -> None:
        """Takes a rollout; of several with the same example id and rollout index, the last counts."""
        example = {"prompt": rollout.prompt, "answer": rollout.answer or "", "info": rollout.info or {}}
        rollout.example_hash = self.hashes.setdefault(rollout.example_id, example_hash(example))
        row = rollout.row()
        self.most_rollouts = max(self.most_rollouts, rollout.rollout_index + 1)
        self.state_columns |= dict.fromkeys(rollout.model_extra or ())
        slot = self._index.slot(Key(rollout.example_id, rollout.rollout_index))
        [place] = self._unordered.append([row])
        self._index.set_result(slot, place, (row["reward"], 0.0))
        said = nan if rollout.reward is None else rollout.reward
        self._said_rewards[slot : slot + 1] = array("d", [said])

    def finish(self) -> None:
        """Writes ``results.jsonl``: in order, one line a rollout, with advantages."""
        replace_file(self.path, self._lines())
        self._unordered.path.unlink()

    def content_hash(self) -> str:
        """Identifies all that was written."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def compare_average(self, source: object, said: float | None) -> None:
        """Warns where the other program's average reward is not that of its rows, failed ones counted as it does."""
        rewards = [reward for reward in self._said_rewards if not isnan(reward)]
        if said is None or not rewards:
            return
        found = fsum(rewards) / len(rewards)
        if not isclose(said, found, abs_tol=_AVERAGES_AGREE):
            _log.warning(
                "%s: the average reward was given as %s, but the rows give %s; Nightjar's aggregates follow the rows.",
                source, said, found,
            )  # fmt: skip

    def _lines(self) -> Iterator[bytes]:
        moved = self._index.moved_advantages()
        for slot in self._index.recorded_slots():
            place = self._index.recorded[slot]
            if slot in moved:
                row = self._unordered.read_row(place) | {"advantage": moved[slot]}
                yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
            else:
                yield self._unordered.read_line(place)


def error_row(chain: str, message: str, detail: str | None = None) -> dict[str, Any]:
    """Returns an error as Nightjar records it: the names of its classes, its message, the names with all messages."""
    name = chain.partition(" -> ")[0]
    return {
        "error": name,
        "message": message,
        "phase": "scoring" if name == "ScoringError" else "generation",
        "error_chain_repr": chain,
        "error_chain_str": detail or f"{chain}: {message}",
        "traceback": None,
    }


def digest(*parts: Any) -> str:
    """Returns 16 hex digits that identify JSON-ready values."""
    content = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return fingerprint([content.decode()])

"""``Rollout`` is a rollout of another program; ``ResultsWriter`` writes such rollouts to ``results.jsonl``."""

from __future__ import annotations

import hashlib
import json
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import fsum, isclose, isnan, nan
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, ConfigDict

from nightjar.core.files import replace_file
from nightjar.core.messages import dump_messages, normalize_messages
from nightjar.engine.runs import Key
from nightjar.engine.runs.identity import fingerprint
from nightjar.engine.runs.index import RolloutIndex
from nightjar.engine.runs.jsonl import JsonLines
from nightjar.environments.data import example_hash
from nightjar.errors import ConfigError, WarehouseError
from nightjar.importers.reading import Lenient, Line, measures

_AVERAGES_AGREE = 1e-4
"""NeMo Evaluator rounds to four digits."""
_LEFT_OUT_WHEN_EMPTY = frozenset({"answer", "info", "task", "tool_defs"})
_log = logging.getLogger(__name__)


def messages(value: Any) -> Any:
    """Returns messages in Nightjar's form, from verifiers' or OpenAI's tool calls; leaves other values unchanged."""
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
    """Parses a JSON string; other values are left unchanged."""
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value


class Rollout(Lenient):
    """A rollout as in ``results.jsonl``; unknown values are null, and further fields are state columns."""

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
        """Returns the row, with the advantage of a single rollout. A failed rollout has no reward, metrics or model."""
        row = {name: value for name, value in self if value or name not in _LEFT_OUT_WHEN_EMPTY}
        if self.error is not None:
            row |= {"reward": None, "metrics": {}, "model": None}
        return row | {"advantage": None if row["reward"] is None else 0.0}


class ResultsWriter:
    """Writes the results of a run to ``path``, with only a few numbers per rollout in memory.

    ``hashes`` are the content hashes of examples, from their first rows. ``most_rollouts`` is the highest index plus 1.
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
        self._unordered.close()

    def __len__(self) -> int:
        return len(self._said_rewards)

    def add(self, rollout: Rollout) -> None:
        """Adds a rollout; it replaces an earlier rollout with the same example and rollout index."""
        example = {"prompt": rollout.prompt, "answer": rollout.answer or "", "info": rollout.info or {}}
        rollout.example_hash = self.hashes.setdefault(rollout.example_id, example_hash(example))
        row = rollout.row()
        self.most_rollouts = max(self.most_rollouts, rollout.rollout_index + 1)
        self.state_columns |= dict.fromkeys(rollout.model_extra or ())
        slot = self._index.slot(Key(rollout.example_id, rollout.rollout_index))
        [place] = self._unordered.append([row])
        self._index.set_result(slot, place, (row["reward"], 0.0))
        reward = nan if rollout.reward is None else rollout.reward
        self._said_rewards[slot : slot + 1] = array("d", [reward])

    def add_readable(self, lines: Iterable[Line], read: Callable[[Line], Rollout], unreadable: list[str]) -> None:
        """Adds the rollouts of rows; adds to ``unreadable`` what ``read`` reports about rows that are no rollouts."""
        for line in lines:
            try:
                self.add(read(line))
            except WarehouseError as error:
                unreadable.append(str(error))
            except RecursionError:
                unreadable.append(f"{line.place} is nested too deeply")

    def require_some(self, source: object, unreadable: Sequence[str]) -> None:
        """Raises WarehouseError if all rows are unreadable."""
        if unreadable and not len(self):
            raise WarehouseError(f"{str(source)!r} has no readable row; {unreadable[0]}")

    def finish(self) -> None:
        """Writes ``results.jsonl``, sorted, one line per rollout, with advantages."""
        replace_file(self.path, self._lines())
        self._unordered.path.unlink()

    def content_hash(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def compare_average(self, source: object, average: float | None) -> None:
        """Warns if the other program's average reward differs from the average of its rows, including failed ones."""
        rewards = [reward for reward in self._said_rewards if not isnan(reward)]
        if average is None or not rewards:
            return
        found = fsum(rewards) / len(rewards)
        if not isclose(average, found, abs_tol=_AVERAGES_AGREE):
            _log.warning(
                "%s: the recorded average reward is %s, but the average of the rows is %s. Nightjar uses the rows.",
                source, average, found,
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
    """Returns an error as Nightjar records it, from the names of its classes and all messages."""
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
    content = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return fingerprint([content.decode()])

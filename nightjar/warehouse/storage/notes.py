"""What people have noted of rollouts: ``notes.jsonl`` in the folder of the warehouse, a line each.

{"note_id":"1f0c…","run_id":"0a1b2c3d4e5f","example_id":3,"rollout_index":0,"mark":"wrong grade","comment":"…",…}
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from nightjar.warehouse.storage.line_files import LineFile

Mark: TypeAlias = Literal["wrong grade", "bad question", "interesting"]
"""What somebody thinks of a rollout."""


@dataclass(frozen=True)
class Note:
    """What somebody has noted of a rollout; its recorded reward stays as it is.

    Attributes:
        note_id: a later note with the same one replaces it.
        run_id, example_id, rollout_index: the rollout.
        mark: in a word or two.
        author: who; as they call themselves.
        written_at: when.
        comment: in their words.
        overruled_reward: what the reward should be, in their view; None where they do not say.
        is_withdrawn: whether it no longer holds; then no view has it.
    """

    note_id: str
    run_id: str
    example_id: int
    rollout_index: int
    mark: Mark
    author: str
    written_at: datetime
    comment: str = ""
    overruled_reward: float | None = None
    is_withdrawn: bool = False


NOTES = LineFile("notes", "note", Note, ("note_id",))

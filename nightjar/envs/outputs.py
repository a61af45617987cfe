"""What ``Environment.generate`` takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from nightjar.rollout.state import RolloutInput

Row: TypeAlias = dict[str, Any]
StartCallback: TypeAlias = Callable[[list[RolloutInput], Any], None]
ProgressCallback: TypeAlias = Callable[[list[Row], list[Row], dict[str, Any]], None]
LogCallback: TypeAlias = Callable[[str], None]


GenerateMetadata: TypeAlias = dict[str, Any]
"""What a run was and what it came to, as in ``metadata.json``, see docs/run-directory.md."""


class GenerateOutputs(TypedDict):
    """What ``generate`` returns.

    Attributes:
        outputs: a row a rollout, as in ``results.jsonl``, ordered by (example_id, rollout_index).
        metadata: environment, model, arguments and aggregates, as in ``metadata.json``.
    """

    outputs: list[Row]
    metadata: GenerateMetadata


@dataclass(frozen=True)
class Generation:
    """How rollouts are generated.

    Attributes:
        max_concurrent: rollouts at once; -1 for no limit.
        results_path: a folder that becomes the run directory; where it holds this run already, only what is owed
            is done. None keeps results in memory.
        state_columns: keys of the state that rows keep besides their own.
        save_results: without a ``results_path``, make a run directory where ``nightjar eval run`` makes its.
        push_to_hf_hub: push the rows to the Hugging Face Hub afterwards.
        hf_hub_dataset_name: its name there; made of environment and model unless given.
        independent_scoring: score each rollout by itself.
        max_retries: further attempts after errors that can heal.
        on_start: called once with all inputs, and with those that are owed, in their groups.
        on_progress: called after each group with all rows so far, the new ones, and metadata so far; or several such.
        on_log: called with a line of text at times.
    """

    max_concurrent: int = -1
    results_path: str | Path | None = None
    state_columns: Sequence[str] | None = ()
    save_results: bool = False
    push_to_hf_hub: bool = False
    hf_hub_dataset_name: str | None = None
    independent_scoring: bool = False
    max_retries: int = 0
    on_start: StartCallback | None = None
    on_progress: ProgressCallback | Sequence[ProgressCallback] | None = None
    on_log: LogCallback | None = None

    def log(self, line: str) -> None:
        """Hands a line to ``on_log``."""
        if self.on_log is not None:
            self.on_log(line)

    @property
    def progress_callbacks(self) -> Sequence[ProgressCallback]:
        """The callbacks for progress: none, one or several."""
        if callable(self.on_progress):
            return [self.on_progress]
        return self.on_progress or []

"""``Outcome``: how a run ended."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nightjar.core.failures import FailureClass, advice_line, class_of_chain, recorded_failures
from nightjar.core.parts import Part
from nightjar.core.text import counted
from nightjar.engine import Run
from nightjar.engine.runs import RunDirectory, RunMetadata, Summary
from nightjar.errors import RunError, ScoringError
from nightjar.evaluation.resuming import rescoring_command
from nightjar.warehouse import Warehouse


@dataclass(frozen=True)
class Outcome:
    """How a run ended, with its cost in USD if the price of the model is known.

    ``unpublished`` and ``unpushed`` say why the run is not in the warehouse or not on the Hub.
    """

    path: Path
    metadata: RunMetadata
    warehouse: str
    error: BaseException | None = None
    unpublished: Exception | None = None
    hub_url: str | None = None
    unpushed: Exception | None = None
    cost: float | None = None

    @classmethod
    def of(cls, run: Run, warehouse: Warehouse) -> Self:
        cost = run.directory.read_metadata().get("cost")
        return cls(
            run.directory.path,
            run.metadata,
            warehouse.location,
            run.error,
            run.unpublished,
            run.hub_url,
            run.unpushed,
            cost,
        )

    @property
    def run_id(self) -> str:
        return self.metadata.run_id

    @property
    def status(self) -> str:
        """``completed``, ``incomplete``, ``failed``, ``cancelled`` or ``timed_out``."""
        return self.metadata.status

    @property
    def summary(self) -> Summary:
        assert self.metadata.summary is not None, "a run that has ended is aggregated"
        return self.metadata.summary

    @property
    def is_complete(self) -> bool:
        """Returns whether everything is scored, published and, if requested, pushed."""
        return self.status == "completed" and self.unpublished is None and self.unpushed is None

    @property
    def joined(self) -> str | None:
        """Describes the run that this part belongs to; None if this run is no part or other parts are missing."""
        if (part := Part.of(self.run_id)) is None:
            return None
        directory = RunDirectory(self.path.parent / part.run_id)
        if not directory.has_metadata():
            return None
        whole = directory.read_metadata()
        scored = f"{whole['scored']} of {whole['rollouts']} rollouts scored, average reward {whole['avg_reward']}"
        return f"Run {part.run_id}, {whole['status']}: {scored}, in {directory.path}"

    @property
    def failures(self) -> list[FailureClass]:
        """Classes of the failures: first the failure that stopped the run, then the others by number of rollouts."""
        found = recorded_failures(self.metadata.to_json())
        is_missing_elsewhere = self.unpublished is not None or self.unpushed is not None
        return list(dict.fromkeys([*found, *([FailureClass.INFRASTRUCTURE] if is_missing_elsewhere else [])]))

    @property
    def rescoring(self) -> list[str] | None:
        """Command that scores the original run again.

        None if there is no original run, or if the original run must be resumed first.
        """
        summary = self.summary
        is_unasked = self.error is None and summary.scored + summary.failed < summary.rollouts
        if is_unasked or any(chain.partition(" -> ")[0] != ScoringError.__name__ for chain in summary.errors):
            return None
        return rescoring_command(RunDirectory(self.path).read_config())

    @property
    def reasons(self) -> list[str]:
        """Lines that say why the run is incomplete and what to do, with errors grouped; empty for a complete run."""
        summary, lines = self.summary, []
        if self.error is not None:
            lines.append(str(self.error) or type(self.error).__name__)
        for chain, count in summary.errors.items():
            example = summary.error_examples[chain].partition("\n")[0]
            kind = class_of_chain(chain, summary.error_examples)
            failed = f"{count} of {counted(summary.rollouts, 'rollout')} failed with {chain} ({kind})"
            lines.append(f"{failed}. One of them: {example}")
        if self.status != "completed":
            missing = summary.rollouts - summary.scored
            some, are = f"{missing} of {counted(summary.rollouts, 'rollout')}", "is" if missing == 1 else "are"
            lines.append(f"{some} of run {self.run_id} {are} missing. {self._remedy()}")
        lines += [str(reason) for reason in (self.unpublished, self.unpushed) if reason is not None]
        return lines + [advice_line(kind) for kind in self.failures]

    def _remedy(self) -> str:
        if (source := self.metadata.rescored_from) is None:
            return f"Retry, or --resume {self.path}, does only these."
        return f"Score them again: {shlex.join(words)}" if (words := self.rescoring) else f"Resume run {source}."


class IncompleteRunError(RunError):
    """The run of a flow run is incomplete. The message says why and what to do."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__("\n".join(outcome.reasons))
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[Self], tuple[Outcome]]:
        return type(self), (self.outcome,)

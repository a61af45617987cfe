"""``Outcome``: how a run ended."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nightjar.engine import Run
from nightjar.errors import ScoringError
from nightjar.evaluation.failures import FailureClass, advice_line, class_of_chain, recorded_failures
from nightjar.evaluation.saved_config import rescoring_command
from nightjar.parts import Part
from nightjar.runs import RunDirectory, RunMetadata, Summary
from nightjar.warehouse import Warehouse


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        path: its run directory.
        metadata: what its ``metadata.json`` says.
        warehouse: where it is published.
        error: what stopped it before its end; None where it came to its end.
        unpublished: why it is not in the warehouse, with the command that publishes it later; None where it is there.
        hub_url: where it is on the Hugging Face Hub; None where it was not pushed.
        unpushed: why it is not on the Hugging Face Hub, likewise; None where it is, or need not be.
    """

    path: Path
    metadata: RunMetadata
    warehouse: str
    error: BaseException | None = None
    unpublished: Exception | None = None
    hub_url: str | None = None
    unpushed: Exception | None = None

    @classmethod
    def of(cls, run: Run, warehouse: Warehouse) -> Self:
        """Returns how a run ended that is aggregated and, unless there is a reason, published."""
        return cls(
            run.directory.path, run.metadata, warehouse.location, run.error, run.unpublished, run.hub_url, run.unpushed
        )

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.metadata.run_id

    @property
    def status(self) -> str:
        """``completed``, ``incomplete``, ``failed``, ``cancelled`` or ``timed_out``."""
        return self.metadata.status

    @property
    def summary(self) -> Summary:
        """Its aggregates."""
        assert self.metadata.summary is not None, "a run that has ended is aggregated"
        return self.metadata.summary

    @property
    def is_complete(self) -> bool:
        """Says whether nothing is left to do: all is scored and published, and pushed where that was asked for."""
        return self.status == "completed" and self.unpublished is None and self.unpushed is None

    @property
    def joined(self) -> str | None:
        """Says what the run has come to that this one is a part of; None of a whole run, or while parts are missing."""
        if (part := Part.of(self.run_id)) is None:
            return None
        directory = RunDirectory(self.path.parent / part.run_id)
        if not directory.has_metadata():
            return None
        told = directory.read_metadata()
        scored = f"{told['scored']} of {told['rollouts']} rollouts scored, average reward {told['avg_reward']}"
        return f"Run {part.run_id}, {told['status']}: {scored}, in {directory.path}"

    @property
    def failures(self) -> list[FailureClass]:
        """Says what failed by class, what stopped the run first, then what most rollouts failed with."""
        found = recorded_failures(self.metadata.to_json())
        is_missing_elsewhere = self.unpublished is not None or self.unpushed is not None
        return list(dict.fromkeys([*found, *([FailureClass.INFRASTRUCTURE] if is_missing_elsewhere else [])]))

    @property
    def rescoring(self) -> list[str] | None:
        """Returns the words that score its source again; None where it has no source, or that one is to be resumed."""
        summary = self.summary
        is_unasked = self.error is None and summary.scored + summary.failed < summary.rollouts
        if is_unasked or not all(map(_is_of_scoring, summary.errors)):
            return None
        return rescoring_command(RunDirectory(self.path).read_config())

    @property
    def reasons(self) -> list[str]:
        """Says in a line each why the run is not complete, with what to do; empty where it is.

        Of each kind of errors there is one line, with its count and one example; the last lines say what to do.
        """
        summary, lines = self.summary, []
        if self.error is not None:
            lines.append(str(self.error) or type(self.error).__name__)
        for chain, count in summary.errors.items():
            example = summary.error_examples[chain].partition("\n")[0]
            kind = class_of_chain(chain, summary.error_examples)
            lines.append(f"{count} of {summary.rollouts} rollouts failed with {chain} ({kind}). One of them: {example}")
        if self.status != "completed":
            missing = summary.rollouts - summary.scored
            lines.append(f"{missing} of {summary.rollouts} rollouts of run {self.run_id} are missing. {self._remedy()}")
        lines += [str(reason) for reason in (self.unpublished, self.unpushed) if reason is not None]
        return lines + [advice_line(kind) for kind in self.failures]

    def _remedy(self) -> str:
        if (source := self.metadata.rescored_from) is None:
            return f"Retry, or --resume {self.path}, does only these."
        return f"Score them again: {shlex.join(words)}" if (words := self.rescoring) else f"Resume run {source}."


def _is_of_scoring(chain: str) -> bool:
    return chain.partition(" -> ")[0] == ScoringError.__name__

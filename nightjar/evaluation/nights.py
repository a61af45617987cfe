"""A night of a suite: what it runs, what of that is done already, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from nightjar.comparison.judging import completed_evaluations, find_night, judge_night, night_tag
from nightjar.config import Evaluation
from nightjar.config.suite import BUDGETS, load_suite
from nightjar.errors import ConfigError, WarehouseError
from nightjar.runs import run_directories
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.nights import Night, NightEvaluation, checked_night

_LONGEST_REASON = 300


@dataclass(frozen=True)
class NightPlan:
    """A suite on a date.

    Attributes:
        suite: its name.
        night: the date.
        file: the suite's.
        evaluations: with the tag of the night.
    """

    suite: str
    night: str
    file: str
    evaluations: Sequence[Evaluation]

    @property
    def has_budget(self) -> bool:
        """Says whether the evaluations spend a budget together, which takes one process."""
        return any(getattr(self.evaluations[0].config, name) is not None for name in BUDGETS)

    @property
    def tags(self) -> tuple[str, ...]:
        """Of its flow runs."""
        return f"suite:{self.suite}", night_tag(self.night)

    def title(self, evaluation: Evaluation | None = None) -> str:
        """Returns what the night is called, or one of its evaluations."""
        own = f"{self.suite} {self.night}"
        return own if evaluation is None else f"{own} · {evaluation.label} · {evaluation.config.model}"

    def key(self, evaluation: Evaluation) -> str:
        """Returns what identifies an evaluation of the night: who starts it again finds it by that."""
        return f"nightjar/{self.suite}/{self.night}/{evaluation.label}"

    def owed(self, warehouse: Warehouse) -> list[Evaluation]:
        """Returns the evaluations that are not complete."""
        done = completed_evaluations(warehouse, self.suite, self.night)
        return [one for one in self.evaluations if one.label not in done]

    def run_directory(self, evaluation: Evaluation) -> str | None:
        """Returns the run directory on this machine in which an evaluation of the night was begun; None without."""
        wanted = self.suite, evaluation.config.env_id, evaluation.config.name
        for directory in run_directories():
            config = directory.read_config()
            is_of_night = night_tag(self.night) in config.get("tags", ())
            if is_of_night and (config.get("suite"), config.get("env_id"), config.get("name")) == wanted:
                return str(directory.path)
        return None


def plan_night(suite: str, night: str) -> NightPlan:
    """Returns what a night runs.

    Args:
        suite: path of the suite's file.
        night: the date, as 2026-01-31.

    Raises:
        ConfigError: the file is missing or wrong, or the night is no date.
    """
    path, date = Path(suite), checked_night(night)
    if not suite:
        raise ConfigError("suite: name the file of a suite, such as configs/eval/benchmark.toml")
    return NightPlan(path.stem, date, suite, load_suite(path, {"tags": [night_tag(date)]}))


def begin_night(warehouse: Warehouse, plan: NightPlan, flow_run_id: str | None) -> Night:
    """Writes down that a night is under way; what somebody has accepted by hand stays so.

    Raises:
        WarehouseError: the warehouse cannot be written.
    """
    before = find_night(warehouse.nights(), plan.suite, plan.night)
    begun = Night(
        suite=plan.suite,
        night=plan.night,
        verdict="running",
        line=f"{plan.title()} is running",
        is_accepted_by_hand=before is not None and before.is_accepted_by_hand,
        began_at=before.began_at if before is not None and before.began_at else _now(),
        flow_run_id=flow_run_id,
        file=plan.file,
        evaluations=[
            NightEvaluation(one.label, "missing", one.config.env_id, one.config.model) for one in plan.evaluations
        ],
    )
    warehouse.write_night(begun)
    return begun


def end_night(warehouse: Warehouse, begun: Night, reasons: Mapping[str, str] = MappingProxyType({})) -> Night:
    """Judges a night, writes down what it came to, and returns it; also of one that is judged again.

    Args:
        warehouse: where it is.
        begun: the night.
        reasons: by the name of an evaluation, why it may have no run.

    Raises:
        WarehouseError: the warehouse cannot be read or written.
    """
    explained = [
        replace(one, reason=" ".join(reasons.get(one.name, one.reason or "").split())[:_LONGEST_REASON] or None)
        for one in begun.evaluations
    ]
    judged = judge_night(warehouse, replace(begun, evaluations=explained))
    warehouse.write_night(judged)
    return judged


def add_to_line(warehouse: Warehouse, night: Night, text: str) -> Night:
    """Writes down what a gate has said of a night that has ended, and returns the night.

    Raises:
        WarehouseError: the warehouse cannot be written.
    """
    told = replace(night, line=f"{night.line}; gate {text}")
    warehouse.write_night(told)
    return told


def skip_night(warehouse: Warehouse, plan: NightPlan, later: str) -> str:
    """Writes down that a night did not run, unless it did before, or is the later one; returns why, in a line."""
    line = f"{plan.title()} skipped: a later night was due, at {later}, before it could begin"
    if find_night(warehouse.nights(), plan.suite, plan.night) is None:
        warehouse.write_night(Night(plan.suite, plan.night, "skipped", line, ended_at=_now(), file=plan.file))
    return line


def note_broken(warehouse: Warehouse, suite: str, night: str, error: ConfigError) -> None:
    """Writes down that a night could not begin, for its suite cannot be read, unless it did before."""
    name, said = Path(suite).stem, " ".join(str(error).split())
    if name and night == checked_night(night) and find_night(warehouse.nights(), name, night) is None:
        line = f"{name} {night} incomplete: it did not begin: {said}"
        warehouse.write_night(Night(name, night, "incomplete", line, ended_at=_now(), file=suite))


def as_of_now(warehouse: Warehouse, night: Night, *, writes: bool = True) -> Night:
    """Returns a night as its published runs make it now; that is written down, where it differs and this may write.

    One that is under way has no verdict yet: only its evaluations are those of now.

    Args:
        warehouse: has the runs.
        night: as it is written down.
        writes: False for who only looks.

    Raises:
        WarehouseError: the warehouse cannot be read.
    """
    if not night.evaluations:
        return night
    judged = judge_night(warehouse, night)
    if night.verdict == "running":
        return replace(judged, verdict="running", line=night.line, ended_at=None)
    if [one.status for one in judged.evaluations] == [one.status for one in night.evaluations]:
        return night
    if writes:
        with suppress(WarehouseError, OSError):  # who looks may have no right to write
            warehouse.write_night(judged)
    return judged


def note_on_night(warehouse: Warehouse, suite: str, night: str, text: str) -> None:
    """Writes beside a night that is under way what was noticed of it."""
    known = find_night(warehouse.nights(), suite, night)
    if known is not None and known.verdict == "running":
        warehouse.write_night(replace(known, line=f"{suite} {night} is running: {text}"))


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)

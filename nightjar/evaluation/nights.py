"""Plans and judges nights. A night is one date of a suite, with a plan, remaining evaluations and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from nightjar.analysis.judging import completed_evaluations, find_night, judge_night
from nightjar.engine.runs import run_directories
from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.config import Evaluation
from nightjar.evaluation.config.suite import BUDGETS, load_suite
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import Night, NightEvaluation, checked_night, night_tag

_LONGEST_REASON = 300


@dataclass(frozen=True)
class NightPlan:
    """A suite on a date (``night``, such as 2026-01-31). The evaluations are tagged with the night."""

    suite: str
    night: str
    file: str
    evaluations: Sequence[Evaluation]

    @property
    def has_budget(self) -> bool:
        """Returns whether the evaluations share a budget, so that one process must run all of them."""
        return any(getattr(self.evaluations[0].config, name) is not None for name in BUDGETS)

    @property
    def tags(self) -> tuple[str, ...]:
        return f"suite:{self.suite}", night_tag(self.night)

    def title(self, evaluation: Evaluation | None = None) -> str:
        own = f"{self.suite} {self.night}"
        return own if evaluation is None else f"{own} · {evaluation.label} · {evaluation.config.model}"

    def key(self, evaluation: Evaluation) -> str:
        """Returns the idempotency key of an evaluation; a restarted night finds the flow run by this key."""
        return f"nightjar/{self.suite}/{self.night}/{evaluation.label}"

    def remaining(self, warehouse: Warehouse) -> list[Evaluation]:
        done = completed_evaluations(warehouse, self.suite, self.night)
        return [one for one in self.evaluations if one.label not in done]

    def run_directory(self, evaluation: Evaluation) -> str | None:
        """Returns the run directory in which this machine began an evaluation of the night; None if there is none."""
        wanted = self.suite, evaluation.config.env_id, evaluation.config.name
        for directory in run_directories():
            config = directory.read_config()
            is_of_night = night_tag(self.night) in config.get("tags", ())
            if is_of_night and (config.get("suite"), config.get("env_id"), config.get("name")) == wanted:
                return str(directory.path)
        return None


def plan_night(suite: str, night: str) -> NightPlan:
    path, date = Path(suite), checked_night(night)
    if not suite:
        raise ConfigError("suite: name the file of a suite, such as configs/eval/benchmark.toml")
    return NightPlan(path.stem, date, suite, load_suite(path, {"tags": [night_tag(date)]}))


def begin_night(warehouse: Warehouse, plan: NightPlan, flow_run_id: str | None) -> Night:
    """Records that a night is in progress. If the night was accepted by hand, it stays accepted."""
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
    """Judges a night (several times if needed) and records the result; ``reasons`` say why evaluations have no run."""
    explained = [
        replace(one, reason=" ".join(reasons.get(one.name, one.reason or "").split())[:_LONGEST_REASON] or None)
        for one in begun.evaluations
    ]
    judged = judge_night(warehouse, replace(begun, evaluations=explained))
    warehouse.write_night(judged)
    return judged


def add_to_line(warehouse: Warehouse, night: Night, text: str) -> Night:
    noted = replace(night, line=f"{night.line}; gate {text}")
    warehouse.write_night(noted)
    return noted


def skip_night(warehouse: Warehouse, plan: NightPlan, later: str) -> str:
    """Records that a night was skipped, unless the night is already recorded. Returns the reason.

    A recorded night ran before, or is the later night itself.
    """
    line = f"{plan.title()} skipped: a later night was due, at {later}, before it could begin"
    if find_night(warehouse.nights(), plan.suite, plan.night) is None:
        warehouse.write_night(Night(plan.suite, plan.night, "skipped", line, ended_at=_now(), file=plan.file))
    return line


def note_broken(warehouse: Warehouse, suite: str, night: str, error: ConfigError) -> None:
    """Records that a night could not begin because its suite cannot be read, unless the night is already recorded."""
    name, said = Path(suite).stem, " ".join(str(error).split())
    if name and night == checked_night(night) and find_night(warehouse.nights(), name, night) is None:
        line = f"{name} {night} incomplete: it did not begin: {said}"
        warehouse.write_night(Night(name, night, "incomplete", line, ended_at=_now(), file=suite))


def judged_now(warehouse: Warehouse, night: Night, *, writes: bool = True) -> Night:
    """Judges a night by the runs published now, and records changes. A night in progress stays ``running``."""
    if not night.evaluations:
        return night
    judged = judge_night(warehouse, night)
    if night.verdict == "running":
        return replace(judged, verdict="running", line=night.line, ended_at=None)
    if [one.status for one in judged.evaluations] == [one.status for one in night.evaluations]:
        return night
    if writes:
        with suppress(WarehouseError, OSError):  # this user may only have permission to read
            warehouse.write_night(judged)
    return judged


def note_on_night(warehouse: Warehouse, suite: str, night: str, text: str) -> None:
    known = find_night(warehouse.nights(), suite, night)
    if known is not None and known.verdict == "running":
        warehouse.write_night(replace(known, line=f"{suite} {night} is running: {text}"))


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)

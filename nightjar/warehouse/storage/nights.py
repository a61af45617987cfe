"""Nights of suites and what they came to: ``nights.jsonl`` in the folder of the warehouse, a line each.

{"suite":"nightly","night":"2026-11-20","verdict":"worse","line":"1 of 4 is worse than …","evaluations":[…],…}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Literal, TypeAlias

from nightjar.errors import ConfigError
from nightjar.warehouse.storage.line_files import LineFile

Verdict: TypeAlias = Literal["running", "accepted", "worse", "incomplete", "skipped"]
"""What a night came to; ``skipped`` where a later one was due before it could begin."""
Change: TypeAlias = Literal["same", "worse", "better", "new", "missing"]
"""What an evaluation came to beside the last accepted night; ``new`` where that has none of its name."""


@dataclass(frozen=True)
class NightEvaluation:
    """An evaluation of a night.

    Attributes:
        name: in its suite.
        change: beside the last accepted night.
        env_id, model: what was evaluated.
        run_id, flow_run_id, status: of its run; None where there is none.
        scored, rollouts, avg_reward, stderr, cost: of its run; None where that is not known.
        errors: classes of errors to their number.
        reason: why there is no run, where that is known.
        against_night, against_run: the last accepted night that has it, and its run; None where there is none.
        against_nights: how many accepted nights it is compared with, that one and those before.
        pairs: examples that it and any of these have scored.
        unpaired: scored examples of one of the two runs that the other has not.
        difference, difference_stderr: of the mean reward over the pairs, this minus the mean of those nights.
        p_worse: chance of a difference as low as this one where nothing has changed.
        differs: settings in which the two runs differ, such as ``dataset``.
    """

    name: str
    change: Change
    env_id: str
    model: str
    run_id: str | None = None
    flow_run_id: str | None = None
    status: str | None = None
    scored: int | None = None
    rollouts: int | None = None
    avg_reward: float | None = None
    stderr: float | None = None
    cost: float | None = None
    errors: dict[str, int] = field(default_factory=dict)
    reason: str | None = None
    against_night: str | None = None
    against_run: str | None = None
    against_nights: int = 0
    pairs: int = 0
    unpaired: int = 0
    difference: float | None = None
    difference_stderr: float | None = None
    p_worse: float | None = None
    differs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Night:
    """A suite on one date.

    Attributes:
        suite: its name.
        night: the date, as 2026-11-20.
        verdict: what it came to.
        line: the verdict in a sentence.
        is_accepted_by_hand: whether somebody has accepted it, whatever it came to.
        began_at, ended_at: when; None where it did not.
        flow_run_id: of the flow run that ran it; None where none did.
        file: of the suite.
        evaluations: of the suite.
    """

    suite: str
    night: str
    verdict: Verdict
    line: str = ""
    is_accepted_by_hand: bool = False
    began_at: datetime | None = None
    ended_at: datetime | None = None
    flow_run_id: str | None = None
    file: str = ""
    evaluations: list[NightEvaluation] = field(default_factory=list)

    def under_way(self, flow_runs: Mapping[str, str]) -> Night:
        """Returns the night with the flow runs of evaluations, by their names."""
        told = [replace(one, flow_run_id=flow_runs.get(one.name, one.flow_run_id)) for one in self.evaluations]
        return replace(self, evaluations=told)

    @property
    def cost(self) -> float | None:
        """What its runs cost; None where that is known of none."""
        costs = [one.cost for one in self.evaluations if one.cost is not None]
        return sum(costs) if costs else None


NIGHTS = LineFile("nights", "night", Night, ("suite", "night"))


def checked_night(text: str) -> str:
    """Returns the date of a night.

    Raises:
        ConfigError: it is none.
    """
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"{text!r} is no date of a night: write it as 2026-01-31") from None

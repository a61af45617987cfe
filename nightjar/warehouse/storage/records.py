"""Records that a warehouse keeps beside its segments: prices, nights of suites, comparisons, gate decisions and notes.

Prices are in ``prices.csv``, which its owner may edit::

    model,since,input,output
    gpt-4.1-mini,2025-04-14,0.4,1.6

Each other kind is a dataclass with a ``LineFile``: a file with one JSON record per line, and a table in SQL.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property
from math import isfinite
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from nightjar.core.text import shortened
from nightjar.errors import ConfigError, WarehouseError

PRICES_NAME = "prices.csv"

_HEADER = ["model", "since", "input", "output"]
_MOST_CHARACTERS = 80

Row = TypeVar("Row")


@dataclass(frozen=True)
class Price:
    """A model's price per million tokens, in your own currency, for runs that start at ``since`` or later."""

    model: str
    since: datetime
    input: float
    output: float


def price(model: str, since: str, input_price: float, output_price: float) -> Price:
    """Returns a price. ``since`` is a date or moment in ISO 8601, in UTC unless the text names a time zone."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise WarehouseError(f"Cannot read the date {since!r}. Write a date such as 2026-01-31.") from None
    if not all(isfinite(value) and value >= 0 for value in (input_price, output_price)):
        raise WarehouseError(f"A price of {model!r} is negative or not a number: {input_price}, {output_price}.")
    return Price(model, moment if moment.tzinfo else moment.replace(tzinfo=UTC), input_price, output_price)


def load_prices(content: bytes) -> list[Price]:
    """Parses prices. If several have the same model and moment, the last one is kept."""
    prices: list[Price] = []
    number = 1
    try:
        text = content.decode("utf-8-sig")
        rows = csv.reader(io.StringIO(text, newline=""))
        if text.strip():
            _check_header(next(rows))
        for row in rows:
            number = rows.line_num
            if row:
                prices.append(_price(row))
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise WarehouseError(f"{PRICES_NAME}, line {number}: it is not UTF-8 text: {error.reason}") from error
    except (csv.Error, WarehouseError) as error:
        raise WarehouseError(f"{PRICES_NAME}, line {number}: {str(error).rstrip('.')}") from error
    return _newest(prices)


def dump_prices(prices: Sequence[Price]) -> str:
    """Returns the prices as CSV, sorted by model and moment."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    in_order = sorted(_newest(prices), key=lambda price: (price.model, price.since))
    writer.writerows((price.model, price.since.isoformat(), price.input, price.output) for price in in_order)
    return text.getvalue()


def _newest(prices: Sequence[Price]) -> list[Price]:
    return list({(price.model, price.since): price for price in prices}.values())


def _check_header(row: Sequence[str]) -> None:
    if row != _HEADER:
        raise WarehouseError(f"expected {','.join(_HEADER)!r}, found {_short(','.join(row))}")


def _price(row: Sequence[str]) -> Price:
    if len(row) != len(_HEADER):
        raise WarehouseError(f"expected {len(_HEADER)} values, found {len(row)}: {_short(','.join(row))}")
    model, since, *amounts = row
    if not model.strip():
        raise WarehouseError("the line has no model")
    input_price, output_price = map(_amount, amounts)
    return price(model, since, input_price, output_price)


def _amount(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WarehouseError(f"Cannot read the price {_short(text)}. Write a number such as 0.25.") from None


def _short(text: str) -> str:
    return repr(shortened(text, _MOST_CHARACTERS))


@dataclass(frozen=True)
class LineFile(Generic[Row]):
    """A kind of records: JSON lines in ``{table}.jsonl``, and a table in ``segments`` with one column of JSON.

    The fields in ``key`` identify a record and order the file.
    """

    table: str
    column: str
    kind: type[Row]
    key: tuple[str, ...]

    @property
    def file_name(self) -> str:
        return f"{self.table}.jsonl"

    @property
    def columns(self) -> str:
        return f"{self.column} JSON NOT NULL"

    def load(self, content: bytes) -> list[Row]:
        """Parses the records. If the file is damaged, the error names the line."""
        found = []
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                found.append(self._adapter.validate_json(line))
            except ValidationError as error:
                raise WarehouseError(f"{self.file_name}, line {number}: {error.errors()[0]['msg']}") from error
        return found

    def lines(self, rows: Iterable[Row]) -> list[str]:
        by_key = {self.key_of(row): row for row in rows}
        return [self._adapter.dump_json(by_key[key]).decode() for key in sorted(by_key)]

    def dump(self, rows: Iterable[Row]) -> bytes:
        return "".join(f"{line}\n" for line in self.lines(rows)).encode()

    def key_of(self, row: Row) -> tuple[str, ...]:
        return tuple(str(getattr(row, name)) for name in self.key)

    @cached_property
    def _adapter(self) -> TypeAdapter[Row]:
        return TypeAdapter(self.kind)


Verdict: TypeAlias = Literal["running", "accepted", "worse", "incomplete", "skipped"]
"""The verdict on a night. A night is ``skipped`` if a later night was due before it could start."""
Change: TypeAlias = Literal["same", "worse", "better", "new", "missing"]
"""The comparison with the last accepted night. ``new`` means that that night does not have the evaluation."""


@dataclass(frozen=True)
class NightEvaluation:
    """An evaluation of a night. The view ``night_evaluations`` in ``views/records.sql`` describes the other fields.

    Without a run, the fields of the run are None, and ``reason`` says why there is no run. ``against_night`` is the
    last accepted night that has this evaluation. ``unpaired`` counts the examples that only one of the two nights has
    scored.
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
    num_examples: int | None = None
    reward_examples: int | None = None
    lowest_reward: float | None = None
    highest_reward: float | None = None
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
    """The runs of a suite on one date. ``night`` is the date (2026-11-20); ``line`` is the verdict in a sentence.

    ``is_accepted_by_hand`` means that a person accepted the night, whatever its verdict.
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
        known = [replace(one, flow_run_id=flow_runs.get(one.name, one.flow_run_id)) for one in self.evaluations]
        return replace(self, evaluations=known)

    @property
    def cost(self) -> float | None:
        """The cost of all runs; None if no cost is known."""
        costs = [one.cost for one in self.evaluations if one.cost is not None]
        return sum(costs) if costs else None


def checked_night(text: str) -> str:
    """Raises ConfigError if the text is not a date."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"{text!r} is not the date of a night. Write a date such as 2026-01-31") from None


def night_tag(night: str) -> str:
    return f"night:{night}"


def night_of(tags: Iterable[str]) -> tuple[str, str] | None:
    """Returns the suite and date of a night from the tags of one of its flow runs. Returns None for other runs."""
    named = dict(tag.split(":", 1) for tag in tags if tag.startswith(("suite:", "night:")))
    return (named["suite"], named["night"]) if len(named) == len(("suite", "night")) else None


@dataclass(frozen=True)
class RecordedComparison:
    """A comparison of a benchmark's runs. The view ``comparisons`` in ``views/records.sql`` describes the other fields.

    Attributes:
        benchmark, tier: as in the gate's policy. Without a gate, ``benchmark`` is the environment and ``tier`` is None.
        alpha: the probability that the interval misses the true difference.
        gate_id: None without a gate.
        method, seed: the method of the interval, and the seed of the sign-flip test.
        pairs, clusters: examples that both sides have scored, and their groups.
        low, high: the ends of the interval; None for an infinite end.
        pairs_needed: the number of pairs needed for a decision; None if decided or unknown.
    """

    comparison_id: str
    made_at: datetime
    benchmark: str
    decision: str
    reason: str
    metric: str
    direction: str
    baseline_runs: list[str]
    candidate_runs: list[str]
    alpha: float
    gate_id: str | None = None
    tier: str | None = None
    margin: float | None = None
    method: str | None = None
    seed: int | None = None
    pairs: int = 0
    clusters: int = 0
    baseline_coverage: float | None = None
    candidate_coverage: float | None = None
    baseline_mean: float | None = None
    candidate_mean: float | None = None
    difference: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    p_sign_flips: float | None = None
    nights: int | None = None
    pairs_needed: int | None = None


@dataclass(frozen=True)
class GateDecision:
    """A gate's decision: GO, NO-GO or INCONCLUSIVE. Its benchmarks are the comparisons with its id.

    Attributes:
        baseline, candidate: as given on the command line.
        alpha: the probability that an interval misses the true difference.
        correction: the correction for several benchmarks: holm, bh or none.
        suite, night: set if the candidate is a night.
        breached, undecided: names of benchmarks with these results, without advisory benchmarks.
    """

    gate_id: str
    made_at: datetime
    verdict: str
    reason: str
    policy: str
    policy_sha256: str
    baseline: str
    candidate: str
    alpha: float
    level: float
    correction: str
    min_pairs: int
    suite: str | None = None
    night: str | None = None
    benchmarks: int = 0
    breached: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)


Mark: TypeAlias = Literal["wrong grade", "bad question", "interesting"]


@dataclass(frozen=True)
class Note:
    """A person's note on a rollout. A later note with the same id replaces the note. No view shows a withdrawn note.

    ``overruled_reward`` is the reward that the author proposes, or None. The recorded reward does not change.
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


NIGHTS = LineFile("nights", "night", Night, ("suite", "night"))
COMPARISONS = LineFile("comparisons", "comparison", RecordedComparison, ("comparison_id",))
GATE_DECISIONS = LineFile("gate_decisions", "decision", GateDecision, ("gate_id",))
NOTES = LineFile("notes", "note", Note, ("note_id",))

LINE_FILES: tuple[LineFile[Any], ...] = (NIGHTS, COMPARISONS, GATE_DECISIONS, NOTES)


class Records(NamedTuple):
    """All records of a warehouse. ``lines`` has the order of ``LINE_FILES``."""

    prices: tuple[Price, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ((),) * len(LINE_FILES)

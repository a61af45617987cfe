"""``GatePolicy``: what a candidate may lose on each benchmark, in YAML.

::

    # nightjar gate --policy configs/gates/release.yaml BASELINE CANDIDATE
    version: 1
    defaults:
      tier: supporting
      max_drop: 0.015
    benchmarks:
      gsm8k:
        tier: critical
        max_drop: 0.01
      arithmetic:
        tier: advisory
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from nightjar.core.text import nearest
from nightjar.core.yaml_files import read_yaml
from nightjar.errors import ConfigError

Tier: TypeAlias = Literal["critical", "supporting", "advisory"]
Direction: TypeAlias = Literal["higher_is_better", "lower_is_better"]
Correction: TypeAlias = Literal["holm", "bh", "none"]
TIERS: tuple[Tier, ...] = ("critical", "supporting", "advisory")
"""The most important tier first. ``advisory`` never changes a verdict."""
_METRICS = {"mean_reward": "reward", "pass@1": "correct"}
"""NeMo Evaluator's names."""
_NIGHTS_A_YEAR = 365
_NO_POLICY = "empty. A policy begins with 'version: 1', see docs/reference/gate-policy.md"
_NO_MAPPING = "not a policy: expected a mapping that begins with 'version: 1', see docs/reference/gate-policy.md"
_Number: TypeAlias = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Count: TypeAlias = Annotated[int, Field(strict=True)]


def _version(written: Any) -> Any:
    """Rejects ``true``, which Python takes for 1."""
    if type(written) is not int:
        raise ValueError("Input should be 1")
    return written


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class GateRule(_Strict):
    """What a candidate may lose on a benchmark."""

    tier: Tier = "supporting"
    """``critical`` and ``supporting`` benchmarks decide the verdict. ``advisory`` benchmarks are only shown."""
    max_drop: Annotated[_Number, Field(ge=0)] | None = 0.015
    """How much worse the mean may be. null means no such limit."""
    max_relative_drop: Annotated[_Number, Field(ge=0)] | None = None
    """How much worse the mean may be, as a share of the baseline's mean. The smaller of the two limits counts."""
    relative_guard_below: Annotated[_Number, Field(ge=0, le=1)] | None = None
    """The relative limit only applies if the baseline's mean is below this value. null means that it always applies."""
    metric: str = "reward"
    """``reward`` (also ``mean_reward``), ``correct`` (also ``pass@1``), or the name of a metric."""
    direction: Direction = "higher_is_better"
    """Whether ``higher`` or ``lower`` values are better."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.max_drop is None and (self.max_relative_drop is None or self.relative_guard_below is not None):
            raise ValueError(
                "there is no limit for all baselines: give max_drop, or max_relative_drop without relative_guard_below"
            )
        return self

    def margin(self, baseline: float) -> float:
        """Returns how much worse a candidate may be than a baseline with this mean."""
        limits = [] if self.max_drop is None else [self.max_drop]
        guard = self.relative_guard_below
        if self.max_relative_drop is not None and (guard is None or baseline < guard):
            limits.append(self.max_relative_drop * abs(baseline))
        return min(limits)

    @property
    def measured(self) -> str:
        return _METRICS.get(self.metric, self.metric)


class AcceptedNights(_Strict):
    """A baseline that moves: the accepted nights of the candidate's suite."""

    accepted_nights: Annotated[_Count, Field(ge=1)]
    """The number of accepted nights to use. The last nights are used."""


class GatePolicy(_Strict):
    """What a candidate may lose, and how certain a loss must be."""

    version: Annotated[Literal[1], BeforeValidator(_version)]
    """Version of the format."""
    defaults: GateRule = GateRule()
    """The rule for all benchmarks, including unlisted benchmarks that both sides have."""
    benchmarks: Mapping[str, GateRule] = Field(default_factory=dict)
    """Rules by the name of the evaluation or the id of its environment.

    Missing keys have the default; null unsets a key.
    """
    min_pairs: Annotated[_Count, Field(ge=2)] = 10
    """With fewer common scored examples, a benchmark never passes: their spread is unknown (as in NeMo Evaluator)."""
    alpha: Annotated[_Number, Field(gt=0, lt=1)] = 0.05
    """Chance that an interval misses. A wrong PASS of a benchmark has half this chance, as in ``nightjar compare``."""
    correction: Correction = "holm"
    """``holm`` bounds the chance that any breach is false; ``bh`` bounds the share of breaches that are false."""
    baseline: str | AcceptedNights | None = None
    """A run, a folder, ``model@environment@date``, or the last accepted nights.

    If null, the command names the baseline.
    """
    false_alarms_a_year: Annotated[_Number, Field(gt=0, le=_NIGHTS_A_YEAR / 2)] = 1.0
    """If the baseline is accepted nights, the number of false NO-GO nights expected in a year without any change."""

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, content: Any) -> Any:
        if not isinstance(content, Mapping) or not isinstance(content.get("benchmarks"), Mapping):
            return content
        defaults = content.get("defaults") or {}
        if not isinstance(defaults, Mapping):
            return content
        rules = {
            name: {**defaults, **(rule or {})} if rule is None or isinstance(rule, Mapping) else rule
            for name, rule in content["benchmarks"].items()
        }
        return {**content, "benchmarks": rules}

    @classmethod
    def read(cls, path: Path) -> Self:
        content = read_yaml(path)
        if not isinstance(content, Mapping):
            raise ConfigError(f"{path} is {_NO_POLICY if content is None else _NO_MAPPING}")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise ConfigError(f"{path}: {_first(error)}") from None

    @property
    def sha256(self) -> str:
        """Hash of the content, independent of its formatting."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def level(self) -> float:
        """The one-sided chance of any false breach, over all benchmarks together."""
        if isinstance(self.baseline, AcceptedNights):
            return self.false_alarms_a_year / _NIGHTS_A_YEAR
        return self.alpha / 2

    def lists(self, *names: str) -> bool:
        return any(name in self.benchmarks for name in names)

    def rule(self, *names: str) -> GateRule:
        return next((self.benchmarks[name] for name in names if name in self.benchmarks), self.defaults)


def _first(error: ValidationError) -> str:
    found = error.errors()[0]
    where, known = found["loc"], GateRule.model_fields if len(found["loc"]) > 1 else GatePolicy.model_fields
    if where[0:1] == ("baseline",):  # either a text or a mapping: the alternative with the deeper error was meant
        found = max((one for one in error.errors() if one["loc"][0] == "baseline"), key=lambda one: len(one["loc"]))
        where, known = (where[0], *found["loc"][2:]), AcceptedNights.model_fields
    place = ".".join(map(str, where))
    if found["type"] == "extra_forbidden":
        return f"Unknown key {place!r}. {nearest(str(where[-1]), known)}"
    said = found["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said

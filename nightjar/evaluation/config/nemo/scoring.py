"""The section ``scoring`` of a benchmark: a judge, and scorers whose scores are metrics beside the reward."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from nightjar.environments.seeded.scorers import list_scorers
from nightjar.evaluation.config.nemo.interceptors import REFUSED
from nightjar.evaluation.config.nemo.services import Section, one_of, refused

_JUDGED = "the scorer configures the judge: judge_config beside needs_judge (docs/guides/benchmark-in-a-file.md)"
_SCORER = "a scorer is part of the benchmark: @scorer (docs/guides/benchmark-in-a-file.md)"


def _known(name: str) -> str:
    if name not in list_scorers():
        known = {"name": repr(name), "known": ", ".join(list_scorers())}
        raise PydanticCustomError(REFUSED, "there is no scorer {name} here. Choose one of: {known}", known)
    return name


class ScorerMetric(Section):
    """A scorer, whose score is the metric ``scorer:NAME``. The reward is the benchmark's."""

    type: Literal["scorer"]
    name: Annotated[str, AfterValidator(_known)]


class JudgeMetric(Section):
    """A model that scores answers that need a judge."""

    others: ClassVar = {
        **dict.fromkeys(("custom", "sandbox"), _SCORER),
        **dict.fromkeys(
            ("pairwise_judge", "ensemble_judge", "reward_model"), "one judge scores an answer: type: judge"
        ),
    }

    type: Literal["judge"]
    name: str
    service: str
    """Name of the judge's service; its protocol is chat_completions."""
    system_prompt: Annotated[str | None, refused(_JUDGED, None)] = None
    max_score: Annotated[float, refused(_JUDGED, 5)] = 5.0
    swap_check: Annotated[bool, refused(_JUDGED, False)] = False
    reference_free: Annotated[bool, refused(_JUDGED, False)] = False
    temperature: Annotated[float, refused("the judge's endpoint decides how it samples")] = 0.0
    timeout: Annotated[float, refused("the time limit of scoring applies to judges")] = 120.0
    max_retries: Annotated[int, refused("requests to a judge are retried after temporary errors")] = 2
    allow_self_judge: bool = False
    """Whether the evaluated model may judge itself."""


class ScoringConfig(Section):
    """The judge and the scorers besides the benchmark."""

    include_defaults: bool = True
    """False is allowed if a judge decides the reward."""
    metrics: list[Annotated[ScorerMetric | JudgeMetric, one_of(ScorerMetric, JudgeMetric)]] = Field(
        default_factory=list
    )
    """Scorers, and at most one judge."""
    primary: str | None = None
    """Name of a metric. Has no effect, as in NeMo Evaluator: the reward is the benchmark's."""

    @property
    def judge(self) -> JudgeMetric | None:
        return next((each for each in self.metrics if isinstance(each, JudgeMetric)), None)

    @property
    def scorers(self) -> list[str]:
        return [each.name for each in self.metrics if isinstance(each, ScorerMetric)]

    @model_validator(mode="after")
    def _check_metrics(self) -> Self:
        names = [each.name for each in self.metrics]
        if len(self.metrics) - len(self.scorers) > 1:
            raise ValueError("metrics: at most one judge scores an answer")
        if len(set(names)) < len(names):
            raise ValueError(f"metrics: each needs its own name (found {', '.join(names)})")
        if self.primary is not None and self.primary not in names:
            raise ValueError(f"primary: there is no metric {self.primary!r}. Choose one of: {', '.join(names)}")
        if not self.include_defaults and self.judge is None:
            raise ValueError("include_defaults: false needs a judge, because nothing else gives a reward then")
        return self

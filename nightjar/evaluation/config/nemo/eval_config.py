"""``EvalConfig``: benchmarks, solvers and judges of a config, with the services that they name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from nightjar.errors import ConfigError
from nightjar.evaluation.config.nemo.agents import AGENTS, SCHEME, DockerSandbox, HarborSolver
from nightjar.evaluation.config.nemo.composing import expanded
from nightjar.evaluation.config.nemo.containers import IMAGES, ContainerSolver
from nightjar.evaluation.config.nemo.scoring import ScoringConfig
from nightjar.evaluation.config.nemo.services import (
    ExternalApiService,
    GenerationConfig,
    Section,
    messages_of,
    one_of,
    refused,
)

_FROM_PYTHON = "pass solvers to run_evaluation in Python (docs/coming-from/nemo-python.md)"
_AGENT = "an agent is an environment here: docs/guides/environments.md"
_OWN_SANDBOX = "a benchmark makes the sandbox that it needs: docs/guides/sandboxes.md"


class SimpleSolver(Section):
    """Asks a model once, in the protocol of its service. Images of a problem are sent, too."""

    others: ClassVar = {
        **dict.fromkeys(("nat", "openclaw"), _AGENT),
        "agent": "write type: harbor, with a benchmark harbor://PATH (docs/guides/agents.md)",
        "tool_calling": f"an environment defines its tools (docs/guides/environments.md); {_FROM_PYTHON}",
        "gym_delegation": _FROM_PYTHON,
        "oracle": "nightjar validate NAME scores the references",
        "custom": _FROM_PYTHON,
    }

    type: Literal["simple"]
    service: str
    """Name of the model's service."""
    system_prompt: str | None = None
    generation: GenerationConfig | None = None
    """Overrides the parameters of the service, field by field."""
    image_detail: Literal["auto", "low", "high"] = "auto"
    """The detail in which the model sees images."""


class NoSandbox(Section):
    """No sandboxes, except those that a benchmark creates."""

    others: ClassVar = dict.fromkeys(("ecs_fargate", "slurm", "apptainer", "custom"), _OWN_SANDBOX)

    type: Literal["none"] = "none"
    stateful: Annotated[bool, refused(_OWN_SANDBOX, False)] = False


class BenchmarkConfig(Section):
    """One benchmark: one evaluation of the suite."""

    name: str = Field(min_length=1)
    """A name, a URI or ``file.py:name``."""
    solver: Annotated[
        HarborSolver | ContainerSolver | SimpleSolver, one_of(HarborSolver, ContainerSolver, SimpleSolver)
    ]
    repeats: int = Field(1, ge=1)
    """Number of rollouts per problem."""
    max_problems: int | None = Field(None, ge=1)
    """Maximum number of problems; None means all problems."""
    max_concurrent: int = Field(32, ge=1)
    """Maximum number of concurrent requests."""
    fewshot: Annotated[int | None, refused("set it in params, if the benchmark supports it", None)] = None
    context_window: Annotated[int | None, refused("the endpoint says when a prompt is too long", None)] = None
    timeout: float = Field(1800.0, gt=0)
    """Seconds that an attempt at a problem may take."""
    skip_failed: bool = False
    """Whether the run counts as complete if problems have failed."""
    max_system_retries: int = Field(3, ge=1)
    """Maximum number of attempts at a problem."""
    instruction_template: Annotated[
        str | None, refused("the prompt is the benchmark's: docs/guides/benchmark-in-a-file.md", None)
    ] = None
    playbook: Annotated[str | None, refused("playbooks are part of NeMo Evaluator: write the keys here", None)] = None
    verifier: Annotated[str | None, refused("the benchmark verifies", None)] = None
    shuffle_seed: int | None = 42
    """Seed of a random order of problems. If null, the order of the dataset is used."""
    sandbox: Annotated[DockerSandbox | NoSandbox, one_of(DockerSandbox, NoSandbox)] = Field(default_factory=NoSandbox)
    scoring: ScoringConfig = Field(default_factory=ScoringConfig)
    params: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the benchmark."""


_ELSEWHERE = "to run elsewhere: nightjar eval run --hosted (docs/guides/hosted.md), docs/guides/many-machines.md"
_HERE = "set it for the process that runs the evaluation"


class LocalCluster(Section):
    """This machine."""

    others: ClassVar = dict.fromkeys(("docker", "slurm"), _ELSEWHERE)

    type: Literal["local"] = "local"
    gpus: Annotated[list[int] | None, refused("models run in their own servers", None)] = None
    max_memory: Annotated[str | None, refused(_HERE, None)] = None
    container_env: Annotated[dict[str, str], refused(_HERE, {})] = Field(default_factory=dict)


class TrajectoriesConfig(Section):
    """The files written about conversations."""

    enrich: Annotated[bool, refused("nightjar view shows conversations", False)] = False


class OutputConfig(Section):
    """The output of results."""

    dir: str = Field("./eval_results", min_length=1)
    """Folder of the runs, and of the files of NeMo Evaluator."""
    timestamped: bool = True
    """Has no effect, because every run has a folder of its own."""
    progress_interval: Annotated[float, refused("progress is live; --no-progress shows none")] = 60.0
    report: Annotated[list[str], refused("nightjar eval report DIR writes reports", [])] = Field(default_factory=list)
    export: Annotated[list[str], refused("nightjar export RUN", [])] = Field(default_factory=list)
    export_config: Annotated[dict[str, Any], refused("nightjar export RUN", {})] = Field(default_factory=dict)
    trajectories: TrajectoriesConfig = Field(default_factory=TrajectoriesConfig)


class EvalConfig(Section):
    """A config: services, and benchmarks that use them."""

    services: dict[str, ExternalApiService]
    sandboxes: dict[str, Annotated[DockerSandbox | NoSandbox, one_of(DockerSandbox, NoSandbox)]] = Field(
        default_factory=dict
    )
    benchmarks: list[BenchmarkConfig] = Field(min_length=1)
    cluster: LocalCluster = Field(default_factory=LocalCluster)
    output: OutputConfig = Field(default_factory=OutputConfig)

    @model_validator(mode="before")
    @classmethod
    def _place_sandboxes(cls, told: Any) -> Any:
        if not isinstance(told, Mapping) or not isinstance(told.get("benchmarks"), list):
            return told
        named = told.get("sandboxes") or {}
        return {**told, "benchmarks": [_with_sandbox(each, named) for each in told["benchmarks"]]}

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if wrong := [*self._wrong_names()]:
            raise ValueError("; ".join(wrong))
        return self

    def _wrong_names(self) -> Iterator[str]:
        known = ", ".join(self.services) or "none"
        for number, benchmark in enumerate(self.benchmarks):
            solver, place = benchmark.solver, f"benchmarks.{number}"
            yield from _wrong_agents(benchmark, place)
            if solver.service not in self.services:
                yield f"{place}.solver.service: there is no service {solver.service!r}. Choose one of: {known}"
            if (judge := benchmark.scoring.judge) is None:
                continue
            where = f"{place}.scoring.metrics.{benchmark.scoring.metrics.index(judge)}.service"
            if judge.service not in self.services:
                yield f"{where}: there is no service {judge.service!r}. Choose one of: {known}"
            elif self.services[judge.service].protocol != "chat_completions":
                yield f"{where}: a judge speaks chat_completions"
            elif self.services[judge.service].middleware:
                yield f"{where}: requests to a judge have no interceptors"
            elif judge.service == solver.service and not judge.allow_self_judge:
                yield f"{where}: the model would judge itself; to allow that, set allow_self_judge: true"

    def get_service(self, name: str) -> ExternalApiService:
        return self.services[name]

    def get_model_url(self, service_name: str) -> str:
        return self.services[service_name].base_url

    def get_model_id(self, service_name: str) -> str:
        return self.services[service_name].model or service_name

    def get_api_key(self, service_name: str) -> str | None:
        return os.environ.get(self.services[service_name].api_key_var or "")

    def managed_services(self) -> dict[str, ExternalApiService]:
        """Returns no services, because Nightjar does not start services."""
        return {}


def _wrong_agents(benchmark: BenchmarkConfig, place: str) -> Iterator[str]:
    """Yields which parts of a benchmark need tasks of agents, or do not fit to them."""
    if benchmark.name.startswith(SCHEME):
        if not isinstance(benchmark.solver, HarborSolver):
            yield f"{place}.solver: {SCHEME} needs an agent: type: harbor, agent: one of {', '.join(AGENTS)}"
        if benchmark.scoring.metrics:
            yield f"{place}.scoring.metrics: the tests of a task decide; there is no judge"
        return
    if isinstance(benchmark.solver, HarborSolver):
        yield (
            f"{place}.solver: an agent works on the tasks in a folder. Name the benchmark {SCHEME}PATH "
            f"(found {benchmark.name!r})"
        )
    if isinstance(benchmark.solver, ContainerSolver) and not benchmark.name.startswith(IMAGES):
        yield f"{place}.solver: only benchmarks {IMAGES}IMAGE#TASK have type: container (found {benchmark.name!r})"
    if isinstance(benchmark.sandbox, DockerSandbox) and benchmark.sandbox.container_env:
        yield f"{place}.sandbox.container_env: only benchmarks {SCHEME}PATH have it; code under test gets no variables"


def parse_eval_config(raw: Mapping[str, Any]) -> EvalConfig:
    """Validates a config whose variables have been replaced by their values."""
    try:
        return EvalConfig.model_validate(expanded(raw))
    except ValidationError as error:
        lines = [*messages_of(error, EvalConfig)]
        raise ConfigError("\n  ".join(lines)) from None


def _with_sandbox(benchmark: Any, named: Any) -> Any:
    name = benchmark.get("sandbox") if isinstance(benchmark, Mapping) else None
    if not isinstance(name, str):
        return benchmark
    if not isinstance(named, Mapping) or name not in named:
        raise ValueError(f"sandbox: there is no sandbox {name!r} in sandboxes")
    return {**benchmark, "sandbox": named[name]}

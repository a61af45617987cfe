"""``NemoConfigFile``: a YAML config of NeMo Evaluator as a suite.

::

    # nightjar eval run config.yaml -O benchmarks.0.max_problems=100
    services:
      model: {type: api, url: http://127.0.0.1:8000/v1/chat/completions, protocol: chat_completions, model: local}
    benchmarks:
      - name: gsm8k
        repeats: 4
        solver: {type: simple, service: model}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import yaml

import nightjar
from nightjar.core.files import replace_file
from nightjar.core.yaml_files import read_yaml
from nightjar.environments.packages.catalog import beside, in_file
from nightjar.environments.packages.lookup import ALL_EXAMPLES
from nightjar.errors import ConfigError
from nightjar.evaluation.config.nemo.agents import SCHEME, DockerSandbox, HarborSolver, arguments_of
from nightjar.evaluation.config.nemo.composing import compose_config, overridden
from nightjar.evaluation.config.nemo.containers import ContainerSolver, code_arguments
from nightjar.evaluation.config.nemo.eval_config import BenchmarkConfig, EvalConfig, parse_eval_config
from nightjar.evaluation.config.nemo.launcher import refuse_launcher_config
from nightjar.evaluation.config.nemo.services import ExternalApiService, GenerationConfig, ProxyConfig
from nightjar.evaluation.config.precedence import (
    FLAG,
    SUITE,
    Evaluation,
    Layer,
    refuse_fields_of_one,
    resolve_evaluation,
)
from nightjar.evaluation.config.run_config import PLAIN_SAMPLING

SNAPSHOT = "full_config.yaml"
_DEFAULT = "NeMo's default"
_AUTO = "auto"
_KEYS = {
    "rollouts_per_example": "repeats",
    "num_examples": "max_problems",
    "max_concurrent": "max_concurrent",
    "timeout": "timeout",
    "tolerated_failures": "skip_failed",
    "max_retries": "max_system_retries",
    "shuffle_seed": "shuffle_seed",
}
"""Maps a field to the key of a benchmark that sets the field and has a default in NeMo Evaluator."""


@dataclass(frozen=True)
class NemoConfigFile:
    """A config file. ``raw`` is the composed content with names of variables; ``config`` contains their values."""

    path: Path
    overrides: tuple[str, ...]
    raw: Mapping[str, Any]
    config: EvalConfig

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Self:
        """Reads a config; raises ``ConfigError`` that names each key that is wrong or cannot be honoured."""
        refuse_launcher_config(path, read_yaml(path))
        raw = overridden(compose_config(path), overrides)
        try:
            return cls(path, tuple(overrides), raw, parse_eval_config(raw))
        except ConfigError as error:
            raise ConfigError(f"{path}:\n  {error}") from None

    def evaluations(self, typed: Mapping[str, Any], registry: Path | None = None) -> list[Evaluation]:
        """Returns the evaluations of the config. ``typed`` and ``registry`` are as in ``load_suite``."""
        refuse_fields_of_one(typed)
        found: list[Evaluation] = []
        taken: Counter[str] = Counter()
        for number, benchmark in enumerate(self.config.benchmarks):
            said, default = self._said_and_default(benchmark)
            try:
                env_id = _tasks_beside(beside(benchmark.name, self.path.parent), self.path.parent)
                place = in_file(env_id)
                label = place.env_id if place else env_id
                taken[label] += 1
                again = {"name": f"{label}-{taken[label]}"} if taken[label] > 1 else {}
                own = {"suite": self.path.stem, **again, **said, "env_id": env_id}
                layers = [Layer(FLAG, typed), Layer(SUITE, own), Layer(_DEFAULT, default)]
                made = resolve_evaluation(layers, registry)
                found.append(replace(made, files={**made.files, SUITE: self.path}))
            except ConfigError as error:
                if type(error) is not ConfigError or str(error).partition(":")[0].partition(".")[0] in typed:
                    raise
                raise ConfigError(f"{self.path}: benchmarks.{number} ({benchmark.name}): {error}") from error
        return found

    def _said_and_default(self, benchmark: BenchmarkConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        service = self.config.services[benchmark.solver.service]
        fields: dict[str, Any] = {field: getattr(benchmark, key) for field, key in _KEYS.items()} | {
            "env_id": benchmark.name,
            "num_examples": benchmark.max_problems or ALL_EXAMPLES,
            "tolerated_failures": float(benchmark.skip_failed),
            "max_retries": benchmark.max_system_retries - 1,
            "env_args": {**self._arguments(benchmark), **self._judge_of(benchmark)},
        }
        fields |= {**self._asked(benchmark), **_requests_of(service, benchmark.max_concurrent)}
        if isinstance(benchmark.solver, HarborSolver):
            fields |= _agent_fields(benchmark, benchmark.solver)
            del fields["timeout"]  # it would include the wait for a container
        elif isinstance(benchmark.sandbox, DockerSandbox):
            fields["max_sandboxes"] = benchmark.sandbox.concurrency
        unwritten = {field for field, key in _KEYS.items() if key not in benchmark.model_fields_set}
        unwritten |= set() if service.names_its_key else {"api_key_var"}
        unwritten |= {"max_sandboxes"} if "concurrency" not in benchmark.sandbox.model_fields_set else set()
        said = {name: value for name, value in fields.items() if name not in unwritten}
        return said, {name: value for name, value in fields.items() if name in unwritten}

    def _asked(self, benchmark: BenchmarkConfig) -> dict[str, Any]:
        solver = benchmark.solver
        service = self.config.services[solver.service]
        own = (solver.generation or GenerationConfig()).merge_onto(service.generation)
        sampling = own.model_dump(exclude_none=True)
        fields: dict[str, Any] = {name: sampling.pop(name) for name in PLAIN_SAMPLING if name in sampling}
        if service.proxy and service.proxy.extra_body:
            sampling["extra_body"] = service.proxy.extra_body
        settings = {"system_prompt": solver.system_prompt, "scorers": benchmark.scoring.scorers or None}
        detail = getattr(solver, "image_detail", _AUTO)
        images = [] if detail == _AUTO else [{"use": "images", "detail": detail}]
        return {
            **fields,
            "model": self.config.get_model_id(solver.service),
            "base_url": service.base_url,
            **({"api_key_var": service.api_key_var} if service.api_key_var else {}),
            "api_client_type": service.client_type,
            "sampling_args": sampling,
            "extra_env_kwargs": {name: value for name, value in settings.items() if value is not None},
            "middleware": [*images, *service.middleware],
            "cache": service.uses_cache,
        }

    def _arguments(self, benchmark: BenchmarkConfig) -> dict[str, Any]:
        if isinstance(benchmark.solver, ContainerSolver):
            return benchmark.solver.arguments(benchmark.params)
        if isinstance(benchmark.sandbox, DockerSandbox):
            return {**code_arguments(benchmark.sandbox), **benchmark.params}
        return dict(benchmark.params)

    def _judge_of(self, benchmark: BenchmarkConfig) -> dict[str, Any]:
        if (metric := benchmark.scoring.judge) is None:
            return {}
        judge = self.config.services[metric.service]
        return {
            "judge_model": self.config.get_model_id(metric.service),
            "judge_base_url": judge.base_url,
            "judge_api_key_var": judge.api_key_var,
        }

    def write_snapshot(self, folder: Path) -> Path:
        said = [f"# {self.path}, read by Nightjar {nightjar.__version__}", *(f"# -O {each}" for each in self.overrides)]
        text = "\n".join(said) + "\n" + yaml.safe_dump(dict(self.raw), sort_keys=False, allow_unicode=True)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"The folder for results {str(folder)!r} cannot be created: {error.strerror}") from error
        replace_file(folder / SNAPSHOT, [text.encode()])
        return folder / SNAPSHOT


def _agent_fields(benchmark: BenchmarkConfig, solver: HarborSolver) -> dict[str, Any]:
    sandbox = benchmark.sandbox if isinstance(benchmark.sandbox, DockerSandbox) else None
    timeout = benchmark.timeout if "timeout" in benchmark.model_fields_set else None
    limit = {"max_sandboxes": sandbox.concurrency} if sandbox else {}
    return {"env_args": {**arguments_of(solver, sandbox, timeout), **benchmark.params}, **limit}


def _tasks_beside(env_id: str, folder: Path) -> str:
    """Resolves a folder of tasks against the current folder, then against the folder of the config."""
    path = Path(env_id.removeprefix(SCHEME))
    if not env_id.startswith(SCHEME) or path.is_dir():
        return env_id
    if not (folder / path).is_dir():
        raise ConfigError(
            f"there is no folder of tasks {str(path)!r} in {Path.cwd()} or {folder.absolute()}. Nightjar does not "
            "download data sets of Harbor's registry: download the tasks, and name their folder"
        )
    return f"{SCHEME}{folder / path}"


def _requests_of(service: ExternalApiService, max_concurrent: int) -> dict[str, Any]:
    proxy = service.proxy or ProxyConfig()
    fields: dict[str, Any] = {"headers": proxy.extra_headers}
    if "max_concurrent_upstream" in proxy.model_fields_set:
        fields["max_concurrent"] = min(max_concurrent, proxy.max_concurrent_upstream)
    for field, key in (("request_timeout", "request_timeout"), ("request_retries", "max_retries")):
        if key in proxy.model_fields_set:
            fields[field] = getattr(proxy, key)
    return fields

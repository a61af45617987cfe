"""Evaluation images of NeMo Evaluator, and ``container://IMAGE#TASK?endpoint_type=completions&timeout=7200``.

Docker or Podman runs the image. The image gets the model's URL and the name of the variable with the model's key, sends
the requests itself and writes ``results.yml``::

    results: {tasks: {gsm8k: {metrics: {exact_match: {scores: {accuracy: {value: 0.81, stats: {count: 1319}}}}}}}}
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from nightjar.clients.providers import is_loopback
from nightjar.compat.nemo.engine.artifacts import Bundle, Result, build_artifact_bundle
from nightjar.compat.nemo.environments.uris import number_of, taken_apart
from nightjar.core.yaml_files import read_yaml
from nightjar.environments.data import read_rows
from nightjar.environments.seeded.bridge import BatchEnv
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.errors import ConfigError, DatasetError, Error
from nightjar.sandboxes.providers import find_engine
from nightjar.sandboxes.request import check_sandbox_access

_CONFIG_PATH = "/config/run_config.yaml"
_COMMAND = (
    f"command -v nemo-evaluator >/dev/null 2>&1 && exec nemo-evaluator run_eval --run_config {_CONFIG_PATH}; "
    f"exec eval-factory run_eval --run_config {_CONFIG_PATH}"
)
_ROUTES = {"chat": "/chat/completions", "completions": "/completions"}
_LEGACY_NAMES = {"max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens"}
_SAMPLING = frozenset({"temperature", "top_p", *_LEGACY_NAMES})
_SHOWN_BYTES = 2000
_ENDING_SECONDS = 30.0
_OF_URI = ("model_url", "model_id", "endpoint_type", "timeout")
_OF_ARGUMENTS = ("legacy_params", "adapter_config", "extra_env", "extra_mounts")
"""Arguments that are not strings. The key is not an argument, because arguments are in the record of the run."""
logger = logging.getLogger(__name__)
RESULTS_DIR = "/results"
KEY_VARIABLE = "NEMO_API_KEY"
"""The container's variable for the key; the run's configuration has only the name of the variable."""
_FILES = ("results.yml", "results.json")
_ROWS = "eval-results/**/output*.jsonl"
_REWARDS = ("reward", "score", "symbolic_correct", "correct", "is_correct", "passed", "success")
_NAMES = {
    "prompt": ("problem", "question", "input"),
    "model_response": ("generation", "response", "output"),
    "expected_answer": ("answer",),
    "extracted_answer": ("predicted_answer",),
}


class ContainerEnvironment(EvalEnvironment):
    """A complete evaluation in an image.

    Args:
        model_url, model_id, api_key: the model; None means the run's model.
        endpoint_type: ``chat`` or ``completions``.
        legacy_params: ``params`` of the evaluation, such as ``{"limit_samples": 10}``.
        extra_mounts: further mounts, ``HOST:CONTAINER``.
        timeout: time limit of the evaluation in seconds.
    """

    environment_class = BatchEnv

    def __init__(
        self,
        image: str,
        task: str = "",
        model_url: str | None = None,
        model_id: str | None = None,
        api_key: str | None = None,
        endpoint_type: str = "chat",
        legacy_params: dict[str, Any] | None = None,
        adapter_config: dict[str, Any] | None = None,
        extra_env: dict[str, str] | None = None,
        extra_mounts: list[str] | None = None,
        timeout: float = 3600.0,
    ) -> None:
        super().__init__()
        self.name = name_of(image, task)
        if endpoint_type not in _ROUTES:
            raise ConfigError(f"Unknown endpoint_type {endpoint_type!r}. Choose one of: {', '.join(_ROUTES)}")
        self._image, self._task = image, task
        self._own = {"base_url": model_url, "model": model_id, "api_key": api_key}
        self._endpoint_type = endpoint_type
        self._params = legacy_params or {}
        self._adapter_config = adapter_config
        self._env = extra_env or {}
        self._mounts = extra_mounts or []
        self._timeout = timeout

    async def dataset_size(self) -> int:
        raise self._is_whole()

    async def seed(self, idx: int) -> SeedResult:  # noqa: ARG002
        raise self._is_whole()

    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:  # noqa: ARG002
        """Returns the first score of a run of the image as the reward; all scores are metrics."""
        scores: dict[str, float] = json.loads(response)
        return VerifyResult(next(iter(scores.values())), None, scores)

    async def run_batch(self, solver: Any = None, config: dict[str, Any] | None = None) -> Bundle:
        """Runs the image and returns the bundle; ``config`` may name another model than the solver's ``client``.

        ``config`` may have ``base_url``, ``model``, ``api_key``, ``endpoint_type``, ``sampling_args``, ``params``,
        ``adapter_config``, ``env_vars`` and ``mounts``.
        """
        check_sandbox_access()
        settings = self._settings(getattr(solver, "client", None), config or {})
        engine = await asyncio.to_thread(find_engine)
        folder = Path(tempfile.mkdtemp(prefix="nightjar-container-"))
        try:
            return await self._evaluated(engine, folder, settings)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # an image may leave files of root

    def _is_whole(self) -> ConfigError:
        return ConfigError(f"{self.name!r} can only be evaluated as a whole, by 'nightjar eval run' or run_evaluation")

    def _settings(self, client: Any, config: dict[str, Any]) -> dict[str, Any]:
        of_client = {name: getattr(client, name, None) for name in self._own}
        model = {name: self._own[name] or config.get(name) or of_client[name] for name in self._own}
        if not model["base_url"] or not model["model"]:
            raise ConfigError(f"{self.name!r} needs a model: model_url and model_id, or a solver with a client")
        return {**config, **model}

    async def _evaluated(self, engine: str, folder: Path, settings: Mapping[str, Any]) -> Bundle:
        results = folder / "results"
        results.mkdir()
        results.chmod(0o777)  # the image may have its own user
        run_config = self._run_config(settings)
        (folder / "run_config.yaml").write_text(yaml.safe_dump(run_config, sort_keys=False), encoding="utf-8")
        variables = {**({KEY_VARIABLE: settings["api_key"]} if settings["api_key"] else {}), **self._env}
        variables |= settings.get("env_vars") or {}
        mounts = [f"{results}:{RESULTS_DIR}", f"{folder / 'run_config.yaml'}:{_CONFIG_PATH}:ro", *self._mounts]
        mounts += [f"{outside}:{inside}" for outside, inside in (settings.get("mounts") or {}).items()]
        code = await self._run(
            [engine, *self._words(settings["base_url"], mounts, variables)], variables, folder / "log"
        )
        if code != 0:
            end = f"took longer than {self._timeout:g} s" if code is None else f"ended with code {code}"
            raise Error(f"The image {self._image!r} {end}. Its last output: {_last_output(folder / 'log', variables)}")
        return {**build_legacy_bundle(self._image, self._task, results), "_run_config": run_config}

    def _words(self, base_url: str, mounts: Iterable[str], variables: Iterable[str]) -> Iterator[str]:
        """Yields the engine's arguments; the engine takes the values of variables from its own environment."""
        yield from ("run", "--rm", "--name", f"nightjar-{uuid.uuid4().hex[:12]}")
        if is_loopback(base_url):
            yield from ("--network", "host")
        for mount in mounts:
            yield from ("-v", mount)
        for variable in variables:
            yield from ("-e", variable)
        yield from (self._image, "bash", "-c", _COMMAND)

    def _run_config(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        kind = settings.get("endpoint_type") or self._endpoint_type
        sampling = settings.get("sampling_args") or {}
        params = {_LEGACY_NAMES.get(name, name): sampling[name] for name in sampling if name in _SAMPLING}
        url = str(settings["base_url"]).rstrip("/")
        return build_legacy_run_config(
            self._task,
            url if url.endswith(_ROUTES[kind]) else url + _ROUTES[kind],
            settings["model"],
            kind,
            {**params, **self._params, **(settings.get("params") or {})},
            settings.get("adapter_config") or self._adapter_config,
            settings["api_key"],
        )

    async def _run(self, command: list[str], variables: Mapping[str, str], log: Path) -> int | None:
        """Runs a container and returns its exit code; None after a timeout."""
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file, env={**os.environ, **variables}
            )
            code = None
            try:
                with suppress(TimeoutError):
                    code = await asyncio.wait_for(process.wait(), self._timeout)
            finally:
                if code is None:
                    await asyncio.shield(_end(process, command))
        return code


def container_environment(uri: str, **kwargs: Any) -> EvalEnvironment:
    what, options = taken_apart(uri, _OF_URI, kwargs, _OF_ARGUMENTS, {"timeout": number_of})
    image, _, task = what.partition("#")
    if not image or not task:
        raise ConfigError(f"{uri!r} names no task. Expected container://IMAGE#TASK")
    return ContainerEnvironment(image, task, **options)


async def _end(process: asyncio.subprocess.Process, command: list[str]) -> None:
    """Removes a container; ending the engine's client process alone would leave it running."""
    remove = await asyncio.create_subprocess_exec(
        command[0], "rm", "--force", command[command.index("--name") + 1],
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    with suppress(TimeoutError):
        await asyncio.wait_for(remove.wait(), _ENDING_SECONDS)
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _last_output(log: Path, variables: Mapping[str, str]) -> str:
    """Returns the end of a container's output, without the values of its variables."""
    text = log.read_bytes()[-_SHOWN_BYTES:].decode(errors="replace").strip()
    for name, value in variables.items():
        text = text.replace(value, f"[{name}]") if value else text
    return text or "nothing"


def build_legacy_run_config(
    task: str,
    model_url: str,
    model_id: str,
    endpoint_type: str,
    extra_params: dict[str, Any] | None = None,
    adapter_config: dict[str, Any] | None = None,
    api_key: str | None = None,
) -> dict[str, Any]:
    endpoint: dict[str, Any] = {"url": model_url, "model_id": model_id, "type": endpoint_type}
    if api_key:
        endpoint["api_key_name"] = KEY_VARIABLE
    if adapter_config:
        endpoint["adapter_config"] = adapter_config
    config: dict[str, Any] = {"type": task, "output_dir": RESULTS_DIR}
    if extra_params:
        config["params"] = extra_params
    return {"config": config, "target": {"api_endpoint": endpoint}}


def parse_legacy_results(results_dir: Path) -> dict[str, Any]:
    """Returns ``scores``, ``samples`` and ``repeats`` of an evaluation."""
    path = next((results_dir / name for name in _FILES if (results_dir / name).is_file()), None)
    if path is None:
        raise DatasetError(f"No results: {results_dir} has no {_FILES[0]}")
    raw = read_yaml(path)  # JSON is YAML, too
    if not isinstance(raw, dict):
        raise DatasetError(f"{path} has no results")
    scores = dict(_scores(raw))
    params = _below(raw, "config", "params")
    return {
        "scores": scores,
        "samples": _count(raw, scores, params),
        "repeats": int(_below(params, "extra").get("num_repeats") or 1),
    }


def build_legacy_bundle(image: str, task: str, results_dir: Path) -> Bundle:
    parsed = parse_legacy_results(results_dir)
    rows = _rows(results_dir)
    name = name_of(image, task)
    config = {"benchmark": name, "image": image, "task": task, "framework": "container"}
    bundle = build_artifact_bundle(name, rows, parsed["scores"], config, repeats=parsed["repeats"])
    bundle["benchmark"]["samples"] = parsed["samples"] or bundle["benchmark"]["samples"]
    return {**bundle, **({"_results": rows} if rows else {})}


def name_of(image: str, task: str) -> str:
    """Returns the name of an evaluation, such as ``container/gsm8k``; without a task, the image's name."""
    return f"container/{task or image.rpartition('/')[2].partition(':')[0]}"


def _scores(raw: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the scores of tasks, otherwise of groups, otherwise of a plain ``metrics`` or ``scores``."""
    results = _below(raw, "results")
    for kind in ("tasks", "groups"):
        found = [*_nested(_below(results, kind))]
        if found:
            yield from found
            return
    for name, value in (_below(raw, "metrics") or _below(raw, "scores")).items():
        score = value if isinstance(value, dict) else {"value": value}
        if isinstance(score.get("value"), int | float):
            yield str(name), {**score, "value": float(score["value"])}


def _nested(tasks: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for task, of_task in tasks.items():
        for metric, of_metric in _below(of_task, "metrics").items():
            for name, score in _below(of_metric, "scores").items():
                if isinstance(score, dict) and isinstance(score.get("value"), int | float):
                    stats = {"stats": score["stats"]} if score.get("stats") else {}
                    yield f"{task}/{metric}/{name}", {"value": float(score["value"]), **stats}


def _count(raw: Mapping[str, Any], scores: Mapping[str, Any], params: Mapping[str, Any]) -> int:
    counts = [raw.get("samples"), raw.get("n_samples")]
    counts += [_below(score, "stats").get("count") for score in scores.values()]
    return int(next((count for count in [*counts, params.get("limit_samples")] if count), 0))


def _below(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def _rows(results_dir: Path) -> list[Result]:
    found: list[dict[str, Any]] = []
    for path in sorted(results_dir.glob(_ROWS)):
        try:
            found += read_rows(path)
        except DatasetError as error:
            logger.warning("Ignoring rows of the evaluation: %s", error)
    seen = Counter[Any]()
    return [_row(row, number, seen) for number, row in enumerate(found)]


def _row(row: dict[str, Any], number: int, seen: Counter[Any]) -> Result:
    problem = row.get("problem_idx", number)
    repeat = seen[problem] if row.get("repeat") is None else row["repeat"]
    seen[problem] += 1
    named = {name: row.get(name, next((row[n] for n in others if n in row), "")) for name, others in _NAMES.items()}
    rewards = (float(row[name]) for name in _REWARDS if isinstance(row.get(name), int | float))
    fields = {"metadata": {}, "scoring_details": {}, **row, **named}
    return {**fields, "problem_idx": problem, "repeat": repeat, "reward": next(rewards, None)}

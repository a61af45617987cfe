"""Results in the layout of verifiers: folders with ``results.jsonl`` and ``metadata.json``, and their metadata."""

from __future__ import annotations

import json
import logging
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

from nightjar.clients import ClientConfig, resolve_client_configs
from nightjar.compat.verifiers.config import EvalConfig
from nightjar.compat.verifiers.metrics import (
    EnvMetrics,
    ErrorRateMetric,
    InputTokensMetric,
    OutputTokensMetric,
    PassAtKMetric,
    RewardMetric,
)
from nightjar.core.environment_id import EnvironmentId
from nightjar.core.files import replace_file
from nightjar.core.messages import Tool
from nightjar.core.rollout.records import RolloutOutput
from nightjar.core.rollout.usage import RolloutTiming
from nightjar.engine.runs import OUTPUT_DIR
from nightjar.engine.runs.jsonl import JsonLines, parse_line, whole_lines
from nightjar.environments.datasets import hub_dataset_name, results_dataset
from nightjar.environments.generation import GenerateMetadata, GenerateOutputs
from nightjar.environments.packages.lookup import version_info
from nightjar.errors import RunDirectoryError

logger = logging.getLogger(__name__)

_RESULTS, _METADATA = "results.jsonl", "metadata.json"
_NOT_SAVED = ("path_to_save", "date")
_ID_CHARACTERS = 8


def write_temp_file(content: str, suffix: str = ".txt") -> str:
    """Writes a temporary file, which is not deleted, and returns its path."""
    with tempfile.NamedTemporaryFile("w", suffix=suffix, delete=False, encoding="utf-8") as file:
        file.write(content)
    return file.name


def get_results_path(env_id: str, model: str, base_path: Path = OUTPUT_DIR, subdir: str = "evals") -> Path:
    return _folder(Path(base_path), subdir, env_id, model) / uuid.uuid4().hex[:_ID_CHARACTERS]


def get_eval_runs_dir(
    env_id: str, model: str, env_dir_path: str = "./environments", output_dir: str | None = None
) -> Path:
    return _folder(_base(env_id, env_dir_path, output_dir), "evals", env_id, model)


def get_eval_results_path(config: EvalConfig) -> Path:
    base = _base(config.env_id, config.env_dir_path, config.output_dir)
    return get_results_path(config.env_id, config.model, base)


def get_gepa_results_path(
    env_id: str, model: str, env_dir_path: str = "./environments", output_dir: str | None = None
) -> Path:
    return get_results_path(env_id, model, _base(env_id, env_dir_path, output_dir), "gepa")


def is_valid_eval_results_path(path: Path) -> bool:
    return path.is_dir() and all((path / name).is_file() for name in (_RESULTS, _METADATA))


def find_latest_incomplete_eval_results_path(
    env_id: str,
    model: str,
    num_examples: int,
    rollouts_per_example: int,
    env_dir_path: str = "./environments",
    output_dir: str | None = None,
) -> Path | None:
    """Returns the newest incomplete results with these settings and at most this many examples."""
    folder = get_eval_runs_dir(env_id, model, env_dir_path, output_dir)
    found = [path for path in folder.iterdir() if is_valid_eval_results_path(path)] if folder.is_dir() else []
    settings = {"env_id": env_id, "model": model, "rollouts_per_example": rollouts_per_example}
    rows = num_examples * rollouts_per_example
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        if _is_resumable(path, settings, num_examples, rows):
            return path
    return None


def _is_resumable(path: Path, settings: Mapping[str, object], num_examples: int, rows: int) -> bool:
    try:
        saved = orjson.loads((path / _METADATA).read_bytes())
        found_rows = (path / _RESULTS).read_bytes().count(b"\n")
    except (OSError, orjson.JSONDecodeError):
        return False
    if not isinstance(saved, dict) or any(saved.get(name) != value for name, value in settings.items()):
        return False
    return num_examples < 0 or (saved["num_examples"] <= num_examples and found_rows < rows)


def _folder(base: Path, subdir: str, env_id: str, model: str) -> Path:
    return base / subdir / f"{env_id}--{model.replace('/', '--')}"


def _base(env_id: str, env_dir_path: str, output_dir: str | None) -> Path:
    if output_dir:
        return Path(output_dir)
    beside = Path(env_dir_path) / EnvironmentId.parse(env_id).module / "outputs"
    return beside if beside.parent.is_dir() else OUTPUT_DIR


def make_serializable(value: object) -> str | int | float | bool | list[Any] | dict[str, Any] | None:
    """Returns a value as JSON: models as objects, dates and paths as strings, anything unknown as its ``repr``."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): make_serializable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [make_serializable(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Path) else repr(value)


def serialize_timing(timing: object) -> dict[str, Any]:
    if isinstance(timing, RolloutTiming):
        return {name: timing[name] for name in ("generation_ms", "scoring_ms", "total_ms")}
    return dict(timing) if isinstance(timing, Mapping) else {}


def load_outputs(results_path: Path) -> list[RolloutOutput]:
    """Returns the rows of a folder with results. A torn last line is left out, with a warning.

    Raises ``json.JSONDecodeError`` for any other damaged line.
    """
    path = Path(results_path) / _RESULTS
    lines = [line for line in whole_lines(path) if line.text.strip()]
    outputs = []
    for line in lines:
        try:
            outputs.append(RolloutOutput(parse_line(line.text, path, line.number)))
        except RunDirectoryError as error:
            if line is not lines[-1]:
                raise json.JSONDecodeError(str(error), line.text.decode(errors="replace"), 0) from error
            logger.warning("Ignoring the torn last line: %s", error)
    return outputs


def validate_resume_metadata(
    results_path: Path, env_id: str, model: str, num_examples: int, rollouts_per_example: int
) -> None:
    saved = orjson.loads((Path(results_path) / _METADATA).read_bytes())
    settings = {"env_id": env_id, "model": model, "rollouts_per_example": rollouts_per_example}
    differing = {name: (saved.get(name), value) for name, value in settings.items() if saved.get(name) != value}
    if 0 <= num_examples < saved.get("num_examples", 0):
        differing["num_examples"] = (saved["num_examples"], num_examples)
    if differing:
        fields = "; ".join(f"{name}: saved={old!r}, current={new!r}" for name, (old, new) in differing.items())
        raise ValueError(
            f"Cannot resume from {results_path}: metadata mismatch ({fields}). Use matching evaluation settings or "
            "provide a new results path."
        )


def save_outputs(outputs: Sequence[Mapping[str, Any]], results_path: Path, mode: str = "w") -> None:
    """Writes rows to the results of a folder; ``"w"`` replaces existing rows, ``"a"`` appends to them."""
    path = Path(results_path) / _RESULTS
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == "w":
        replace_file(path, [])
    file = JsonLines(path)  # it cuts off a torn last line
    file.append([{name: make_serializable(value) for name, value in row.items()} for row in outputs])
    file.close()


def save_new_outputs(new_outputs: Sequence[Mapping[str, Any]], results_path: Path) -> None:
    save_outputs(new_outputs, results_path, mode="a")


def sanitize_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata to save: without the path and the date."""
    return {name: value for name, value in metadata.items() if name not in _NOT_SAVED}


def save_metadata(metadata: Mapping[str, Any], result_path: Path) -> None:
    path = Path(result_path) / _METADATA
    path.parent.mkdir(parents=True, exist_ok=True)
    content = make_serializable(sanitize_metadata(metadata))
    replace_file(path, [orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)])


def get_hf_hub_dataset_name(outputs: Mapping[str, Any]) -> str:
    return hub_dataset_name(outputs["metadata"])


def push_results_to_hf_hub(results: Mapping[str, Any], dataset_name: str | None = None) -> None:
    """Pushes results to the Hugging Face Hub as a private dataset; logs a failure."""
    name = dataset_name or get_hf_hub_dataset_name(results)
    try:
        results_dataset(results).push_to_hub(name, private=True)
    except Exception:  # a failed upload must not lose paid results
        logger.exception("Could not push the results to the Hugging Face Hub as %r", name)


class GenerateOutputsBuilder:
    """Collects the rows of an evaluation in progress and builds its metadata, with only the URL of ``client``."""

    def __init__(
        self,
        env_id: str,
        env_args: dict[str, Any],
        model: str,
        client: Any,
        num_examples: int,
        rollouts_per_example: int,
        state_columns: list[str] | None,
        sampling_args: Mapping[str, Any],
        results_path: Path | None,
        pass_threshold: float = 0.5,
    ) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.start_time = time.time()
        self.base_url = self.compute_base_url(client)
        self._settings = {
            "env_id": env_id, "env_args": env_args, "model": model, "base_url": self.base_url,
            "num_examples": num_examples, "rollouts_per_example": rollouts_per_example,
            "sampling_args": dict(sampling_args), "pass_threshold": pass_threshold,
            "state_columns": state_columns or [], "path_to_save": results_path,
        }  # fmt: skip
        self._reward, self._errors, self._metrics = RewardMetric(), ErrorRateMetric(), EnvMetrics()
        self._input, self._output = InputTokensMetric(), OutputTokensMetric()
        self._pass = PassAtKMetric(rollouts_per_example, pass_threshold)
        self._tools: dict[str, list[Any] | None] = {}
        self._versions = version_info(env_id)

    @staticmethod
    def format_base_url(url: str) -> str:
        return str(url).rstrip("/")

    def compute_base_url(self, client: Any) -> str:
        """Returns the base URL of a client; the URLs of replicas are joined by commas."""
        config = client if isinstance(client, ClientConfig) else getattr(client, "config", None)
        if isinstance(config, ClientConfig):
            return ",".join(self.format_base_url(each.api_base_url) for each in resolve_client_configs(config))
        return self.format_base_url(getattr(client, "base_url", "") or "")

    @staticmethod
    def tools_key(tools: list[Tool] | None) -> str:
        return orjson.dumps(sorted(tool["name"] for tool in tools or [])).decode()

    def add_outputs(self, new_outputs: Sequence[dict[str, Any]]) -> None:
        self.outputs.extend(new_outputs)
        for metric in (self._reward, self._errors, self._metrics, self._input, self._output, self._pass):
            metric.add_outputs(new_outputs)
        for row in new_outputs:
            self._tools.setdefault(self.tools_key(row.get("tool_defs")), row.get("tool_defs"))

    def build_metadata(self) -> GenerateMetadata:
        seconds = time.time() - self.start_time
        at_k, all_k = self._pass.compute()
        usage = {"input_tokens": self._input.compute(), "output_tokens": self._output.compute()}
        return {
            **self._settings,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "time": seconds,
            "time_ms": 1000 * seconds,
            "avg_reward": self._reward.compute(),
            "avg_metrics": self._metrics.compute(),
            "avg_error": self._errors.compute(),
            "pass_at_k": at_k,
            "pass_all_k": all_k,
            "usage": usage if self._input.count else None,
            "version_info": {"vf_version": self._versions["nightjar_version"],
                             "vf_commit": self._versions["nightjar_commit"], **self._versions},
            "tools": next(iter(self._tools.values())) if len(self._tools) == 1 else None,
        }  # fmt: skip

    def build_outputs(self, sort_by_example_id: bool = False) -> list[dict[str, Any]]:
        return sorted(self.outputs, key=lambda row: row["example_id"]) if sort_by_example_id else self.outputs

    def build(self, sort_by_example_id: bool = False) -> GenerateOutputs:
        return GenerateOutputs(outputs=self.build_outputs(sort_by_example_id), metadata=self.build_metadata())

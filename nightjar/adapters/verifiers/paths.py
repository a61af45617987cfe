"""Where results go, in the words of verifiers."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

import orjson

from nightjar.adapters.verifiers.eval_config import EvalConfig
from nightjar.packages import EnvironmentId
from nightjar.runs import OUTPUT_DIR

_FILES = ("results.jsonl", "metadata.json")
_ID_CHARACTERS = 8


def write_temp_file(content: str, suffix: str = ".txt") -> str:
    """Writes a temporary file, which stays, and returns its path."""
    with tempfile.NamedTemporaryFile("w", suffix=suffix, delete=False, encoding="utf-8") as file:
        file.write(content)
    return file.name


def get_results_path(env_id: str, model: str, base_path: Path = OUTPUT_DIR, subdir: str = "evals") -> Path:
    """Returns a new place below ``base_path`` for the results of an environment with a model."""
    return _folder(Path(base_path), subdir, env_id, model) / uuid.uuid4().hex[:_ID_CHARACTERS]


def get_eval_runs_dir(
    env_id: str, model: str, env_dir_path: str = "./environments", output_dir: str | None = None
) -> Path:
    """Returns the folder with all results of an environment with a model."""
    return _folder(_base(env_id, env_dir_path, output_dir), "evals", env_id, model)


def get_eval_results_path(config: EvalConfig) -> Path:
    """Returns a new place for the results of an evaluation."""
    base = _base(config.env_id, config.env_dir_path, config.output_dir)
    return get_results_path(config.env_id, config.model, base)


def get_gepa_results_path(
    env_id: str, model: str, env_dir_path: str = "./environments", output_dir: str | None = None
) -> Path:
    """Returns a new place for what an optimization of prompts comes to."""
    return get_results_path(env_id, model, _base(env_id, env_dir_path, output_dir), "gepa")


def is_valid_eval_results_path(path: Path) -> bool:
    """Says whether a folder holds results and their metadata."""
    return path.is_dir() and all((path / name).is_file() for name in _FILES)


def find_latest_incomplete_eval_results_path(
    env_id: str,
    model: str,
    num_examples: int,
    rollouts_per_example: int,
    env_dir_path: str = "./environments",
    output_dir: str | None = None,
) -> Path | None:
    """Returns the newest results to go on with: of the same settings, of no more examples, and not complete."""
    folder = get_eval_runs_dir(env_id, model, env_dir_path, output_dir)
    found = [path for path in folder.iterdir() if is_valid_eval_results_path(path)] if folder.is_dir() else []
    asked = {"env_id": env_id, "model": model, "rollouts_per_example": rollouts_per_example}
    for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
        if _is_part_of(path, asked, num_examples):
            return path
    return None


def _is_part_of(path: Path, asked: dict[str, object], num_examples: int) -> bool:
    try:
        saved = orjson.loads((path / "metadata.json").read_bytes())
        rows = (path / "results.jsonl").read_bytes().count(b"\n")
    except (OSError, orjson.JSONDecodeError):
        return False
    is_same = isinstance(saved, dict) and all(saved.get(name) == value for name, value in asked.items())
    is_all = num_examples < 0
    return (
        is_same
        and (is_all or saved["num_examples"] <= num_examples)
        and (is_all or rows < _target(asked, num_examples))
    )


def _target(asked: dict[str, object], num_examples: int) -> int:
    return num_examples * int(str(asked["rollouts_per_example"]))


def _folder(base: Path, subdir: str, env_id: str, model: str) -> Path:
    return base / subdir / f"{env_id}--{model.replace('/', '--')}"


def _base(env_id: str, env_dir_path: str, output_dir: str | None) -> Path:
    if output_dir:
        return Path(output_dir)
    beside = Path(env_dir_path) / EnvironmentId.parse(env_id).module / "outputs"
    return beside if beside.parent.is_dir() else OUTPUT_DIR

"""Benchmarks of NeMo Skills on disk: folders, settings and prompts. None of their code runs.

::

    dataset/gpqa/__init__.py        METRICS_TYPE = "multichoice"
                                    EVAL_SPLIT = "diamond"
                                    GENERATION_ARGS = "++prompt_config=eval/mcq ++eval_type=multichoice"
    dataset/gpqa/diamond.jsonl      {"problem": "...", "expected_answer": "B", ...}
    prompt/config/eval/mcq.yaml     user: ...
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nightjar.core.config_files import read_yaml
from nightjar.core.syntax import parse_python
from nightjar.errors import ConfigError, DatasetError

VARIABLE = "NEMO_SKILLS_DATA_DIR"

_PACKAGE = "nemo_skills"
_ARGUMENTS = ("GENERATION_ARGS", "EVAL_ARGS", "DEFAULT_EVAL_ARGS", "DEFAULT_GENERATION_ARGS")
_OF_EVALUATION = "eval_config."


@dataclass(frozen=True)
class SkillsSettings:
    """The settings in a benchmark's ``__init__.py``.

    Attributes:
        eval_type: the scoring; usually the same as ``metrics_type``.
        split: the file of problems, without ``.jsonl``.
        prompt_config: the name of the prompt in the package; None for none.
        examples_type: the few-shot examples, which are code of the package; None for none.
        has_judge: whether a model also judges the answers.
    """

    metrics_type: str = "math"
    eval_type: str = "math"
    split: str = "test"
    prompt_config: str | None = None
    examples_type: str | None = None
    eval_config: dict[str, Any] = field(default_factory=dict)
    has_judge: bool = False


def dataset_folders(data_dir: str | Path | None) -> list[Path]:
    """Returns the folders of benchmarks in order of precedence; the installed package is the last."""
    named = data_dir or os.environ.get(VARIABLE)
    package = _package_folder()
    folders = [*([Path(named).expanduser()] if named else []), *([package / "dataset"] if package else [])]
    if not folders:
        raise ConfigError(
            "NeMo Skills is not installed. Install it: pip install git+https://github.com/NVIDIA-NeMo/Skills. Or name "
            f"a folder of its datasets: skills://NAME?data_dir=FOLDER, or {VARIABLE}"
        )
    if named and not folders[0].is_dir():
        raise ConfigError(f"The folder {str(named)!r} for data of NeMo Skills does not exist")
    return folders


def read_settings(benchmark: str, folders: Sequence[Path]) -> SkillsSettings:
    """Returns the settings of a benchmark, with defaults if it has no ``__init__.py``."""
    path = _first(folders, f"{_as_path(benchmark)}/__init__.py")
    constants = {} if path is None else _assigned(path)
    arguments: dict[str, str] = {}
    for name in reversed(_ARGUMENTS):
        arguments |= _hydra(str(constants.get(name, "")))
    metrics = str(constants.get("METRICS_TYPE", "math"))
    return SkillsSettings(
        metrics_type=metrics,
        eval_type=arguments.get("eval_type", metrics),
        split=str(constants.get("EVAL_SPLIT", "test")),
        prompt_config=arguments.get("prompt_config") or constants.get("PROMPT_CONFIG"),
        examples_type=arguments.get("examples_type"),
        eval_config={
            name.removeprefix(_OF_EVALUATION): _value(text)
            for name, text in arguments.items()
            if name.startswith(_OF_EVALUATION)
        },
        has_judge=any(name.startswith("JUDGE") for name in constants),
    )


def split_file(benchmark: str, split: str, folders: Sequence[Path]) -> Path:
    path = _first(folders, f"{_as_path(benchmark)}/{split}.jsonl")
    if path is not None:
        return path
    places = ", ".join(str(folder) for folder in folders)
    found = sorted({path.stem for folder in folders for path in (folder / _as_path(benchmark)).glob("*.jsonl")})
    hint = f"It has: {', '.join(found)}" if found else f"NeMo Skills makes it: ns prepare_data {benchmark}"
    raise DatasetError(f"Benchmark {benchmark!r} of NeMo Skills has no {split}.jsonl in {places}. {hint}")


def read_prompt(settings: SkillsSettings, folders: Sequence[Path]) -> Mapping[str, Any] | None:
    """Returns the prompt of a benchmark from ``prompt/config`` beside the datasets; None if it does not exist."""
    if settings.prompt_config is None:
        return None
    name = settings.prompt_config.removesuffix(".yaml")
    path = _first([folder.parent / "prompt/config" for folder in folders], f"{name}.yaml")
    if path is None:
        return None
    prompt = read_yaml(path)
    if not isinstance(prompt, dict) or not isinstance(prompt.get("user"), str):
        raise DatasetError(f"{path} is not a prompt of NeMo Skills: it has no 'user'")
    return prompt


def list_skills_benchmarks(data_dir: str | Path | None = None) -> list[dict[str, Any]]:
    """Returns ``benchmark``, ``splits`` and ``metrics_type`` of the benchmarks with prepared problems."""
    folders = dataset_folders(data_dir)
    found: dict[str, list[str]] = {}
    for folder in folders:
        for file in folder.glob("*/**/*.jsonl"):
            found.setdefault(".".join(file.parent.relative_to(folder).parts), []).append(file.stem)
    return [
        {"benchmark": name, "splits": sorted({*splits}), "metrics_type": read_settings(name, folders).metrics_type}
        for name, splits in sorted(found.items())
    ]


def _package_folder() -> Path | None:
    found = importlib.util.find_spec(_PACKAGE)
    places = list(found.submodule_search_locations or []) if found else []
    return Path(places[0]) if places else None


def _as_path(benchmark: str) -> str:
    return benchmark.replace(".", "/")


def _first(folders: Sequence[Path], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _assigned(path: Path) -> dict[str, Any]:
    try:
        tree = parse_python(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue  # only the package's own programs use computed values
    return found


def _hydra(arguments: str) -> dict[str, str]:
    """Returns ``++name=value`` arguments as a dict."""
    pairs = (word.lstrip("+").partition("=") for word in shlex.split(arguments) if word.startswith("+"))
    return {name: value for name, _, value in pairs}


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text.strip("'\"")

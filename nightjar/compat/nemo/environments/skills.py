r"""Benchmarks of NeMo Skills, and ``skills://`` (docs/guides/nemo-skills.md). Nightjar runs none of their code.

::

    dataset/gpqa/__init__.py        METRICS_TYPE = "multichoice"
                                    EVAL_SPLIT = "diamond"
                                    GENERATION_ARGS = "++prompt_config=eval/mcq ++eval_type=multichoice"
    dataset/gpqa/diamond.jsonl      {"problem": "...", "expected_answer": "B", ...}
    prompt/config/eval/mcq.yaml     user: ...

Answers are scored as mathematics or by the letter of an option. An answer is the content of ``\boxed{}`` or a match
of ``extract_regex``. The settings ``extract_from_boxed``, ``relaxed`` and ``regex_first``, of a benchmark or a row,
choose between these two ways.
"""

from __future__ import annotations

import ast
import importlib.util
import logging
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nightjar.compat.nemo.environments.uris import taken_apart
from nightjar.core.syntax import parse_python
from nightjar.core.yaml_files import read_yaml
from nightjar.environments.data import read_rows
from nightjar.environments.parsers import Parser, extract_boxed_answer
from nightjar.environments.rubrics import MathRubric
from nightjar.environments.scorers.texts import stated_letter
from nightjar.environments.seeded.eval_environment import EvalEnvironment, SeedResult, VerifyResult
from nightjar.environments.seeded.rows import image_in, prompt_of
from nightjar.errors import ConfigError, DatasetError

logger = logging.getLogger(__name__)
_ASKED = ("problem", "question", "prompt", "input", "text")
_EXPECTED = ("expected_answer", "answer", "solution", "target", "label")
_KEPT = ("id", "category", "subject", "difficulty", "level", "type", "domain", "subset", "choices", "options")
_PLAIN = {
    "math": "{problem}\n\nPut the final answer, and nothing else, in \\boxed{{}}.",
    "multichoice": "{problem}\n\nEnd with a line 'Answer: X', where X is the letter of the right option.",
}
_OF_URI = ("split", "data_dir", "prompt_template", "eval_type")
OPTIONS = ("extract_from_boxed", "extract_regex", "relaxed", "regex_first")
"""Fields of a row that control the extraction of its answer."""
_STATED = r"The final answer is (.+)$"
_MODULO = "take_modulo"
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LAST_LETTER = re.compile(r"\b([A-Z])\b(?!.*\b[A-Z]\b)", re.DOTALL)
_WITHOUT_EFFECT = frozenset({"timeout", "numeric_precision"})
VARIABLE = "NEMO_SKILLS_DATA_DIR"
_PACKAGE = "nemo_skills"
_ARGUMENTS = ("GENERATION_ARGS", "EVAL_ARGS", "DEFAULT_EVAL_ARGS", "DEFAULT_GENERATION_ARGS")
_OF_EVALUATION = "eval_config."


class SkillsEnvironment(EvalEnvironment):
    """A benchmark of NeMo Skills, such as ``gpqa``; in a group, its name is ``group.name``.

    Args:
        split: the file of problems; None means the benchmark's default.
        data_dir: the folder of benchmarks; None means ``NEMO_SKILLS_DATA_DIR`` or the installed package.
        prompt_template: a text with ``{fields}`` of rows, or a file. None means NeMo Skills' prompt or a plain prompt.
        eval_type: ``math`` or ``multichoice``; None means the benchmark's own type.
    """

    def __init__(
        self,
        benchmark: str,
        split: str | None = None,
        data_dir: str | None = None,
        prompt_template: str | None = None,
        eval_type: str | None = None,
    ) -> None:
        super().__init__()
        self.name = f"skills:{benchmark}"
        self.benchmark = benchmark
        folders = dataset_folders(data_dir)
        settings = read_settings(benchmark, folders)
        self._file = split_file(benchmark, split or settings.split, folders)
        self.dataset = read_rows(self._file)
        self.eval_type = _judged_by(benchmark, settings, eval_type)
        self._scorer = SkillsScorer(self.eval_type, settings.eval_config)
        config = None if prompt_template else read_prompt(settings, folders)
        self._config = config or {"user": prompt_template or _PLAIN[self.eval_type]}
        if settings.examples_type and not prompt_template:
            raise ConfigError(
                f"Benchmark {benchmark!r} of NeMo Skills has few-shot examples ({settings.examples_type}), which are "
                "code of the package. Set prompt_template instead"
            )
        if "audio_field" in self._config:
            raise ConfigError(f"Benchmark {benchmark!r} of NeMo Skills has audio, which Nightjar does not send")
        if settings.has_judge:
            logger.warning(
                "NeMo Skills also uses a model to judge %r; Nightjar scores it as %s only", benchmark, self.eval_type
            )

    async def seed(self, idx: int) -> SeedResult:
        row = self.dataset[idx]
        question = self._question(row, idx)
        fields = {"examples": "", **row, "problem": question, "question": row.get("question", question)}
        image = row.get(self._config.get("image_field") or "")
        return SeedResult(
            prompt=prompt_of(self._config["user"])(fields),
            expected_answer=str(_field(row, _EXPECTED, self._at(idx))),
            metadata={
                "source": "nemo_skills",
                "benchmark": self.benchmark,
                "eval_type": self.eval_type,
                **{name: row[name] for name in (*_KEPT, *OPTIONS) if name in row},
            },
            system=prompt_of(self._config["system"])(fields) if self._config.get("system") else None,
            messages=row.get("messages"),
            images=[self._image(image, idx)] if image else None,
        )

    async def verify(self, response: str, expected: str, sandbox: Any = None, **metadata: Any) -> VerifyResult:  # noqa: ARG002
        found, is_right = await self._scorer.score(response, expected, metadata)
        details = {"method": f"skills_{self.eval_type}", "extracted": found, "match": is_right}
        return VerifyResult(float(is_right), found, details)

    async def close(self) -> None:
        await self._scorer.close()

    def _image(self, name: str, idx: int) -> str:
        try:
            return image_in(self._file.parent / name, self._file.parent)
        except DatasetError as error:
            raise DatasetError(f"{self._at(idx)}: {error}") from error

    def _question(self, row: dict[str, Any], idx: int) -> str:
        """Returns the question; appends options, unless the question or the prompt already has them."""
        question, options = str(_field(row, _ASKED, self._at(idx))), row.get("options")
        is_apart = isinstance(options, str) and options not in question and "{options}" not in self._config["user"]
        return f"{question}\n\n{options}" if is_apart else question

    def _at(self, idx: int) -> str:
        return f"{self._file}, line {idx + 1}"


def skills_environment(uri: str, **kwargs: Any) -> EvalEnvironment:
    benchmark, options = taken_apart(uri, _OF_URI, kwargs)
    return SkillsEnvironment(benchmark, **options)


def _judged_by(benchmark: str, settings: SkillsSettings, chosen: str | None) -> str:
    wanted = [chosen] if chosen else [settings.metrics_type, settings.eval_type]
    for kind in wanted:
        if kind not in _PLAIN:
            known = ", ".join(_PLAIN)
            raise ConfigError(
                f"NeMo Skills scores {benchmark!r} by {kind!r}, which Nightjar does not support. To score it by one of "
                f"{known} anyway, set eval_type"
            )
    return wanted[-1]


def _field(row: dict[str, Any], names: tuple[str, ...], place: str) -> Any:
    found = next((row[name] for name in names if row.get(name) is not None), None)
    if found is None:
        raise DatasetError(f"{place}: a row needs one of {', '.join(names)} (found: {', '.join(row)})")
    return found


class SkillsScorer:
    def __init__(self, eval_type: str, settings: Mapping[str, Any]) -> None:
        if unknown := settings.keys() - {*OPTIONS, *_WITHOUT_EFFECT, _MODULO}:
            raise ConfigError(
                f"NeMo Skills scores this benchmark with eval_config.{min(unknown)}, which Nightjar does not support"
            )
        self._is_choice = eval_type == "multichoice"
        self._settings = {"relaxed": self._is_choice, **settings}
        self._math = MathRubric(parser=Parser())

    async def score(self, response: str, expected: str, row: Mapping[str, Any]) -> tuple[str | None, bool]:
        settings = self._settings | {name: row[name] for name in OPTIONS if name in row}
        answer = response.rpartition("</think>")[2]
        found = _extracted(answer, settings)
        if self._is_choice:
            letter = _letter(found) or stated_letter(answer, _ALPHABET)
            return letter, letter is not None and letter == expected.strip().upper()
        return found, found is not None and await self._is_equal(found, expected)

    async def close(self) -> None:
        await self._math.teardown()

    async def _is_equal(self, found: str, expected: str) -> bool:
        given, wanted = _bare(found), _bare(expected)
        if modulo := self._settings.get(_MODULO):
            return re.fullmatch(r"-?\d+", given) is not None and int(given) % modulo == int(wanted) % modulo
        if given == wanted:
            return bool(given)
        return bool(await self._math.correct_answer(self._math.parser, found, expected))


def _extracted(text: str, settings: Mapping[str, Any]) -> str | None:
    boxed = extract_boxed_answer(text, strict=True).strip() or None
    patterns = settings.get("extract_regex", _STATED)
    stated = _found_by([patterns] if isinstance(patterns, str) else patterns, text)
    if settings.get("relaxed"):
        return (stated or boxed) if settings.get("regex_first") else (boxed or stated)
    return boxed if settings.get("extract_from_boxed", True) else stated


def _found_by(patterns: list[str], text: str) -> str | None:
    for pattern in patterns:
        if found := re.findall(pattern, text):
            return str(found[-1])
    return None


def _letter(found: str | None) -> str | None:
    if found is None or len(found) == 1:
        return found.upper() if found else None
    match = _LAST_LETTER.search(found)
    return match.group(1) if match else None


def _bare(text: str) -> str:
    return re.sub(r"\s+|\\?%$|[.\\]+$", "", text.strip())


@dataclass(frozen=True)
class SkillsSettings:
    """The settings in a benchmark's ``__init__.py``. A missing prompt or missing examples are None.

    ``eval_type`` is the scoring, usually the same as ``metrics_type``. ``split`` is the file of problems without
    ``.jsonl``. ``examples_type`` names few-shot examples, which are code of the package.
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
    """Returns the prompt of a benchmark from ``prompt/config`` beside the datasets; None if the file does not exist."""
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
    pairs = (word.lstrip("+").partition("=") for word in shlex.split(arguments) if word.startswith("+"))
    return {name: value for name, _, value in pairs}


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text.strip("'\"")

"""Which examples a run takes, and which run on disk it goes on with."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar.config import ALL_EXAMPLES, RunConfig
from nightjar.data import Examples, example_hash, fingerprint
from nightjar.errors import ConfigError, DatasetError, NightjarError, ResumeMismatchError, RunDirectoryError
from nightjar.parts import Part
from nightjar.runs import RunDirectory, runs_folder, runs_folders
from nightjar.runs.identity import differences

_OWN = Path(__file__).parents[1]


@dataclass(frozen=True)
class Selection:
    """The examples of a run.

    Attributes:
        hashes: example_id to content hash, in the order in which the examples are taken.
    """

    hashes: dict[int, str]

    def fingerprint(self, count: int | None = None) -> str:
        """Identifies the first ``count`` examples, or all of them, order included."""
        return fingerprint(list(self.hashes.values())[:count])

    def block(self, part: Part) -> Selection:
        """Returns those of a part of the run.

        Raises:
            ConfigError: there is none.
        """
        hashes = dict([*self.hashes.items()][part.block(len(self.hashes))])
        if not hashes:
            raise ConfigError(f"Part {part} has no example: the run takes {len(self.hashes)}. Take fewer parts")
        return Selection(hashes)


def select_examples(examples: Examples, config: RunConfig) -> Selection:
    """Takes the first ``num_examples`` examples, in the order of the dataset or shuffled with a seed.

    Raises:
        DatasetError: the dataset is broken, or the function that builds it raised (the cause).
    """
    order = list(range(_count(examples, config.env_id)))
    if config.shuffle_seed is not None:
        random.Random(config.shuffle_seed).shuffle(order)  # noqa: S311 - no secret is made of it
    if config.num_examples != ALL_EXAMPLES:
        order = order[: config.num_examples]
    return Selection({example_id: example_hash(examples[example_id]) for example_id in order})


def _count(examples: Examples, env_id: str) -> int:
    try:
        return len(examples)
    except NightjarError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}{_place(error)}"
        raise DatasetError(f"The dataset of environment {env_id!r} cannot be built: {reason}") from error


def _place(error: Exception) -> str:
    """Names the line that the error came from: of the file that Nightjar called into."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _OWN not in Path(frame.filename).parents]
    if not frames:
        return ""
    called = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    return f" ({Path(called.filename).name}, line {called.lineno})"


def find_resumable(config: RunConfig, output_dir: Path | None) -> RunDirectory | None:
    """Returns the newest run of the same identity, of no more examples, that is not both complete and published.

    Where all are, it is the newest of them, of which nothing is left to do. None where there is nothing to go on with.

    Raises:
        ResumeMismatchError: all that there is to go on with is of other settings, and so is no evaluation of a suite.
    """
    asked = config.identity() | {"rescored_from": None}
    folder = runs_folder(config.env_id, config.model, output_dir, config.environments_dir)
    finished, near = None, None
    for directory in _newest_first(runs_folders(folder, config.env_id, config.model)):
        try:
            saved = directory.read_config()
        except RunDirectoryError:
            continue
        is_done = _is_covered(directory, saved, config)
        differing = differences(saved, asked) | _too_many(saved, config)
        if not differing and not is_done:
            return directory
        if not differing:
            finished = finished or directory
        elif not (is_done or config.suite or any(saved.get(name) for name in ("suite", "rescored_from", "part"))):
            near = near or ResumeMismatchError(str(directory.path), differing)
    if finished is None and near is not None:
        raise near
    return finished


def _too_many(saved: dict[str, Any], config: RunConfig) -> dict[str, tuple[int, int]]:
    count = saved["selected_examples"]
    has_more = config.num_examples not in {ALL_EXAMPLES, count} and count > config.num_examples
    return {"num_examples": (count, config.num_examples)} if has_more else {}


def _is_covered(directory: RunDirectory, saved: dict[str, Any], config: RunConfig) -> bool:
    if config.num_examples == ALL_EXAMPLES or config.num_examples > saved["selected_examples"]:
        return False
    try:
        metadata = directory.read_metadata()
    except RunDirectoryError:
        return False  # killed before it was first written; damaged, it is reported when the run is opened
    return metadata.get("status") == "completed" and bool(metadata.get("published_at"))


def _newest_first(folders: Iterable[Path]) -> Iterable[RunDirectory]:
    found = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if _is_run(path)]
    found.sort(key=lambda path: (path / "config.json").stat().st_mtime, reverse=True)
    return [RunDirectory(path) for path in found]


def _is_run(path: Path) -> bool:
    return (path / "config.json").is_file()

"""``scoring_hash``: identifies the code that a rubric scores with, so that two scores can be told apart."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from nightjar.packages.source import source_hash
from nightjar.rubrics import Rubric, RubricGroup


def scoring_hash(rubric: Rubric, env_hash: str | None) -> str:
    """Returns the SHA-256 of the files of an environment and of a rubric, its reward functions and its parser.

    Args:
        rubric: what scores; it may be of other files than the environment.
        env_hash: of the environment's files, which the rubric's may import; None where it has none.
    """
    files = {f"{path.parent.name}/{path.name}": path for path in _files(rubric)}
    return sha256(f"{env_hash} {source_hash(files)}".encode()).hexdigest()


def _files(rubric: Rubric) -> Iterator[Path]:
    parts = rubric.rubrics if isinstance(rubric, RubricGroup) else [rubric]
    for part in parts:
        for scoring in (type(part), *part.funcs, type(part.parser), getattr(part.parser, "extract_fn", None)):
            if file := _file_of(scoring):
                yield Path(file)


def _file_of(scoring: Any) -> str | None:
    """Returns the file of a class or function, or of what wraps one; None where there is none, as for built-ins."""
    bare = scoring.func if isinstance(scoring, functools.partial) else scoring
    known = bare if inspect.isclass(bare) or inspect.isroutine(bare) else type(bare)
    try:
        return inspect.getsourcefile(known)
    except TypeError:
        return None

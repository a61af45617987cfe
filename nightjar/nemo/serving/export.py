"""The problems of a benchmark as the JSON lines that Gym clients read."""

from __future__ import annotations

import re
from pathlib import Path

from nightjar.envs.seeded.bridge import messages_of, seeded, size_of
from nightjar.envs.seeded.eval_environment import EvalEnvironment
from nightjar.nemo.serving.bodies import answered

_AT_ONCE = 256
_SUFFIXES = (".jsonl", ".json")


async def export_data(env: EvalEnvironment, path: str | Path) -> Path:
    """Writes the problems of a benchmark, a line each, and returns the file.

    Args:
        env: the benchmark, got ready.
        path: a file (``.jsonl``), or the folder in which ``NAME.jsonl`` is made.
    """
    file = _file(Path(path), env.name)
    size = await size_of(env)
    with file.open("wb") as lines:
        for start in range(0, size, _AT_ONCE):
            for number, seed in (await seeded(env, range(start, min(start + _AT_ONCE, size)))).items():
                row = {
                    "responses_create_params": {"input": messages_of(seed)},
                    "expected_answer": seed.expected_answer,
                    "uuid": f"{env.name}-{number}",
                    "metadata": seed.metadata,
                }
                lines.write(bytes(answered(row).body) + b"\n")
    return file


def _file(path: Path, name: str) -> Path:
    if path.suffix not in _SUFFIXES or path.is_dir():
        path /= f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path

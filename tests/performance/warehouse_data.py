"""Run directories as months of nightly evaluations would leave them, written quickly and always the same.

Five models are asked the same environments every night; the runs are numbered as they happen. A line of
``results.jsonl`` has 3 KB on average. Models differ, drift and fail a little, some rollouts need two attempts;
``metadata.json`` is true to the lines. The fields are described in docs/reference/run-directory.md.

>>> Nights(REALISTIC).write_run(Path("outputs"), 0).rollouts     # doctest: +SKIP
500
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import numpy as np
import orjson
from made_up_rows import ERRORS, Example, Rollout, Row, attempt_rows, result_row
from made_up_text import SEED, text

from nightjar.engine.runs.identity import fingerprint
from nightjar.engine.runs.summary import Summary, summarize_rows
from nightjar.environments.data.examples import example_hash

MODELS = ("openai/gpt-4.1-mini", "openai/gpt-4.1", "anthropic/claude-haiku", "qwen/qwen3-32b", "meta/llama-4-8b")
SUBJECTS = ("algebra", "geometry", "number-theory", "probability", "logic")
_BUFFER = 1 << 20
PASS_THRESHOLD = 0.5
FIRST_NIGHT = datetime(2026, 1, 1, 1, tzinfo=UTC)
FAILED, RETRIED, TRUNCATED, FORMATTED = 0.02, 0.03, 0.01, 0.97
"""Shares of the rollouts."""


@dataclass(frozen=True)
class Shape:
    """How large the data is; lengths of texts are means in characters.

    Attributes:
        environments: how many there are; those of odd number have one rollout an example.
        rollouts: of a run.
        rollouts_per_example: r of the environments of even number.
        system, question, solution, completion: lengths; 0 for none.
    """

    environments: int
    rollouts: int
    rollouts_per_example: int
    system: int
    question: int
    solution: int
    completion: int


REALISTIC = Shape(20, 500, 5, system=280, question=650, solution=440, completion=900)
SHORT = Shape(20, 20_000, 5, system=0, question=45, solution=0, completion=24)


@dataclass(frozen=True)
class WrittenRun:
    path: Path
    run_id: str
    rollouts: int
    results_bytes: int
    attempts_bytes: int


def env_id_of(number: int) -> str:
    return f"{SUBJECTS[number % len(SUBJECTS)]}-{number:02d}"


class Environment:
    def __init__(self, shape: Shape, number: int) -> None:
        random = np.random.default_rng([SEED, 1, number])
        self.env_id = env_id_of(number)
        self.rollouts_per_example = 1 if number % 2 else shape.rollouts_per_example
        self.rollouts = shape.rollouts
        self._system = text().piece(random, shape.system)
        count = shape.rollouts // self.rollouts_per_example
        self.examples = [self._example(shape, random, f"{self.env_id}/{position}") for position in range(count)]
        self.fingerprint = fingerprint(example.hash for example in self.examples)

    def _example(self, shape: Shape, random: np.random.Generator, source: str) -> Example:
        question = text().piece(random, shape.question)
        system = [{"role": "system", "content": self._system}] if self._system else []
        prompt = [*system, {"role": "user", "content": question}]
        answer = str(random.integers(2, 10_000))
        info: Row = {"source": source}
        if shape.solution:
            solution = f"{text().piece(random, shape.solution)}\n#### {answer}"
            info |= {"subject": str(random.choice(SUBJECTS)), "level": int(random.integers(1, 6)), "solution": solution}
        return Example(
            hash=example_hash({"prompt": prompt, "answer": answer, "info": info}),
            prompt=orjson.Fragment(orjson.dumps(prompt)),
            prompt_messages=len(prompt),
            info=orjson.Fragment(orjson.dumps(info)),
            answer=answer,
            input_tokens=(len(self._system) + len(question)) // 4 + 12,
            difficulty=float(random.normal()),
        )


class Nights:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._environments: dict[int, Environment] = {}

    def write_run(self, folder: Path, number: int) -> WrittenRun:
        night, position = divmod(number, len(MODELS) * self.shape.environments)
        environment, model = divmod(position, len(MODELS))
        run = _Run(
            environment=self._environment(environment),
            model=MODELS[model],
            run_id=self.run_id(number),
            started_at=FIRST_NIGHT + timedelta(days=night, minutes=4 * position),
            skill=1.2 - 0.4 * model + 0.3 * math.sin(night / 3 + model),
            completion_length=self.shape.completion,
            random=np.random.default_rng([SEED, 2, number]),
        )
        return run.write(folder / run.run_id)

    def run_id(self, number: int) -> str:
        return hashlib.sha256(f"{SEED} {self.shape} {number}".encode()).hexdigest()[:12]

    def _environment(self, number: int) -> Environment:
        if number not in self._environments:
            self._environments[number] = Environment(self.shape, number)
        return self._environments[number]


@dataclass(frozen=True)
class _Run:
    environment: Environment
    model: str
    run_id: str
    started_at: datetime
    skill: float
    completion_length: int
    random: np.random.Generator

    def write(self, path: Path) -> WrittenRun:
        path.mkdir(parents=True)
        with (
            (path / "results.jsonl").open("wb", _BUFFER) as results,
            (path / "attempts.jsonl").open("wb", _BUFFER) as attempts,
        ):
            summary = summarize_rows(
                self._written_rows(results, attempts),
                rollouts=self.environment.rollouts,
                rollouts_per_example=self.environment.rollouts_per_example,
                pass_threshold=PASS_THRESHOLD,
            )
            written = WrittenRun(path, self.run_id, summary.rollouts, results.tell(), attempts.tell())
        _write_object(path / "config.json", self._config())
        _write_object(path / "metadata.json", self._metadata(summary))
        return written

    def _written_rows(self, results_file: BinaryIO, attempts_file: BinaryIO) -> Iterator[Row]:
        """Yields the rows of the results, each group when it is written."""
        r = self.environment.rollouts_per_example
        for group in zip(*[self._rollouts()] * r, strict=True):
            results = [result_row(rollout) for rollout in group]
            scored = [row for row in results if row["error"] is None]
            mean = sum(row["reward"] for row in scored) / (len(scored) or 1)
            for row in scored:
                row["advantage"] = row["reward"] - mean
            results_file.write(_lines(results))
            attempts_file.writelines(
                _lines(attempt_rows(rollout, result)) for rollout, result in zip(group, results, strict=True)
            )
            yield from results

    def _rollouts(self) -> Iterator[Rollout]:
        random, r = self.random, self.environment.rollouts_per_example
        examples = [example for example in self.environment.examples for _ in range(r)]
        count = len(examples)
        difficulty = np.array([example.difficulty for example in examples])
        failures = random.integers(0, len(ERRORS), count)
        columns = zip(
            [self.run_id] * count,
            [self.model] * count,
            (np.arange(count) // r).tolist(),
            (np.arange(count) % r).tolist(),
            examples,
            text().pieces(random, count, self.completion_length),
            (random.random(count) < 1 / (1 + np.exp(1.5 * difficulty - self.skill))).tolist(),
            (random.random(count) < FORMATTED).tolist(),
            (random.random(count) < TRUNCATED).tolist(),
            (random.random(count) < RETRIED).tolist(),
            np.where(random.random(count) < FAILED, failures, -1).tolist(),
            (self.started_at.timestamp() + 10 + np.arange(count) / 4).tolist(),
            random.lognormal(8.3, 0.6, count).round(3).tolist(),
            random.gamma(2, 1.5, count).round(3).tolist(),
            strict=True,
        )
        return map(Rollout._make, columns)

    def _config(self) -> Row:
        return {
            **self._settings(), "env_dir_path": "environments", "api_key_var": "OPENAI_API_KEY",
            "api_client_type": "openai_chat_completions", "shuffle_seed": None, "max_concurrent": 32, "max_retries": 3,
            "request_timeout": 3600.0, "interleave_scoring": True, "state_columns": [], "max_shards": 16,
            "tolerated_failures": 0.05, "selected_examples": len(self.environment.examples),
        }  # fmt: skip

    def _metadata(self, summary: Summary) -> Row:
        seconds = 12 + summary.rollouts // 4
        return {
            "run_id": self.run_id,
            "status": "completed",
            **self._settings(),
            "date": f"{self.started_at:%Y-%m-%d}",
            "time": f"{self.started_at:%H:%M:%S}",
            "time_ms": seconds * 1000,
            "started_at": self.started_at.isoformat(),
            "pass_threshold": PASS_THRESHOLD,
            "state_columns": [],
            "version_info": {
                "nightjar_version": "0.1.0",
                "nightjar_commit": "4f1c2a9d7b3e5f60718293a4b5c6d7e8f9012345",
                "env_version": "1.0.0",
                "env_commit": f"{int(self.environment.fingerprint, 16):040x}",
            },
            "flow_run_id": None,
            "finished_at": (self.started_at + timedelta(seconds=seconds)).isoformat(),
            **summary.metadata(),
        }

    def _settings(self) -> Row:
        return {
            "env_id": self.environment.env_id, "env_args": {"split": "test"}, "extra_env_kwargs": {},
            "env_version": "1.0.0", "model": self.model, "base_url": "https://api.example.com/v1",
            "num_examples": len(self.environment.examples),
            "rollouts_per_example": self.environment.rollouts_per_example,
            "sampling_args": {"temperature": 0.7, "max_tokens": 2048},
            "dataset_fingerprint": self.environment.fingerprint,
        }  # fmt: skip


def _lines(rows: Iterable[Row]) -> bytes:
    return b"".join([orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows])


def _write_object(path: Path, content: Row) -> None:
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

"""Pushes a run to the Hugging Face Hub: its rollouts as Parquet, and a card that describes them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from nightjar.core.extras import require_extra
from nightjar.core.files import scratch_folder
from nightjar.core.secrecy import error_text
from nightjar.core.text import with_error
from nightjar.engine import Run
from nightjar.engine.runs import RunDirectory
from nightjar.environments.datasets import hub_dataset_name
from nightjar.errors import HubError

BLOCK = "block:"
"""Prefix of a value that names a Prefect block; only flows read blocks."""

_BATCH_ROWS = 1_000
_LONGEST_REASON = 500
_DATA = "data/results-00000-of-00001.parquet"


def wants_push(run: Run) -> bool:
    return run.error is None and bool(run.directory.read_config().get("save_to_hf_hub"))


def push_run(run: Run, name: str | None = None, *, is_public: bool = False) -> str:
    name = name or run.directory.read_config().get("hf_hub_dataset_name")
    run.hub_url = push(run.directory, name, is_public=is_public)
    return run.hub_url


def push(directory: RunDirectory, name: str | None = None, *, is_public: bool = False) -> str:
    """Uploads a run directory as a dataset and returns its URL; pushing again replaces it.

    ``name`` is ``owner/name``, or a name in the user's own account. If None, the name is derived from the run.
    ``is_public`` applies only to a new dataset.
    """
    import huggingface_hub

    metadata = directory.read_metadata()
    name = name or hub_dataset_name(metadata)
    with scratch_folder() as scratch:
        write_parquet(directory, metadata, scratch / "results.parquet")
        contents: dict[str, Path | bytes] = {
            _DATA: scratch / "results.parquet",
            "README.md": card_of(metadata, directory.read_config(), _DATA).encode(),
            "metadata.json": directory.path / "metadata.json",
            "config.json": directory.path / "config.json",
        }
        files = [huggingface_hub.CommitOperationAdd(where, content) for where, content in contents.items()]
        api = huggingface_hub.HfApi(library_name="nightjar")
        try:
            made = api.create_repo(name, repo_type="dataset", private=not is_public, exist_ok=True)
            message = f"Run {metadata['run_id']} of {metadata['env_id']}"
            api.create_commit(made.repo_id, files, repo_type="dataset", commit_message=message)
        except Exception as error:  # also errors of its HTTP library, which differs between versions
            reason = " ".join(error_text(error).split())[:_LONGEST_REASON].rstrip(".")
            raise HubError(
                f"The results are not on the Hugging Face Hub as {name!r}: {type(error).__name__}: {reason}. "
                f"To push them later: nightjar eval push {shlex.quote(str(directory.path))}"
            ) from error
    return str(made)


def write_parquet(directory: RunDirectory, metadata: Mapping[str, Any], target: Path) -> None:
    pa, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    schema = _schema(sorted(metadata.get("avg_metrics") or ()))
    rows = (_row(line.row) for line in directory.results())
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := [*islice(rows, _BATCH_ROWS)]:
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _arrow(module: str) -> Any:
    return require_extra(module, "datasets", "A push to the Hugging Face Hub")


def _schema(metrics: Sequence[str]) -> Any:
    pa = _arrow("pyarrow")
    text, number, count = pa.string(), pa.float64(), pa.int64()
    message = pa.struct({"role": text, "content": text, "tool_calls": text})
    columns = {
        "example_id": count, "rollout_index": count, "example_hash": text,
        "prompt": pa.list_(message), "completion": pa.list_(message), "answer": text, "info": text, "task": text,
        "reward": number, "advantage": number,
        **({"metrics": pa.struct(dict.fromkeys(metrics, number))} if metrics else {}),
        "error": text, "error_message": text, "is_truncated": pa.bool_(), "stop_condition": text,
        "input_tokens": number, "output_tokens": number, "generation_ms": number, "scoring_ms": number,
        "attempts": count, "model": text,
    }  # fmt: skip
    return pa.schema(columns)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    error, usage, timing = row["error"] or {}, row.get("token_usage") or {}, row.get("timing") or {}
    return {
        **row,
        "prompt": _messages(row["prompt"], "user"),
        "completion": _messages(row["completion"], "assistant"),
        **{name: _text(row.get(name)) for name in ("answer", "info", "task")},
        "error": error.get("error"),
        "error_message": error.get("message"),
        **{name: usage.get(name) for name in ("input_tokens", "output_tokens")},
        **{name: timing.get(name) for name in ("generation_ms", "scoring_ms")},
    }


def _messages(messages: str | Iterable[Mapping[str, Any]] | None, role: str) -> list[dict[str, Any]] | None:
    if messages is None:
        return None
    if isinstance(messages, str):
        messages = [{"role": role, "content": messages}]
    return [
        {
            "role": message["role"],
            "content": _text(message.get("content")),
            "tool_calls": _text(message.get("tool_calls") or None),
        }
        for message in messages
    ]


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


_COLUMNS = {
    "example_id, rollout_index": "the rollout: position of its example in the dataset, and its index from 0 to r-1",
    "example_hash": "hash of the example's content, to pair examples of two runs",
    "prompt, completion": "messages: role, content, and calls of tools as JSON",
    "answer, info, task": "fields of the example; info is JSON",
    "reward": "weighted sum of the metrics; null, not 0, for a failed rollout",
    "advantage": "reward minus the mean of its group",
    "metrics": "score of each reward function",
    "error, error_message": "why a rollout failed; null if it did not fail",
    "is_truncated, stop_condition": "how the rollout ended",
    "input_tokens, output_tokens": "tokens of all model calls of the rollout",
    "generation_ms, scoring_ms": "duration in milliseconds",
    "attempts": "number of attempts at the rollout",
    "model": "model name in the endpoint's response",
}
_CARD = """\
---
{front}
---

# {env_id} | {model}

Run `{run_id}` of Nightjar (nightjar-evals), {date}: {status}.

| | |
| --- | --- |
{numbers}

## Columns

| column | content |
| --- | --- |
{columns}

`metadata.json` contains all numbers; `config.json` contains the whole configuration.

## Configuration

```json
{config}
```
"""


def card_of(metadata: Mapping[str, Any], config: Mapping[str, Any], data: str) -> str:
    front = {
        "pretty_name": f"{metadata['env_id']} | {metadata['model']}",
        "tags": ["nightjar", "evaluation", "llm-evaluation"],
        "configs": [{"config_name": "default", "data_files": [{"split": "test", "path": data}]}],
    }
    return _CARD.format(
        front="\n".join(f"{name}: {json.dumps(value)}" for name, value in front.items()),  # JSON is YAML
        numbers=_table(_numbers(metadata)),
        columns=_table(_COLUMNS),
        config=json.dumps(config, indent=2, ensure_ascii=False),
        **{name: metadata.get(name) for name in ("env_id", "model", "run_id", "date", "status")},
    )


def _numbers(metadata: Mapping[str, Any]) -> dict[str, str]:
    reward = metadata.get("avg_reward")
    usage = metadata.get("usage") or {}
    return {
        "average reward": "–" if reward is None else with_error(reward, metadata.get("stderr")),
        "rollouts": f"{metadata['num_examples']} examples × {metadata['rollouts_per_example']}",
        "scored": f"{metadata.get('scored')} of {metadata['rollouts']}, {metadata.get('failed')} failed",
        **{f"metric {name}": f"{value:.4f}" for name, value in (metadata.get("avg_metrics") or {}).items()},
        **{f"pass@{k}": f"{value:.4f}" for k, value in (metadata.get("pass_at_k") or {}).items()},
        **{f"pass^{k}": f"{value:.4f}" for k, value in (metadata.get("pass_all_k") or {}).items()},
        **{name.replace("_", " "): f"{count:,.0f}" for name, count in usage.items()},
        "environment version": str(metadata.get("env_version") or "–"),
        "Nightjar": str((metadata.get("version_info") or {}).get("nightjar_version")),
    }


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(f"| {name} | {text} |" for name, text in rows.items())

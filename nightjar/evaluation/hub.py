"""A run on the Hugging Face Hub: its rollouts as Parquet, with a card that says what they are and came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from nightjar.engine import Run
from nightjar.envs.datasets import hub_dataset_name
from nightjar.errors import HubError
from nightjar.evaluation.hub_card import card_of
from nightjar.runs import RunDirectory
from nightjar.runs.jsonl import scan_lines
from nightjar.scratch import scratch_folder
from nightjar.secrecy import hide

_BATCH_ROWS = 1_000
_LONGEST_REASON = 500
_DATA = "data/results-00000-of-00001.parquet"


def push_run(run: Run) -> None:
    """Pushes a run that has come to its end, where its configuration says so; why it cannot be is ``run.unpushed``."""
    config = run.directory.read_config()
    if not config.get("save_to_hf_hub") or run.error is not None:
        return
    try:
        run.hub_url = push(run.directory, config.get("hf_hub_dataset_name"))
    except HubError as error:
        run.unpushed = error


def push(directory: RunDirectory, name: str | None = None, *, is_public: bool = False) -> str:
    """Makes the results of a run a data set of the Hugging Face Hub; pushing again replaces it.

    Args:
        directory: the run directory.
        name: ``owner/name``, or a name of one's own; None for one made of environment, model and numbers.
        is_public: everybody may read a data set that is new.

    Returns:
        Its address.

    Raises:
        HubError: the hub does not take it; the message has the command that tries again.
        RunDirectoryError: the run is damaged.
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
        except Exception as error:  # its HTTP library's too, and which that is changes
            reason = hide(" ".join(str(error).split())[:_LONGEST_REASON].rstrip("."))
            raise HubError(
                f"The results are not on the Hugging Face Hub as {name!r}: {type(error).__name__}: {reason}. "
                f"To push them later: nightjar eval push {directory.path}"
            ) from error
    return str(made)


def write_parquet(directory: RunDirectory, metadata: Mapping[str, Any], target: Path) -> None:
    """Writes the rollouts of a run, a row each; a part at a time, so memory does not grow with the run."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema(sorted(metadata.get("avg_metrics") or ()))
    rows = (_row(line.row) for line in scan_lines(directory.results_path))
    with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := [*islice(rows, _BATCH_ROWS)]:
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _schema(metrics: Sequence[str]) -> Any:
    import pyarrow as pa

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
    """Returns messages with a text each: parts of content, and calls of tools, as JSON."""
    if messages is None or isinstance(messages, str):
        return None if messages is None else [{"role": role, "content": messages}]
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

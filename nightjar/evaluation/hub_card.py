"""The card of a data set on the Hugging Face Hub: what the run was, what it came to, and what its columns are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_COLUMNS = {
    "example_id, rollout_index": "which rollout: position of its example in the data set, and 0 to r-1",
    "example_hash": "the content of the example: pairs examples of two runs",
    "prompt, completion": "messages: role, content, and calls of tools as JSON",
    "answer, info, task": "of the example; info as JSON",
    "reward": "weighted sum of the metrics; null for a rollout that failed, never 0",
    "advantage": "reward minus the mean of its group",
    "metrics": "score of each reward function",
    "error, error_message": "why a rollout failed; null where it did not",
    "is_truncated, stop_condition": "how it ended",
    "input_tokens, output_tokens": "of all its model calls",
    "generation_ms, scoring_ms": "how long it took",
    "attempts": "how often it was tried",
    "model": "the name that the endpoint answered with",
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

| column | what it is |
| --- | --- |
{columns}

`metadata.json` has all numbers, `config.json` all that the run was started with.

## Configuration

```json
{config}
```
"""


def card_of(metadata: Mapping[str, Any], config: Mapping[str, Any], data: str) -> str:
    """Returns the card of a run, Markdown under a header of YAML.

    Args:
        metadata, config: the files of the run directory.
        data: where the Parquet file is in the data set.
    """
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
    reward, error = metadata.get("avg_reward"), metadata.get("stderr")
    usage = metadata.get("usage") or {}
    return {
        "average reward": "–" if reward is None else f"{reward:.4f}" + ("" if error is None else f" ± {error:.4f}"),
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

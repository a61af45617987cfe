"""``GenerateOutputsBuilder``: rows and metadata of an evaluation that goes on, in the words of verifiers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from nightjar.adapters.verifiers.metrics import (
    EnvMetrics,
    ErrorRateMetric,
    InputTokensMetric,
    OutputTokensMetric,
    PassAtKMetric,
    RewardMetric,
)
from nightjar.clients import ClientConfig, resolve_client_configs
from nightjar.envs.outputs import GenerateMetadata, GenerateOutputs
from nightjar.messages import Tool
from nightjar.packages import version_info


class GenerateOutputsBuilder:
    """Collects rows, and says at any moment what they come to.

    Args:
        env_id, env_args, model, num_examples, rollouts_per_example, sampling_args: of the evaluation.
        client: a client or its configuration, for the record.
        state_columns: keys of the state that rows keep besides their own.
        results_path: where they are saved; None where they are not.
        pass_threshold: the reward from which on a rollout is correct.
    """

    def __init__(
        self,
        env_id: str,
        env_args: dict[str, Any],
        model: str,
        client: Any,
        num_examples: int,
        rollouts_per_example: int,
        state_columns: list[str] | None,
        sampling_args: Mapping[str, Any],
        results_path: Path | None,
        pass_threshold: float = 0.5,
    ) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.start_time = time.time()
        self.base_url = self.compute_base_url(client)
        self._said = {
            "env_id": env_id, "env_args": env_args, "model": model, "base_url": self.base_url,
            "num_examples": num_examples, "rollouts_per_example": rollouts_per_example,
            "sampling_args": dict(sampling_args), "pass_threshold": pass_threshold,
            "state_columns": state_columns or [], "path_to_save": results_path,
        }  # fmt: skip
        self._reward, self._errors, self._metrics = RewardMetric(), ErrorRateMetric(), EnvMetrics()
        self._input, self._output = InputTokensMetric(), OutputTokensMetric()
        self._pass = PassAtKMetric(rollouts_per_example, pass_threshold)
        self._tools: dict[str, list[Any] | None] = {}
        self._versions = version_info(env_id)

    @staticmethod
    def format_base_url(url: str) -> str:
        """Returns a URL without a slash at its end."""
        return str(url).rstrip("/")

    def compute_base_url(self, client: Any) -> str:
        """Returns where a client asks; the addresses of replicas with commas between them."""
        config = client if isinstance(client, ClientConfig) else getattr(client, "config", None)
        if isinstance(config, ClientConfig):
            return ",".join(self.format_base_url(each.api_base_url) for each in resolve_client_configs(config))
        return self.format_base_url(getattr(client, "base_url", "") or "")

    @staticmethod
    def tools_key(tools: list[Tool] | None) -> str:
        """Returns the names of tools, as one text."""
        return orjson.dumps(sorted(tool["name"] for tool in tools or [])).decode()

    def add_outputs(self, new_outputs: Sequence[dict[str, Any]]) -> None:
        """Adds rows."""
        self.outputs.extend(new_outputs)
        for metric in (self._reward, self._errors, self._metrics, self._input, self._output, self._pass):
            metric.add_outputs(new_outputs)
        for row in new_outputs:
            self._tools.setdefault(self.tools_key(row.get("tool_defs")), row.get("tool_defs"))

    def build_metadata(self) -> GenerateMetadata:
        """Returns what the rows come to."""
        seconds = time.time() - self.start_time
        at_k, all_k = self._pass.compute()
        usage = {"input_tokens": self._input.compute(), "output_tokens": self._output.compute()}
        return {
            **self._said,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "time": seconds,
            "time_ms": 1000 * seconds,
            "avg_reward": self._reward.compute(),
            "avg_metrics": self._metrics.compute(),
            "avg_error": self._errors.compute(),
            "pass_at_k": at_k,
            "pass_all_k": all_k,
            "usage": usage if self._input.count else None,
            "version_info": {"vf_version": self._versions["nightjar_version"],
                             "vf_commit": self._versions["nightjar_commit"], **self._versions},
            "tools": next(iter(self._tools.values())) if len(self._tools) == 1 else None,
        }  # fmt: skip

    def build_outputs(self, sort_by_example_id: bool = False) -> list[dict[str, Any]]:
        """Returns the rows, as they came or by their examples."""
        return sorted(self.outputs, key=lambda row: row["example_id"]) if sort_by_example_id else self.outputs

    def build(self, sort_by_example_id: bool = False) -> GenerateOutputs:
        """Returns rows and metadata."""
        return GenerateOutputs(outputs=self.build_outputs(sort_by_example_id), metadata=self.build_metadata())

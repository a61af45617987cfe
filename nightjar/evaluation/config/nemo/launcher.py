"""Configs of ``nemo-evaluator-launcher`` and of earlier versions, which have other keys: names the keys to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nightjar.errors import ConfigError

_ENDPOINT = "services.model"
_BENCHMARK = "benchmarks.0"
_PARAMS = {
    "limit_samples": f"{_BENCHMARK}.max_problems",
    "task": f"{_BENCHMARK}.name",
    "parallelism": f"{_BENCHMARK}.max_concurrent",
    "temperature": f"{_ENDPOINT}.generation.temperature",
    "top_p": f"{_ENDPOINT}.generation.top_p",
    "max_new_tokens": f"{_ENDPOINT}.generation.max_tokens",
    "request_timeout": f"{_ENDPOINT}.proxy.request_timeout",
    "max_retries": f"{_ENDPOINT}.proxy.max_retries",
    "extra": f"{_BENCHMARK}.params",
}
_API = {
    "url": f"{_ENDPOINT}.url",
    "model_id": f"{_ENDPOINT}.model",
    "type": f"{_ENDPOINT}.protocol",
    "api_key": f"{_ENDPOINT}.api_key",
    "api_key_name": f"{_ENDPOINT}.api_key",
    "adapter_config": f"{_ENDPOINT}.proxy.interceptors",
}
_KEYS = {
    "config.type": f"{_BENCHMARK}.name",
    "config.output_dir": "output.dir",
    "execution": "cluster",
    "execution.output_dir": "output.dir",
    "deployment": f"{_ENDPOINT}, the endpoint of a server that you start",
    "evaluation.tasks": "benchmarks",
    **{
        f"{place}.params.{name}": new
        for place in ("config", "evaluation.nemo_evaluator_config.config")
        for name, new in _PARAMS.items()
    },
    **{
        f"{place}.api_endpoint.{name}": new
        for place in ("target", "evaluation.nemo_evaluator_config.target")
        for name, new in _API.items()
    },
}
"""Key of a launcher's config → key of a config that Nightjar reads."""
_SHAPES = ("config", "target", "evaluation", "execution", "deployment")


def refuse_launcher_config(path: Path, content: Any) -> None:
    """Raises ``ConfigError`` with the corresponding keys if a config has only sections of the launcher."""
    if not isinstance(content, Mapping) or "benchmarks" in content or "services" in content:
        return
    found = [place for place in _places(content) if place in _KEYS]
    if not found and not content.keys() & set(_SHAPES):
        return
    lines = [f"{place}: write {_KEYS[place]}" for place in found]
    raise ConfigError(
        "\n  ".join(
            [
                f"{path} is a config of nemo-evaluator-launcher, with other keys (docs/coming-from/nemo-launcher.md):",
                *lines,
            ]
        )
    )


def _places(content: Mapping[str, Any], within: str = "") -> Iterator[str]:
    for name, value in content.items():
        place = f"{within}{name}"
        yield place
        if isinstance(value, Mapping):
            yield from _places(value, f"{place}.")

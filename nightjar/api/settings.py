"""``RunSettings``: the fields of ``RunConfig`` as typed keyword arguments, and the signature that ``help`` shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, get_type_hints

from nightjar.clients import ClientType
from nightjar.evaluation.config.fields import ProviderName, Replica
from nightjar.evaluation.config.parameters import parameters

_LINE = "        **settings: "

F = TypeVar("F", bound=Callable[..., Any])


class RunSettings(TypedDict, total=False):
    """The settings of a run. docs/reference/configuration.md describes them; None means the default."""

    model: str
    provider: ProviderName
    num_examples: int
    rollouts_per_example: int
    base_url: str
    api_key_var: str
    max_tokens: int | None
    temperature: float | None
    seed: int | None
    sampling_args: Mapping[str, Any]
    api_client_type: ClientType
    headers: Mapping[str, str]
    headers_from_state: Mapping[str, str]
    replicas: Sequence[Replica | Mapping[str, Any]]
    middleware: Sequence[Mapping[str, Any]]
    input_price: float | None
    output_price: float | None
    env_source: str
    env_args: Mapping[str, Any]
    extra_env_kwargs: Mapping[str, Any]
    timeout: float | None
    shuffle: bool
    shuffle_seed: int | None
    max_concurrent: int
    max_sandboxes: int | None
    cache: bool
    max_retries: int
    request_retries: int
    wait_for_endpoint: float | None
    max_total_tokens: int | None
    max_cost_usd: float | None
    tolerated_failures: float
    timeout_minutes: float | None
    request_timeout: float
    scoring_timeout: float | None
    tags: Sequence[str]
    suite: str | None
    name: str | None
    save_to_hf_hub: bool
    hf_hub_dataset_name: str | None
    state_columns: Sequence[str]
    env_dir_path: str
    max_concurrent_generation: int | None
    max_concurrent_scoring: int | None
    interleave_scoring: bool
    independent_scoring: bool
    max_shards: int | None
    part: str | None


def shows_settings(function: F) -> F:
    """Shows the keyword arguments of ``**settings`` in ``help``: names, types, defaults and texts of ``RunConfig``."""
    fields, types = parameters(), get_type_hints(RunSettings)
    signature = inspect.signature(function, eval_str=True)
    shown = [_parameter(name, kind) for name, kind in types.items()]
    first, *others = (each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD)
    function.__signature__ = signature.replace(parameters=[first, *shown, *others])  # type: ignore[attr-defined]
    texts = "\n".join(f"        {name}: {fields[name].description}" for name in types)
    lines = (function.__doc__ or "").split("\n")
    function.__doc__ = "\n".join(texts if line.startswith(_LINE) else line for line in lines)
    return function


def _parameter(name: str, kind: Any) -> inspect.Parameter:
    default = parameters()[name].get_default(call_default_factory=True)
    annotation = kind | None if default is None else kind
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

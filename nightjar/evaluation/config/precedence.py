"""Decides which value of a field is used when several sources set it, and records the source.

The sources, most important first, are the command line, a suite's ``[[eval]]``, the suite, a provider named in one of
these, the endpoint registry, the environment's ``pyproject.toml``, the user's defaults, and ``RunConfig``. Headers and
sampling parameters of all sources are merged key by key; any other field comes from one source.
"""

from __future__ import annotations

import difflib
import logging
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nightjar.clients.providers import PROVIDERS, Provider, is_same_host
from nightjar.errors import ConfigError
from nightjar.evaluation.config.registry import DEFAULT_PATH, Registry
from nightjar.evaluation.config.run_config import (
    PLAIN_SAMPLING,
    RunConfig,
    defaults_of_environment,
    located,
    parse_run_config,
)
from nightjar.evaluation.config.user_config import user_defaults

logger = logging.getLogger(__name__)

WRITTEN = FLAG, EVAL, ABLATION, SUITE = "flag", "[[eval]]", "[[ablation]]", "suite"
"""Sources that a person has written for this run."""
REGISTRY, ENVIRONMENT, CONFIG, DEFAULT = "registry", "environment", "config", "default"
ENDPOINT_ID = "endpoint_id"
"""Key, beside the fields of ``RunConfig``, that names an endpoint of the registry instead of a model."""
_JOINED = ("headers", "headers_from_state", "sampling_args")
_PROVIDED = {each.name for each in fields(Provider)}
_OF_AN_ENDPOINT = {ENDPOINT_ID, "model", "provider", "replicas", "middleware", *_PROVIDED}
_OF_THE_PLACE = {"provider", "headers", "headers_from_state", "input_price", "output_price", *_PROVIDED}
"""Fields that belong to one endpoint and must not reach another: headers may carry a secret."""
_PLACES = {ENDPOINT_ID, "provider", "base_url"}
_OF_ONE_EVALUATION = frozenset({"name", "env_args", "env_source", "part", "hf_hub_dataset_name"})
"""Fields that flags cannot set for all evaluations of a suite."""
_PRICES = {"input_price", "output_price"}
_SHOWN = {
    SUITE: "suite file",
    REGISTRY: "endpoint registry",
    ENVIRONMENT: "environment's default",
    CONFIG: "user config",
    DEFAULT: "built-in",
}


@dataclass(frozen=True)
class Layer:
    source: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Evaluation:
    """A configuration with the source of each field. ``files`` are the files of sources that have one."""

    config: RunConfig
    sources: Mapping[str, str]
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.config.name or self.config.env_id

    @property
    def shown_sources(self) -> dict[str, str]:
        """The sources of the fields for people, such as ``suite file nightly.toml``, without folders."""
        return {name: ", ".join(map(self._shown, source.split(", "))) for name, source in self.sources.items()}

    def _shown(self, source: str) -> str:
        if source in {EVAL, ABLATION}:
            return f"{source} of {self.files[SUITE].name}"
        shown = _SHOWN.get(source, source)
        return f"{shown} {self.files[source].name}" if source in self.files else shown


def refuse_fields_of_one(typed: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` for a field that flags cannot set for all evaluations of a suite."""
    for name in sorted(_OF_ONE_EVALUATION & typed.keys()):
        raise ConfigError(f"{name}: belongs to one evaluation of a suite: set it in the suite's file")


def resolve_evaluation(layers: Sequence[Layer], registry_path: Path | None = None) -> Evaluation:
    """Merges the values of sources, most important first, and a registry (default: ``configs/endpoints.toml``).

    A flag or ``[[eval]]`` that names another endpoint than its suite replaces the suite's endpoint with its headers,
    key and prices.
    """
    placed = [Layer(layer.source, located(layer.values)) for layer in layers]
    given, sources = _merged(
        [Layer(layer.source, _with_plain_sampling(layer.values)) for layer in _without_other_endpoints(placed)]
    )
    own = _with_plain_sampling({name: value for name, value in user_defaults().items() if name != "output_dir"})
    registry = Registry.load(registry_path or DEFAULT_PATH) if registry_path or DEFAULT_PATH.is_file() else None
    files = {} if registry is None else {REGISTRY: registry.path}
    has_model = "model" in given or ENDPOINT_ID in given or "model" not in own
    endpoint = _endpoint(given if has_model else {**given, "model": own["model"]}, registry)
    env = defaults_of_environment(given)
    if endpoint or {"provider", "base_url", ENDPOINT_ID} & given.keys():  # the user's defaults are of another endpoint
        own = _without(_OF_THE_PLACE, own)
    values, sources = _merged(
        [
            Layer(REGISTRY, {name: endpoint[name] for name in ("model",) if name in endpoint}),
            *(Layer(sources[name], {name: value}) for name, value in given.items() if name != ENDPOINT_ID),
            Layer(REGISTRY, endpoint),
            Layer(ENVIRONMENT, env),
            Layer(CONFIG, own),
        ]
    )
    sampling = values.get("sampling_args")
    if isinstance(sampling, Mapping):
        values |= {name: sampling[name] for name in PLAIN_SAMPLING if name in sampling and name in values}
    config = parse_run_config(values)
    provider = f"provider {config.provider}"
    default = {name: provider if name in _PROVIDED else DEFAULT for name in RunConfig.model_fields}
    return Evaluation(config, {**default, **sources}, files)


def _without_other_endpoints(layers: Sequence[Layer]) -> Iterator[Layer]:
    """If a layer names another endpoint, drops the fields of the endpoint from the less important layers."""
    dropped = set[str]()
    for position, layer in enumerate(layers):
        yield Layer(layer.source, _without(dropped, layer.values))
        if ENDPOINT_ID in layer.values:
            dropped |= _OF_AN_ENDPOINT
        elif "model" in layer.values:
            dropped.add(ENDPOINT_ID)
        dropped |= _replaced_by(layer, layers[position + 1 :])


def _without(dropped: AbstractSet[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Drops fields. With ``headers``, also drops those in ``sampling_args``, which may carry a secret, too."""
    kept = {name: value for name, value in values.items() if name not in dropped}
    sampling = kept.get("sampling_args")
    if "headers" in dropped and isinstance(sampling, Mapping):
        kept["sampling_args"] = {name: value for name, value in sampling.items() if name != "extra_headers"}
    return kept


def _replaced_by(layer: Layer, below: Sequence[Layer]) -> set[str]:
    """Returns the fields of a suite that do not apply to the endpoint or model that a more important layer names.

    Fields of a suite that names no endpoint or model apply to those of every ``[[eval]]``, but not to those of a flag.
    """
    suite = ChainMap(*(dict(each.values) for each in below if each.source in WRITTEN))
    if not suite:
        return set()
    is_flag, named = layer.source == FLAG, layer.values
    replaced = set(_PRICES) if "model" in named and (is_flag or "model" in suite) else set[str]()
    if _is_elsewhere(named, suite) and (is_flag or _PLACES & suite.keys()):
        replaced |= {*_OF_THE_PLACE, "replicas"}
    return replaced


def _is_elsewhere(named: Mapping[str, Any], suite: Mapping[str, Any]) -> bool:
    if any(name in named and named[name] != suite.get(name) for name in (ENDPOINT_ID, "provider")):
        return True
    url, base_url = named.get("base_url"), suite.get("base_url")
    return bool(url) and not (base_url and is_same_host(str(url), str(base_url)))


def _merged(layers: Sequence[Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for layer in layers:
        for name, value in layer.values.items():
            if name in _JOINED and isinstance(value, Mapping) and isinstance(values.get(name), Mapping):
                taken = {key.lower() for key in values[name]}
                new = {key: each for key, each in value.items() if key.lower() not in taken}
                values[name] = {**new, **values[name]}
                sources[name] += f", {layer.source}" if new else ""
            elif name not in values:
                values[name], sources[name] = value, layer.source
    return values, sources


def _with_plain_sampling(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: values[name] for name in PLAIN_SAMPLING if values.get(name) is not None}
    sampling = values.get("sampling_args", {})
    is_wrong = not isinstance(sampling, Mapping)
    return {**values, "sampling_args": {**plain, **sampling}} if plain and not is_wrong else dict(values)


def _endpoint(given: Mapping[str, Any], registry: Registry | None) -> dict[str, Any]:
    endpoint_id, model = given.get(ENDPOINT_ID), given.get("model", RunConfig.model_fields["model"].default)
    if endpoint_id is None:
        if registry is None or {"base_url", "api_key_var"} <= given.keys():
            return {}
        if model not in registry.rows:
            _warn_of_near(model, registry, is_certain="model" in given)
            return {}
    elif "model" in given:
        raise ConfigError(f"endpoint_id: sets the model, but model is set too (found {endpoint_id!r} and {model!r})")
    elif registry is None:
        raise ConfigError(f"endpoint_id: there is no endpoint registry {str(DEFAULT_PATH)!r} (found {endpoint_id!r})")
    assert registry is not None, "there is one where there is an endpoint of it"
    return _not_overridden(registry.fields(endpoint_id or model), given)


def _not_overridden(endpoint: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    named = PROVIDERS.get(str(given.get("provider")))
    if named is not None:
        kept = {"model": endpoint["model"], "api_client_type": endpoint["api_client_type"]}
        return kept if named.api_client_type == PROVIDERS["prime"].api_client_type else {"model": endpoint["model"]}
    if "base_url" in given:
        endpoint.pop("replicas", None)
        if not is_same_host(str(given["base_url"]), endpoint["base_url"]):  # its key and headers belong to its host
            return {name: value for name, value in endpoint.items() if name not in {"api_key_var", "headers"}}
    elif "api_key_var" in given and "replicas" in endpoint:
        key = {"api_key_var": given["api_key_var"]}
        endpoint["replicas"] = [replica.model_copy(update=key) for replica in endpoint["replicas"]]
    return endpoint


def _warn_of_near(model: str, registry: Registry, *, is_certain: bool) -> None:
    near = difflib.get_close_matches(str(model), registry.rows, n=1) if is_certain else []
    if near:
        logger.warning(
            "%r is not an endpoint of %s; did you mean %r? %r is used as the name of a model",
            model, registry.path, near[0], model,
        )  # fmt: skip

"""``RunConfig``: the settings of a run, each declared once.

A new field needs one line and its text here. Everything else follows from its type, default and text: its flag, its
entry in the flow's form, in ``--help`` and in docs/reference/configuration.md, and whether a resume compares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from nightjar.clients import ClientConfig, ClientType
from nightjar.clients.config import NOT_TO_BE_SHOWN, BaseUrl
from nightjar.clients.providers import PROVIDERS, Provider, key_variable
from nightjar.core.environment_id import ENVIRONMENTS_DIR
from nightjar.core.parts import PART_NAME, Part
from nightjar.environments.packages.catalog import in_file
from nightjar.environments.packages.lookup import EvalDefaults, ExampleCount, RolloutCount, eval_defaults
from nightjar.errors import ConfigError
from nightjar.evaluation.config.fields import (
    EnvironmentSource,
    Middleware,
    NamedHeaders,
    OpenArguments,
    ProviderName,
    Replica,
    SamplingFields,
    VariableName,
)

T = TypeVar("T")
_MAY_CHANGE = "a resume may change it"
MayChange: TypeAlias = Annotated[T, _MAY_CHANGE]
"""Marks a field that results do not depend on: a resume may change it."""

_PROVIDER: ProviderName = "prime"
_DEFAULT = PROVIDERS[_PROVIDER]
PLAIN_SAMPLING = ("max_tokens", "temperature", "seed")
LEFT_EMPTY = {
    **dict.fromkeys(EvalDefaults.model_fields, "the value in the environment's pyproject.toml, else {default}"),
    **{field.name: "the provider's" for field in fields(Provider)},
    "api_key_var": "the key of the provider at base_url",
}
"""Fields whose default depends on the environment or the provider, with a description of the default."""


class RunConfig(BaseModel):
    """One environment × one model × one configuration.

    It holds names of secrets, never their values, so it can be stored. A field that may be None is empty in forms. The
    text of the field says what an empty value means.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, defer_build=True)

    env_id: str = Field(min_length=1)
    """Environment: name, owner/name or owner/name@version."""
    model: str = Field("openai/gpt-4.1-mini", min_length=1)
    """Model, as the endpoint names it."""
    provider: MayChange[ProviderName] = _PROVIDER
    """Provider of the model; sets base URL, key and protocol unless these are given."""
    num_examples: MayChange[ExampleCount] = 5
    """Number of examples; -1 means all examples."""
    rollouts_per_example: RolloutCount = 3
    """Rollouts per example."""
    base_url: BaseUrl = _DEFAULT.base_url
    """Base URL of the endpoint."""
    api_key_var: MayChange[VariableName] = _DEFAULT.api_key_var
    """Environment variable that holds the key on the machine of the evaluation; a local endpoint needs no key."""
    max_tokens: MayChange[int | None] = Field(None, ge=1)
    """Maximum number of generated tokens, unless sampling_args set it (default: the endpoint's)."""
    temperature: MayChange[float | None] = Field(None, ge=0)
    """Sampling temperature, unless sampling_args set it (default: the endpoint's)."""
    seed: MayChange[int | None] = None
    """Seed of an example's first rollout; each further rollout adds 1. sampling_args override it (default: none)."""
    sampling_args: SamplingFields = Field(default_factory=dict)
    """Further sampling parameters of the endpoint, such as {"top_p": 0.95}; extra_headers name variables, $NAME."""
    api_client_type: ClientType = _DEFAULT.api_client_type
    """Protocol of the endpoint."""
    headers: MayChange[NamedHeaders] = Field(default_factory=dict)
    """HTTP headers of every request. Values are names of variables, such as {"X-Team": "$TEAM_TOKEN"}."""
    headers_from_state: MayChange[dict[str, str]] = Field(default_factory=dict)
    """HTTP headers whose value is a field of the rollout's state, such as {"X-Session-ID": "example_id"}."""
    replicas: MayChange[list[Replica]] = Field(default_factory=list)
    """Replicas of the endpoint, each with base_url, api_key_var and headers (default: no replicas)."""
    middleware: Middleware = Field(default_factory=list)
    """Middleware for requests and responses, applied in this order, such as [{"use": "reasoning"}]."""
    input_price: MayChange[float | None] = Field(None, ge=0)
    """Price per million input tokens in USD, if the warehouse has no price of the model (default: unknown)."""
    output_price: MayChange[float | None] = Field(None, ge=0)
    """Price per million output tokens in USD, if the warehouse has no price of the model (default: unknown)."""
    env_source: MayChange[EnvironmentSource] = ""
    """Source from which a missing environment is installed: owner/name@version, a wheel, or git+https://host/repo@tag."""
    env_args: OpenArguments = Field(default_factory=dict)
    """Arguments of the environment, such as {"dataset": "my-questions.jsonl"}."""
    extra_env_kwargs: OpenArguments = Field(default_factory=dict)
    """Settings of the loaded environment, such as {"max_turns": 5, "hook_timeout_seconds": 60}."""
    timeout: float | None = Field(None, gt=0)
    """Seconds that an attempt at a rollout may take; then the partial output is scored (default: the environment's)."""
    shuffle: bool = False
    """Draw examples in random order."""
    shuffle_seed: int | None = None
    """Draw examples in random order with this seed (default: none; with shuffle, the value of seed, else 0)."""
    max_concurrent: MayChange[int] = Field(32, ge=1)
    """Maximum number of concurrent requests; while the endpoint is overloaded, fewer are sent."""
    max_sandboxes: MayChange[int | None] = Field(None, ge=1)
    """Maximum number of sandboxes, such as containers, at once (default: for agents, by cores and memory)."""
    cache: MayChange[bool] = False
    """Keep responses on this machine, and reuse the response to an identical request."""
    max_retries: MayChange[int] = Field(0, ge=0)
    """Further attempts at a whole rollout after temporary errors that retries of its requests did not resolve."""
    request_retries: MayChange[int] = Field(10, ge=0)
    """Retries of a single request after a rate limit, a server error or a lost connection."""
    wait_for_endpoint: MayChange[float | None] = Field(None, ge=0)
    """Minutes to wait for an endpoint that does not answer yet (default: 10 on a worker and in a night, else 0)."""
    max_total_tokens: MayChange[int | None] = Field(None, ge=1)
    """Maximum number of prompt and response tokens of the run (or suite), including judges (default: no limit)."""
    max_cost_usd: MayChange[float | None] = Field(None, gt=0)
    """Maximum cost in US dollars of the run (or suite), including judges (default: no limit)."""
    tolerated_failures: MayChange[float] = Field(0.0, ge=0, le=1)
    """Share of rollouts, from 0 to 1, that may fail before the run counts as incomplete."""
    timeout_minutes: MayChange[float | None] = Field(None, gt=0)
    """Minutes that the run may take; rollouts finished by then are kept and published (default: no limit)."""
    request_timeout: MayChange[float] = Field(3600.0, gt=0)
    """Seconds that a request may take."""
    scoring_timeout: MayChange[float | None] = Field(None, gt=0)
    """Seconds that scoring a rollout may take (default: the rubric's limit, 600 unless the rubric changes it)."""
    tags: MayChange[list[str]] = Field(default_factory=list)
    """Tags by which SQL can select the run."""
    suite: MayChange[str | None] = None
    """Suite to which the run belongs (default: none)."""
    name: str | None = Field(None, min_length=1)
    """Name of the evaluation, if a suite has several evaluations of one environment (default: none)."""
    save_to_hf_hub: MayChange[bool] = False
    """Push the results to the Hugging Face Hub as a private dataset, with HF_TOKEN or the token of 'hf auth login'."""
    hf_hub_dataset_name: MayChange[str | None] = Field(None, min_length=1)
    """Name of the dataset, such as owner/name, or block:NAME in a flow (default: generated from the run)."""
    state_columns: MayChange[list[str]] = Field(default_factory=list)
    """Further fields of the rollouts' state to keep in the results."""
    env_dir_path: MayChange[str] = Field(str(ENVIRONMENTS_DIR), min_length=1)
    """Folder of environments. If the folder contains MODULE/outputs, runs of MODULE are written there."""
    max_concurrent_generation: MayChange[int | None] = Field(None, ge=1)
    """Maximum number of rollouts generated at once (default: max_concurrent)."""
    max_concurrent_scoring: MayChange[int | None] = Field(None, ge=1)
    """Maximum number of rollouts scored at once (default: max_concurrent)."""
    interleave_scoring: MayChange[bool] = True
    """Score each group as soon as it is generated, instead of after all generation."""
    independent_scoring: MayChange[bool] = False
    """Score each rollout by itself, not with the other rollouts of its example."""
    max_shards: MayChange[int | None] = Field(None, ge=1)
    """Maximum number of shards; Prefect shows two tasks for each (default: one for every 20 rollouts, at most 16)."""
    part: str | None = Field(None, pattern=PART_NAME)
    """Run only this part of a run, such as 0a1b2c3d4e5f.part-2-of-4; the last part joins all parts (default: all)."""

    @field_validator("*")
    @classmethod
    def _check_writable(cls, value: T) -> T:
        try:
            orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
        except TypeError as error:
            raise ValueError(f"cannot be stored as JSON: {error}") from None
        return value

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        provider = PROVIDERS.get(str(given.get("provider")))
        plain = {name: given[name] for name in PLAIN_SAMPLING if given.get(name) is not None}
        others = given.get("sampling_args", {})
        sampling = {"sampling_args": {**plain, **others}} if plain and isinstance(others, dict) else {}
        order = {"shuffle_seed": given.get("seed") or 0} if given.get("shuffle") else {}
        said = {name: value for name, value in given.items() if name not in order or value is not None}
        return {**(asdict(provider) if provider else {}), **_key_of_host(said), **order, **said, **sampling}

    @field_validator("part")
    @classmethod
    def _check_part(cls, value: str | None) -> str | None:
        if value is not None and Part.of(value) is None:
            raise ValueError("the number of the part is too high")
        return value

    @model_validator(mode="after")
    def _check_not_pushed(self) -> Self:
        if self.part and self.save_to_hf_hub:
            raise ValueError("save_to_hf_hub: parts of a run are not pushed. Push the run: nightjar eval push RUN")
        return self

    @property
    def part_of_run(self) -> Part | None:
        return Part.of(self.part) if self.part else None

    @property
    def environments_dir(self) -> Path:
        return Path(self.env_dir_path)

    def identity(self) -> dict[str, Any]:
        """Returns the fields that results depend on, as JSON values: a run is resumed only if they are equal."""
        known = type(self).model_fields
        return self.model_dump(mode="json", exclude={n for n, field in known.items() if _MAY_CHANGE in field.metadata})

    def client_config(self) -> ClientConfig:
        return ClientConfig(
            client_type=self.api_client_type,
            api_base_url=self.base_url,
            api_key_var=self.api_key_var,
            timeout=self.request_timeout,
            max_retries=self.request_retries,
            max_concurrent=self.max_concurrent,
            extra_headers=self.headers,
            extra_headers_from_state=self.headers_from_state,
            endpoint_configs=[replica.client_config(self.headers) for replica in self.replicas],
        )


def _key_of_host(given: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variable of the base URL's host, unless the configuration names a variable."""
    if given.get("api_key_var") or not given.get("base_url") or given.get("replicas"):
        return {}
    try:
        base_url = TypeAdapter(BaseUrl).validate_python(given["base_url"])
    except ValidationError:
        return {}  # the field reports it
    try:
        return {"api_key_var": key_variable(base_url)}
    except ConfigError as error:
        raise ValueError(f"base_url: {error}") from None


def parse_run_config(values: Mapping[str, Any], kind: type[RunConfig] = RunConfig) -> RunConfig:
    """Validates a configuration, and adds the defaults of its environment and provider; errors name the field."""
    values = located(values)
    given = {name: value for name, value in values.items() if value is not None or name not in LEFT_EMPTY}
    try:
        return kind.model_validate({**defaults_of_environment(given), **given})
    except ValidationError as error:
        raise ConfigError(message_of(error.errors()[0])) from error


def located(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replaces the path of an environment's file by its name and folder."""
    place = in_file(env_id) if isinstance(env_id := values.get("env_id"), str) else None
    if place is None:
        return values
    if values.get("env_dir_path"):
        raise ConfigError(
            f"env_dir_path: env_id names a file, and with it the folder (found {values['env_dir_path']!r})"
        )
    env_args = {**place.env_args, **(values.get("env_args") or {})}
    return {**values, "env_id": place.env_id, "env_dir_path": str(place.folder), "env_args": env_args}


def refuse_secrets(values: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` if a value must not be stored. Other errors are found later."""
    try:
        RunConfig.model_validate({"env_id": "any", **values})
    except ValidationError as error:
        found = [one for one in error.errors() if one["type"] == NOT_TO_BE_SHOWN]
        if found:
            raise ConfigError(message_of(found[0])) from None


def defaults_of_environment(given: Mapping[str, Any]) -> dict[str, Any]:
    env_id, folder = given.get("env_id"), given.get("env_dir_path") or ENVIRONMENTS_DIR
    is_checkable = isinstance(env_id, str) and isinstance(folder, str | Path)
    if given.keys() >= EvalDefaults.model_fields.keys() or not is_checkable:
        return {}
    args = given.get("env_args")
    own = eval_defaults(str(env_id), Path(folder), args if isinstance(args, Mapping) else None)
    return own.model_dump(exclude_none=True)


def message_of(found: ErrorDetails) -> str:
    """Returns an error of pydantic in one line, with the field, and with the value unless that may be a secret."""
    text = found["msg"].removeprefix("Value error, ")
    if not found["loc"]:  # of several fields; the text names them
        return text
    shown = "" if found["type"] in {NOT_TO_BE_SHOWN, "missing"} else f" (found {found['input']!r})"
    return f"{'.'.join(str(part) for part in found['loc'])}: {text}{shown}"


def usual_name(parameters: Mapping[str, Any]) -> str:
    """Returns the default name of a run: environment and model, or environment and registry endpoint."""
    default = RunConfig.model_fields["model"].default
    model = parameters.get("model", default)
    return f"{parameters.get('env_id')} | {parameters.get('endpoint') or model if model == default else model}"

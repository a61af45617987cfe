"""Blocks that a run names: its endpoint, its secrets, its warehouse.

The configuration gets the settings of the blocks and the names of variables for secrets. Secret values only go into the
process environment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Annotated, Any, NamedTuple, TypeVar
from uuid import UUID

from prefect.blocks.core import Block
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from pydantic import AfterValidator, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from nightjar.blocks import EnvironmentSecrets, HubPublisher, ModelEndpoint, ResultsWarehouse
from nightjar.clients.config import NOT_TO_BE_SHOWN
from nightjar.clients.providers import is_usual_key
from nightjar.core.secrecy import SECRETS_LABEL, hidden_in_errors, hidden_in_prints, in_environment
from nightjar.core.secret_signs import ADDRESS_WITH_SECRET
from nightjar.errors import ConfigError, WarehouseError
from nightjar.evaluation.config import RunConfig
from nightjar.evaluation.hub import BLOCK
from nightjar.warehouse import resolve_warehouse
from nightjar.warehouse.location import refuse_secret

BlockT = TypeVar("BlockT", bound=Block)

_REFUSED = {
    "description": "A location must not hold a secret, because it is stored: set it where runs happen",
    "pattern": ADDRESS_WITH_SECRET,
}


def _refuse_secret(warehouse: str) -> str:
    try:
        return refuse_secret(warehouse)
    except WarehouseError as error:
        raise PydanticCustomError(NOT_TO_BE_SHOWN, "{said}", {"said": str(error)}) from None


WarehouseName = Annotated[str, AfterValidator(_refuse_secret), WithJsonSchema({"type": "string", "not": _REFUSED})]
"""A flow parameter that names a warehouse. Prefect's server refuses a secret in it before storing it."""

_GONE = (
    "The secrets of this run (--custom-secrets) are gone, because a run removes them after reading them. "
    "To retry runs, name a block of secrets, which is kept"
)
_OF_THE_ENDPOINT = ("provider", "base_url", "api_key_var", "api_client_type", "headers", "replicas", "middleware")


class Named(NamedTuple):
    """The result of applying blocks.

    Together, all runs with this endpoint may generate ``limit`` rollouts at once; 0 means no limit. ``publisher`` is
    the block that the configuration names as ``hf_hub_dataset_name``.
    """

    config: RunConfig
    location: str
    limit: int
    publisher: HubPublisher | None = None


@asynccontextmanager
async def named_blocks(config: RunConfig, endpoint: str, secrets: str, warehouse: str) -> AsyncIterator[Named]:
    """Applies blocks; ``endpoint`` and ``secrets`` are their names, ``warehouse`` is as for ``warehouse_location``.

    The secrets are in the process environment until the end of the ``with`` block.
    """
    with hidden_in_errors(), hidden_in_prints(), ExitStack() as variables:
        own = await _own_secrets()
        if secrets or own:
            named = (await _load(EnvironmentSecrets, secrets)).variables() if secrets else {}
            variables.enter_context(in_environment({**named, **own}))
        if endpoint:
            reached = await _load(ModelEndpoint, endpoint)
            variables.enter_context(in_environment(reached.variables()))
            config = _at(config, reached, endpoint)
        publisher = None
        if (dataset := config.hf_hub_dataset_name or "").startswith(BLOCK):
            publisher = await _load(HubPublisher, dataset.removeprefix(BLOCK))
            config = config.model_copy(update={"hf_hub_dataset_name": publisher.repo_name or None})
        location = await warehouse_location(warehouse)
        yield Named(config, location, reached.max_concurrent if endpoint else 0, publisher)


async def _own_secrets() -> dict[str, str]:
    """Returns the secrets that came with this flow run, and removes them; a Retry raises ``ConfigError``."""
    context = FlowRunContext.get()
    block = context.flow_run.labels.get(SECRETS_LABEL) if context and context.flow_run else None
    if block is None:
        return {}
    try:
        found: EnvironmentSecrets = await EnvironmentSecrets.aload_from_ref(UUID(str(block)))
    except ValueError:
        raise ConfigError(_GONE) from None
    async with get_client() as client:
        await client.delete_block_document(UUID(str(block)))
    return found.variables()


async def warehouse_location(warehouse: str) -> str:
    """Returns a location; ``block:NAME`` stands for the location in a ``ResultsWarehouse`` block."""
    if warehouse.startswith(BLOCK):
        block = await _load(ResultsWarehouse, warehouse.removeprefix(BLOCK))
        return refuse_secret(block.location)
    return resolve_warehouse(warehouse)


@asynccontextmanager
async def named_secrets(name: str) -> AsyncIterator[None]:
    """Puts the values of an ``EnvironmentSecrets`` block into the process environment; does nothing without a name."""
    with hidden_in_errors():
        variables = (await _load(EnvironmentSecrets, name)).variables() if name else {}
        with in_environment(variables):
            yield


def _at(config: RunConfig, endpoint: ModelEndpoint, name: str) -> RunConfig:
    defaults = {field: info.get_default(call_default_factory=True) for field, info in RunConfig.model_fields.items()}
    usual = RunConfig(env_id=config.env_id, provider=config.provider).model_copy(
        update={"provider": defaults["provider"]}
    )
    said = [field for field in _OF_THE_ENDPOINT if getattr(config, field) != getattr(usual, field)]
    if is_usual_key(config.base_url, config.api_key_var):  # nobody named the variable
        said = [field for field in said if field != "api_key_var"]
    if said:
        raise ConfigError(f"Block {name!r} sets the endpoint: remove {' and '.join(said)} from the parameters")
    client = endpoint.client_config()
    update: dict[str, Any] = {
        "base_url": client.api_base_url,
        "api_key_var": client.api_key_var,
        "api_client_type": client.client_type,
        "headers": client.extra_headers,
        "model": endpoint.model if endpoint.model and config.model == defaults["model"] else config.model,
    }
    for field in ("max_concurrent", "max_concurrent_generation", "request_timeout"):
        limit, asked = getattr(endpoint, field.removesuffix("_generation")), getattr(config, field)
        if limit and asked is not None:
            update[field] = min(limit, asked)
    if endpoint.input_price or endpoint.output_price:
        update |= {"input_price": endpoint.input_price, "output_price": endpoint.output_price}
    return config.model_copy(update=update)


async def _load(kind: type[BlockT], name: str) -> BlockT:
    try:
        return await kind.aload(name)
    except ValueError:
        known = ", ".join(await _names(kind)) or "none"
        what = kind.__name__
        raise ConfigError(
            f"There is no {what} block {name!r}; known blocks: {known}. Create one in the UI: Blocks"
        ) from None
    except (ConfigError, RuntimeError) as error:
        reason = _first_message(error.__cause__) if isinstance(error.__cause__, ValidationError) else str(error)
        raise ConfigError(f"{kind.__name__} block {name!r} cannot be used: {reason}") from None


async def _names(kind: type[Block]) -> list[str]:
    async with get_client() as client:
        with suppress(ObjectNotFound):
            found = await client.read_block_documents_by_type(kind.get_block_type_slug(), include_secrets=False)
            return sorted(document.name for document in found if document.name)
    return []


def _first_message(error: ValidationError) -> str:
    found = error.errors(include_input=False)[0]
    place = "".join(f"{part}: " for part in found["loc"])
    return f"{place}{found['msg'].removeprefix('Value error, ')}"

"""What a flow run is called and tagged, so that it is found in the Prefect UI."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from coolname.data import config as coolname_words
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from nightjar.config import RunConfig
from nightjar.evaluation import Run
from nightjar.runs import RunMetadata, Whereabouts
from nightjar.warehouse.location import has_secret
from tasks.away import SERVER_IS_AWAY, note

_COOLNAME: Mapping[str, Any] = coolname_words
_ADJECTIVES = ("adjective", "adjective_near", "noun_adjective", "prefix", "size")
_ANIMALS = ("animal", "animal_breed", "animal_legendary")
_GREEK = (
    "gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
)
_PLACE = (
    "[a-z]|adjunct|anomaly|band|boundary|cloud|cluster|collapse|conflux|expanse|field|fringe|instability|manifold|mass|"
    "nebula|point|quadrant|reach|ring|sector|shift|tensor|terminus|vector|void|warp"
)
_PRODUCT = (
    "Awesome|Rustic|Small|Gorgeous|Fantastic|Sleek|Intelligent|Unbranded|Refined|Licensed|Generic|Practical|Ergonomic|"
    "Handcrafted|Tasty|Handmade|Incredible"
)
_OF_A_FORM = re.compile(rf"(?:{_GREEK})(?:\d{{1,3}}-[a-z-]+|-[a-z]+-(?:{_PLACE}))|(?:{_PRODUCT})-[A-Z]\w{{,5}}")


def flow_run_name() -> str:
    """Returns the environment and the model or its endpoint; a name that was typed, or is of an earlier try, stays."""
    name = str(flow_run.name or "")
    if name and not is_drawn(name):
        return name
    parameters = flow_run.parameters
    default = RunConfig.model_fields["model"].default
    model = parameters.get("model", default)
    asked = parameters["endpoint"] if parameters.get("endpoint") and model == default else model
    return f"{parameters['env_id']} | {asked}"


def named_after(*parameters: str) -> Callable[[], str]:
    """Returns what names a flow run after its flow and the parameters that say what it is about; a typed name stays."""

    def name() -> str:
        typed = str(flow_run.name or "")
        said = [str(flow_run.parameters.get(parameter) or "") for parameter in parameters]
        return typed if typed and not is_drawn(typed) else " | ".join(filter(None, [str(flow_run.flow_name), *said]))

    return name


def is_drawn(name: str) -> bool:
    """Says whether Prefect drew the name: its server an adjective and an animal, the form of its UI a star.

    The form of its second UI draws what a product is called, and an animal. Of the first form's names those stay that a
    person may have typed: without a number and a place in the sky, or of an alpha or a beta.
    """
    if _OF_A_FORM.fullmatch(name):
        return True
    adjective, _, animal = name.partition("-")
    return adjective in _words(_ADJECTIVES) and animal in _words(_ANIMALS)


def _words(lists: tuple[str, ...]) -> set[str]:
    return {word for name in lists for word in _COOLNAME[name]["words"]}


def artifact_key(config: RunConfig | RunMetadata) -> str:
    """Returns the end of the keys of a run's artifacts: Prefect keeps a history by key."""
    return re.sub(r"[^a-z0-9]+", "-", f"{config.env_id}-{config.model}".lower()).strip("-")


def endpoint_tag(endpoint: str) -> str:
    """Returns the tag of the flow runs that name a ``ModelEndpoint`` block."""
    return f"endpoint:{endpoint}"


async def tag_flow_run(config: RunConfig | RunMetadata, endpoint: str) -> list[str]:
    """Gives this flow run, beside the tags it has, its environment, model, endpoint, suite and its own tags.

    With them goes the process that runs it, by which ``nightjar up`` notices that it is gone.

    Returns:
        These; tasks that are given them can be held by a concurrency limit.
    """
    own = [f"env:{config.env_id}", f"model:{config.model}", *config.tags]
    own += [endpoint_tag(endpoint)] if endpoint else []
    own += [f"suite:{config.suite}"] if config.suite else []
    process = f"{socket.gethostname()}:{os.getpid()}"
    async with get_client() as client:
        await client.update_flow_run(flow_run.id, tags=sorted({*flow_run.tags, *own}), infrastructure_pid=process)
    return own


async def label_flow_run(run: Run, location: str) -> None:
    """Tells the server where the results of this flow run are: ``nightjar up`` publishes them if its process is gone.

    Args:
        run: it has a run directory.
        location: of the warehouse; one that holds a secret is not told.
    """
    where = Whereabouts.of(run.directory.path, None if has_secret(location) else location)
    try:
        async with get_client() as client:
            await client.update_flow_run_labels(UUID(str(flow_run.id)), where.labels())
    except SERVER_IS_AWAY:
        note(away=True)


async def forget_parameter(name: str) -> None:
    """Takes a parameter out of this flow run: it holds for this try, and not for the next one."""
    flow_run_id = UUID(str(flow_run.id))
    async with get_client() as client:
        said = (await client.read_flow_run(flow_run_id)).parameters
        await client.update_flow_run(flow_run_id, parameters={key: said[key] for key in said if key != name})

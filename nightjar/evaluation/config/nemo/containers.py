"""Images in a config: the solver ``container`` for ``container://IMAGE#TASK``, and the sandbox of tested code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from nightjar.evaluation.config.nemo.agents import DockerSandbox
from nightjar.evaluation.config.nemo.services import Section

IMAGES = "container://"
_IMAGE = "python:3.12-slim"


class ContainerSolver(Section):
    """An image that evaluates the model itself. The benchmark's ``params`` are those of the image."""

    type: Literal["container"]
    service: str
    """Name of the model's service."""
    endpoint_type: Literal["chat", "completions"] | None = None
    """The route of the endpoint; None means chat."""
    adapter_config: dict[str, Any] | None = None
    """Settings of the image's own adapter."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    """Variables of the container."""
    mounts: dict[str, str] = Field(default_factory=dict)
    """Paths of this machine → paths in the container."""

    system_prompt: ClassVar[None] = None
    generation: ClassVar[None] = None

    def arguments(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of the environment."""
        found = {
            "legacy_params": dict(params),
            "endpoint_type": self.endpoint_type,
            "adapter_config": self.adapter_config,
            "extra_env": self.env_vars,
            "extra_mounts": [f"{host}:{inside}" for host, inside in self.mounts.items()],
        }
        return {name: value for name, value in found.items() if value}


def code_arguments(sandbox: DockerSandbox) -> dict[str, Any]:
    """Returns the arguments of a benchmark that tests code, so that it does so in containers."""
    limit = {"test_timeout_seconds": sandbox.timeout} if "timeout" in sandbox.model_fields_set else {}
    return {"docker_image": sandbox.image or _IMAGE, **limit}

"""Maps each module of verifiers to the modules of Nightjar that are searched, in order, for its names."""

from __future__ import annotations

import importlib

from nightjar.clients.protocols import PROTOCOLS

EVERYWHERE = ("nightjar.compat.verifiers.names",)
"""Modules in which the names of all submodules are looked up."""
PUBLIC = "nightjar"
"""The module with the names of the package itself."""

_TYPES = (
    "nightjar.core.messages", "nightjar.core.rollout.state", "nightjar.core.rollout.usage",
    "nightjar.core.rollout.records", "nightjar.clients",
    "nightjar.environments.generation", "nightjar.evaluation.config",
    "nightjar.compat.verifiers.config",
)  # fmt: skip

_ENVS = {
    "environment": "environment", "multiturn_env": "multiturn", "singleturn_env": "multiturn",
    "tool_env": "tools.tool_env", "sandbox_env": "tools.sandbox_env", "python_env": "tools.python_env",
    "env_group": "env_group", "gym_env": "games.gym_env", "mcp_env": "tools.mcp_env",
    "reasoninggym_env": "games.reasoninggym_env", "textarena_env": "games.textarena_env",
    "experimental.cli_agent_env": "agents.cli_agent_env", "experimental.harbor_env": "agents.harbor_env",
    "experimental.gym_env": "games.gym_env", "experimental.mcp_env": "tools.mcp_env",
    "integrations.openenv_env": "games.openenv_env", "integrations.reasoninggym_env": "games.reasoninggym_env",
    "integrations.textarena_env": "games.textarena_env",
}  # fmt: skip
_UTILS: dict[str, tuple[str, ...]] = {
    "async_utils": ("core.calling",), "client_utils": ("clients",),
    "config_utils": ("clients.credentials", "errors"), "data_utils": ("environments.data", "environments.parsers"),
    "env_utils": ("environments",), "error_utils": ("compat.verifiers.error_chains",),
    "eval_utils": (
        "compat.verifiers.evaluations", "compat.verifiers.printing", "compat.verifiers.config", "evaluation.config",
    ),
    "logging_utils": ("core.logs",), "message_utils": ("core.messages",),
    "metric_utils": ("compat.verifiers.metrics", "statistics"),
    "path_utils": ("compat.verifiers.results", "engine.runs"), "response_utils": ("core.rollout.state",),
    "save_utils": ("compat.verifiers.results", "core.rollout.records", "environments.datasets"),
    "thread_utils": ("core.calling",),
    "tool_utils": ("environments.tools.schema", "environments.tools.tool_env"),
    "usage_utils": ("core.rollout.usage", "core.rollout.state"),
}  # fmt: skip

SOURCES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("", "scripts", "envs.experimental", "envs.integrations", "utils"), ()),
    "scripts.eval": ("nightjar.compat.verifiers.eval_script",),
    **dict.fromkeys(("types", "utils.types"), _TYPES),
    "errors": ("nightjar.errors",),
    "decorators": ("nightjar.core.calling.decorators",),
    "clients": ("nightjar.clients",),
    "clients.client": ("nightjar.clients.client",),
    **{f"clients.{name}_client": (f"nightjar.clients.{protocol.module}",) for name, protocol in PROTOCOLS.items()},
    "envs": ("nightjar.environments",),
    **{f"envs.{name}": (f"nightjar.environments.{module}",) for name, module in _ENVS.items()},
    "envs.stateful_tool_env": ("nightjar.environments.tools.tool_env", "nightjar.environments.tools.schema"),
    **dict.fromkeys(
        ("parsers", *(f"parsers.{name}" for name in ("parser", "xml_parser", "think_parser", "maybe_think_parser"))),
        ("nightjar.environments.parsers",),
    ),
    "rubrics": ("nightjar.environments.rubrics",),
    **{
        f"rubrics.{name}": (f"nightjar.environments.rubrics.{name}",)
        for name in ("rubric", "rubric_group", "judge_rubric", "math_rubric")
    },
    **{f"utils.{name}": tuple(f"nightjar.{module}" for module in modules) for name, modules in _UTILS.items()},
}
"""Submodule of verifiers → modules of Nightjar in which its names are looked up first."""


def prepare() -> None:
    """Adds private names of verifiers to Nightjar's classes, whose modules take longer to import than this one."""
    importlib.import_module("nightjar.compat.verifiers.private_names").add_private_names()

"""Modules of verifiers, each with Nightjar's modules in which its names are looked up, in order."""

from __future__ import annotations

from nightjar.clients.protocols import PROTOCOLS

EVERYWHERE = ("nightjar.compat.verifiers.names",)
"""Modules in which the names of all submodules are looked up."""
PUBLIC = "nightjar"
"""The module with the names of the package itself."""

_TYPES = (
    "nightjar.core.messages", "nightjar.core.rollout.state", "nightjar.core.rollout.usage",
    "nightjar.core.rollout.usage", "nightjar.core.rollout.records", "nightjar.clients",
    "nightjar.environments.generation", "nightjar.evaluation.config",
    "nightjar.compat.verifiers.config",
)  # fmt: skip

SOURCES: dict[str, tuple[str, ...]] = {
    "": (),
    "scripts": (),
    "scripts.eval": ("nightjar.compat.verifiers.eval_script",),
    "types": _TYPES,
    "errors": ("nightjar.errors",),
    "decorators": ("nightjar.core.calling.decorators",),
    "clients": ("nightjar.clients",),
    "clients.client": ("nightjar.clients.client",),
    **{f"clients.{name}_client": (f"nightjar.clients.{protocol.module}",) for name, protocol in PROTOCOLS.items()},
    "envs": ("nightjar.environments",),
    "envs.environment": ("nightjar.environments.environment",),
    "envs.multiturn_env": ("nightjar.environments.multiturn",),
    "envs.singleturn_env": ("nightjar.environments.multiturn",),
    "envs.tool_env": ("nightjar.environments.tools.tool_env",),
    "envs.stateful_tool_env": ("nightjar.environments.tools.tool_env", "nightjar.environments.tools.schema"),
    "envs.sandbox_env": ("nightjar.environments.tools.sandbox_env",),
    "envs.python_env": ("nightjar.environments.tools.python_env",),
    "envs.env_group": ("nightjar.environments.env_group",),
    "envs.gym_env": ("nightjar.environments.games.gym_env",),
    "envs.mcp_env": ("nightjar.environments.tools.mcp_env",),
    "envs.reasoninggym_env": ("nightjar.environments.games.reasoninggym_env",),
    "envs.textarena_env": ("nightjar.environments.games.textarena_env",),
    "envs.experimental": (),
    "envs.experimental.gym_env": ("nightjar.environments.games.gym_env",),
    "envs.experimental.mcp_env": ("nightjar.environments.tools.mcp_env",),
    "envs.integrations": (),
    "envs.integrations.openenv_env": ("nightjar.environments.games.openenv_env",),
    "envs.integrations.reasoninggym_env": ("nightjar.environments.games.reasoninggym_env",),
    "envs.integrations.textarena_env": ("nightjar.environments.games.textarena_env",),
    "parsers": ("nightjar.environments.parsers",),
    "parsers.parser": ("nightjar.environments.parsers",),
    "parsers.xml_parser": ("nightjar.environments.parsers",),
    "parsers.think_parser": ("nightjar.environments.parsers",),
    "parsers.maybe_think_parser": ("nightjar.environments.parsers",),
    "rubrics": ("nightjar.environments.rubrics",),
    "rubrics.rubric": ("nightjar.environments.rubrics.rubric",),
    "rubrics.rubric_group": ("nightjar.environments.rubrics.rubric_group",),
    "rubrics.judge_rubric": ("nightjar.environments.rubrics.judge_rubric",),
    "rubrics.math_rubric": ("nightjar.environments.rubrics.math_rubric",),
    "utils": (),
    "utils.async_utils": ("nightjar.core.calling",),
    "utils.client_utils": ("nightjar.clients",),
    "utils.config_utils": ("nightjar.clients.credentials", "nightjar.errors"),
    "utils.data_utils": ("nightjar.environments.data", "nightjar.environments.parsers"),
    "utils.env_utils": ("nightjar.environments",),
    "utils.error_utils": ("nightjar.compat.verifiers.error_chains",),
    "utils.eval_utils": (
        "nightjar.compat.verifiers.evaluations",
        "nightjar.compat.verifiers.printing",
        "nightjar.compat.verifiers.config",
        "nightjar.evaluation.config",
    ),
    "utils.logging_utils": ("nightjar.core.logs",),
    "utils.message_utils": ("nightjar.core.messages",),
    "utils.metric_utils": ("nightjar.compat.verifiers.metrics", "nightjar.statistics"),
    "utils.path_utils": ("nightjar.compat.verifiers.results", "nightjar.engine.runs"),
    "utils.response_utils": ("nightjar.core.rollout.state",),
    "utils.save_utils": (
        "nightjar.compat.verifiers.results",
        "nightjar.core.rollout.records",
        "nightjar.environments.datasets",
    ),
    "utils.thread_utils": ("nightjar.core.calling",),
    "utils.tool_utils": ("nightjar.environments.tools.schema", "nightjar.environments.tools.tool_env"),
    "utils.types": _TYPES,
    "utils.usage_utils": ("nightjar.core.rollout.usage", "nightjar.core.rollout.state"),
}
"""Submodule of verifiers → modules of Nightjar in which its names are looked up first."""

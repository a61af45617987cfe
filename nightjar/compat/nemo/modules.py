"""Maps each module of NeMo Evaluator to the modules of Nightjar that are searched, in order, for its names."""

from __future__ import annotations

_OWN = "nightjar.compat.nemo"

EVERYWHERE: tuple[str, ...] = ()
"""Modules in which the names of all submodules are looked up."""
PUBLIC = _OWN
"""The module with the names of the package itself."""

SOURCES: dict[str, tuple[str, ...]] = {
    "": (),
    **{
        module: (f"{_OWN}.{module}",)
        for module in (
            "config", "engine", "engine.artifacts", "engine.comparison", "engine.eval_loop", "engine.model_client",
            "engine.sharding", "environments", "environments.container", "environments.gym",
            "environments.gym_protocol", "environments.lm_eval", "environments.skills", "environments.vlmevalkit",
            "errors", "metrics", "observability", "reports", "reports.eval", "reports.gate", "reports.regression",
            "sandbox", "scoring", "serving", "serving.app", "solvers",
        )
    },
    **{
        f"config.{part}": (f"{_OWN}.config",)
        for part in (
            "benchmarks", "clusters", "compose", "eval_config", "gate_policy", "output", "sandboxes", "scoring",
            "services", "solvers",
        )
    },
    "benchmarks": ("nightjar.benchmarks",),
    "engine.bundles": (f"{_OWN}.engine.artifacts",),
    "engine.gate": (f"{_OWN}.engine.comparison",),
    "environments.base": (f"{_OWN}.environments",),
    "environments.composite": (f"{_OWN}.environments",),
    "environments.custom": (f"{_OWN}.environments", f"{_OWN}.scoring"),
    "environments.managed_gym": (f"{_OWN}.environments.gym",),
    "environments.registry": (f"{_OWN}.environments",),
    **{
        f"metrics.{part}": (f"{_OWN}.metrics",)
        for part in ("aggregation", "confidence", "headline", "paired_tests", "pass_at_k")
    },
    "observability.cost": (f"{_OWN}.observability", f"{_OWN}.engine.artifacts"),
    **{f"observability.{part}": (f"{_OWN}.observability",) for part in ("failures", "progress", "types")},
    "sandbox.base": (f"{_OWN}.sandbox",),
    **{
        f"scoring.{part}": (f"{_OWN}.scoring",)
        for part in ("code_execution", "json_schema", "judge", "pattern", "text", "types")
    },
    **{
        f"solvers.{part}": (f"{_OWN}.solvers",)
        for part in ("base", "chat", "completion", "gym", "oracle", "react", "tool_backend", "vlm")
    },
}  # fmt: skip
"""Submodule of NeMo Evaluator → modules of Nightjar in which its names are looked up first."""

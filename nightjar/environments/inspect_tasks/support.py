"""Names what a task of Inspect uses and Nightjar does not support, before any request is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inspect_ai import Task
from inspect_ai._util.registry import has_registry_params, is_registry_object, registry_info, registry_params
from inspect_ai.model import Model
from inspect_ai.scorer import Scorer
from inspect_ai.solver import Plan

from nightjar.environments.inspect_tasks.conversion import unsupported_settings
from nightjar.environments.inspect_tasks.provider import PROVIDER

GRADER = "grader"
_OF_TASK = {
    "sample_source": "samples that are made during the run (SampleSource)",
    "approval": "approval policies",
    "review": "review policies",
    "sentinel": "a sentinel",
    "early_stopping": "early stopping",
    "checkpoint": "checkpoints",
    "cost_limit": "a cost limit (set --max-cost of the run)",
    "score_on_error": "score_on_error (a failed rollout has no reward)",
    "model": f"a model of the task (name it with -m; use '{PROVIDER}/MODEL' for others)",
}
_PARTS = {
    "human_agent": "the agent 'human_agent'",
    "human_cli": "the agent 'human_cli'",
    "computer": "the tool 'computer'",
    "web_search": "the tool 'web_search'",
    "web_browser": "the tool 'web_browser'",
    "bash_session": "the tool 'bash_session' (the tool 'bash' is supported)",
    "text_editor": "the tool 'text_editor'",
    "code_execution": "the tool 'code_execution'",
    "perplexity": "the scorer 'perplexity'",
    "target_perplexity": "the scorer 'target_perplexity'",
}
"""Solvers, tools and scorers by their names in Inspect's registry."""
_MODELS = ("model", "models", "grader_model")


def unsupported_parts(task: Task, plan: Plan) -> list[str]:
    """Returns what is not supported, each named so that a person finds it in the task."""
    found = [text for name, text in _OF_TASK.items() if getattr(task, name, None)]
    found += [f"the model role {role!r}" for role in task.model_roles or {} if role != GRADER]
    if GRADER in (task.model_roles or {}):
        found.append(f"a model for the role {GRADER!r} (set judge_model in -a)")
    found += [f"GenerateConfig({name}=…)" for name in unsupported_settings(task.config)]
    if not task.scorer:
        found.append("a task without a scorer")
    scorers: Sequence[Scorer] = task.scorer or []
    for part in (*plan.steps, *([plan.finish] if plan.finish else []), *scorers):
        found += _of_part(part)
    return list(dict.fromkeys(found))


def _of_part(part: Any) -> Iterator[str]:
    if not is_registry_object(part):
        return
    name = _bare(registry_info(part).name)
    if name in _PARTS:
        yield _PARTS[name]
    if has_registry_params(part):
        yield from _of_params(name, registry_params(part))


def _of_params(name: str, params: Mapping[str, Any]) -> Iterator[str]:
    """Finds models, caches and parts in the arguments of a solver, tool or scorer."""
    for key, value in params.items():
        if key in _MODELS and (model := _other_model(value)) is not None:
            yield f"{name}({key}={model!r}) (leave it out, or use '{PROVIDER}/MODEL')"
        elif key == "cache" and value:
            yield f"{name}(cache=…) (use --cache)"
        elif key != "config":
            yield from _nested(value)


def _nested(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if {"type", "name", "params"} <= value.keys():  # how Inspect records a tool, solver or scorer
            name = _bare(str(value["name"]))
            if name in _PARTS:
                yield _PARTS[name]
            yield from _of_params(name, value["params"])
        else:
            for each in value.values():
                yield from _nested(each)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for each in value:
            yield from _nested(each)
    elif is_registry_object(value):
        yield from _of_part(value)


def _other_model(value: Any) -> str | None:
    """Returns the name of a model of another provider; of several models, the first."""
    if isinstance(value, list):
        return next((model for each in value if (model := _other_model(each)) is not None), None)
    if isinstance(value, Mapping):
        value = value.get("model")
    if not isinstance(value, str | Model):
        return None
    return None if str(value).startswith(f"{PROVIDER}/") else str(value)


def _bare(name: str) -> str:
    return name.rpartition("/")[2]

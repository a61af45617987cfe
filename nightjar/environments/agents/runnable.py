"""Which tasks can run here, in which image, and how many at once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

from nightjar.environments.agents.harbor_task import HarborStep, HarborTask, problems_of, read_tasks, resolve_env
from nightjar.errors import DatasetError
from nightjar.sandboxes import DockerProvider
from nightjar.sandboxes.images import Images, ImageSource

logger = logging.getLogger(__name__)

_ROLLOUTS_PER_CORE = 4
_ANSWER_SECONDS = 20.0
_NO_SOLUTION = "It has no solution/solve.sh, which the agent 'oracle' runs."
_NO_ENGINE = (
    "It needs an image, and no container engine answers. Start docker, or install podman "
    "(apt-get install podman) and set DOCKER_HOST=unix:///run/podman/podman.sock."
)


def row_of(task: HarborTask) -> dict[str, Any]:
    """Returns a task as a row of a dataset. Its content is a part of the row, so that a changed task is another one."""
    info = {"task_name": task.name, "content_hash": task.content_hash, "metadata": task.metadata}
    return {"question": task.steps[0].instruction, "answer": "", "info": info, "task": task.name}


def runnable_tasks(path: Path, names: Sequence[str] | None, *, needs_solution: bool) -> dict[str, HarborTask]:
    """Returns the tasks that can run here. The others are refused in the log, by name and with their reasons."""
    refused: dict[str, list[str]] = {}
    runnable: dict[str, HarborTask] = {}
    is_engine_there = functools.cache(is_engine_available)
    for task in read_tasks(path, names):
        if task.unknown_fields:
            logger.warning("Task %r has fields that are ignored: %s", task.name, ", ".join(task.unknown_fields))
        if needs_solution and not task.has_solution:
            refused[task.name] = [_NO_SOLUTION]
        elif reasons := reasons_against(task, is_engine_there):
            refused[task.name] = reasons
        else:
            resolve_env({**task.environment.env, **task.verifier.env}, task.name)
            runnable[task.name] = task
    for name, reasons in refused.items():
        logger.warning("Task %r cannot run here: %s", name, " ".join(reasons))
    if not runnable:
        listed = "; ".join(f"{name}: {' '.join(reasons)}" for name, reasons in list(refused.items())[:5])
        raise DatasetError(f"No task in {str(path)!r} can run here. {listed}")
    return runnable


def is_engine_available() -> bool:
    """Returns whether a container engine answers. An engine that builds images may take seconds to answer."""
    return DockerProvider.is_available(_ANSWER_SECONDS)


def reasons_against(task: HarborTask, is_engine_there: Callable[[], bool]) -> list[str]:
    """Returns why a task cannot run here; empty if it can. An engine is asked for only if the task needs one."""
    reasons = problems_of(task)
    return [_NO_ENGINE] if not reasons and task.needs_image and not is_engine_there() else reasons


def image_source(task: HarborTask, default: str | None) -> ImageSource | None:
    """Returns the image of a task, or None if the task needs none."""
    settings = task.environment
    if settings.docker_image:
        return ImageSource(settings.docker_image)
    if task.dockerfile is not None:
        return ImageSource(folder=task.environment_folder, build_seconds=settings.build_timeout_seconds)
    return ImageSource(default) if default else None


def verifier_image_source(task: HarborTask, step: HarborStep, default: str | None) -> ImageSource | None:
    """Returns the image of a separate verifier: its own, the one in the folder of the tests, or the task's."""
    own = step.verifier.environment
    if own is not None and own.docker_image:
        return ImageSource(own.docker_image)
    if step.verifier_folder is not None:
        return ImageSource(folder=step.verifier_folder, build_seconds=(own or task.environment).build_timeout_seconds)
    return image_source(task, default)


def default_sandboxes(images: Images | None, tasks: Iterable[HarborTask]) -> int:
    """Returns how many containers the engine's cores and memory allow at once."""
    cores, memory = psutil.cpu_count() or 1, psutil.virtual_memory().total
    if images is not None:
        found = images.provider.api.info()
        cores, memory = found.get("NCPU") or cores, found.get("MemTotal") or memory
    largest = max(task.environment.memory_mb for task in tasks) * 2**20
    return max(1, min(_ROLLOUTS_PER_CORE * int(cores), int(memory // largest)))

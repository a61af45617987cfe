"""``InspectEnv`` runs a task of Inspect: its dataset, solvers, scorers and limits, with Nightjar's client."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from functools import partial
from typing import Any

from inspect_ai import Task
from inspect_ai._eval.task.run import resolve_plan
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, Model, get_model

from nightjar.core.calling.decorators import teardown
from nightjar.core.calling.limits import Places
from nightjar.core.environment_id import INSPECT
from nightjar.core.messages import Messages, dump_messages
from nightjar.core.rollout.state import State
from nightjar.environments.agents.transcript import completion_of, with_known_messages
from nightjar.environments.inspect_tasks.address import TaskAddress
from nightjar.environments.inspect_tasks.conversion import message_of, plain
from nightjar.environments.inspect_tasks.provider import NO_LIMIT, PROVIDER, requests_of
from nightjar.environments.inspect_tasks.rollout_requests import JUDGE, RolloutRequests
from nightjar.environments.inspect_tasks.sample_run import SampleRun, scorer_names
from nightjar.environments.inspect_tasks.sandboxes import SandboxMaker, SandboxPlace, place_of
from nightjar.environments.inspect_tasks.scores import InspectRubric, record_scores
from nightjar.environments.inspect_tasks.support import GRADER, unsupported_parts
from nightjar.environments.inspect_tasks.task_loading import load_task, reducer_names
from nightjar.environments.multiturn import MultiTurnEnv
from nightjar.environments.seeded.judge import chosen_judge
from nightjar.errors import EnvironmentLoadError

logger = logging.getLogger(__name__)

_ROLLOUTS_PER_CORE = 4
_COMPARING = frozenset({"match", "includes", "exact", "f1"})
"""Scorers for which the target is a correct answer."""


class InspectEnv(MultiTurnEnv):
    """Runs a task of Inspect. docs/guides/inspect-tasks.md says what is carried over and what is refused.

    Args:
        judge_model: the model of the role ``grader``, at OpenAI by default. If None, the user's configured judge has
            this role, or else the evaluated model, as in Inspect.
        docker_image: the image of ``docker`` sandboxes that name neither an image nor a Dockerfile.
        max_sandboxes: the most sandboxes at once; None means four for each core.
        task_args: the arguments of the task.
    """

    state_columns = ("sample_id", "extracted_answer", "scoring_details", "judge_usage")

    def __init__(
        self,
        address: TaskAddress,
        judge_model: str | None = None,
        judge_base_url: str | None = None,
        judge_api_key_var: str | None = None,
        docker_image: str | None = None,
        max_sandboxes: int | None = None,
        **task_args: Any,
    ) -> None:
        self._task = task = load_task(address, task_args)
        self._plan = resolve_plan(task, None)
        self._scorers = scorer_names(task.scorer or [])
        self._samples = _Samples(task, docker_image)
        if found := [*unsupported_parts(task, self._plan), *self._samples.unsupported]:
            name = f"{INSPECT}{address.spec}"
            raise EnvironmentLoadError(name, f"uses what Nightjar does not support: {'; '.join(found)}")
        first = next(iter(self._scorers))
        super().__init__(
            eval_dataset=lambda: self._samples,
            rubric=InspectRubric(first),
            hook_timeout_seconds=None,
            reference_reply=partial(_reference, first in _COMPARING),
        )
        self._judge = chosen_judge(judge_model, judge_base_url, judge_api_key_var)
        self._sandboxes = SandboxMaker()
        if self._samples.has_sandboxes:
            self.set_max_sandboxes(max_sandboxes or _ROLLOUTS_PER_CORE * (os.cpu_count() or 1))
        if others := [name for name in reducer_names(task) if name != "mean"]:
            logger.warning(
                "The task reduces epochs with %s; Nightjar reports the mean of all rollouts, and pass@k",
                ", ".join(others),
            )

    def set_max_sandboxes(self, max_sandboxes: int | None) -> None:
        """Sets how many sandboxes run at once; None means no limit."""
        self.places = None if max_sandboxes is None else Places(max_sandboxes)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        """Is never called, because the solvers of the task make all prompts."""
        raise NotImplementedError("The solvers of the task make all prompts")

    def start_clock(self, state: State, limit: asyncio.Timeout) -> None:  # noqa: ARG002 - for subclasses
        """Leaves the time limit to Inspect, which scores the unfinished sample when the limit is reached."""
        if self.timeout_seconds is not None:
            limit.reschedule(None)

    async def get_prompt_messages(self, state: State) -> Messages:
        """Runs the sample: its solvers ask the model, and its scorers score the result."""
        requests = RolloutRequests(self, state, None if self._judge is None else self._judge.open())
        run = self._sample_run(state, requests)
        try:
            with requests_of(requests):
                await asyncio.create_task(run.run())  # a task, so that the variables of samples stay apart
        finally:
            if hasattr(run, "state"):
                _render(state, run)
        record_scores(state, run.scores)
        state["reached_limit"] = run.limit
        state["is_truncated"] = bool(state["is_truncated"] or run.limit)
        state["final_env_response"] = []
        return []

    async def is_completed(self, state: State, **kwargs: Any) -> bool:
        """Ends the rollout after the run of its sample, and names the limit that was reached."""
        if state.get("error") is None and state.get("final_env_response") is not None:
            limit = state["reached_limit"]
            self._complete(state, f"{limit}_limit_reached" if limit else "solvers_completed")
            return True
        return await super().is_completed(state, **kwargs)

    async def render_completion(self, state: State) -> None:
        """Keeps the messages of Inspect's state. Without them, the trajectory is the completion."""
        if state["completion"] is None:
            state["completion"] = completion_of(state["trajectory"])

    @teardown
    async def close_sandboxes(self) -> None:
        """Releases the container engine and the judge's connection."""
        await self._sandboxes.close()
        if self._judge is not None:
            await self._judge.open().close()

    def _sample_run(self, state: State, requests: RolloutRequests) -> SampleRun:
        columns = state["input"]
        sample, place = self._samples.sample(columns["example_id"])
        state.update(sample_id=sample.id, judge_usage=None)

        def start_scoring() -> None:
            requests.is_scoring = True

        return SampleRun(
            task=self._task,
            plan=self._plan,
            scorers=self._scorers if self.score_rollouts else {},
            sample=sample,
            epoch=columns.get("rollout_index", 0) + 1,
            model=_model(state["model"]),
            roles={GRADER: _model(f"{JUDGE}{self._judge.model}")} if self._judge is not None else {},
            seconds=self.timeout_seconds,
            sandbox=None if place is None else partial(self._sandbox, place),
            before_scoring=start_scoring,
        )

    def _sandbox(self, place: SandboxPlace, sample: Sample) -> AbstractAsyncContextManager[None]:
        return self._sandboxes.context(self._task.name, place, sample)


class _Samples(Sequence[dict[str, Any]]):
    """The samples of a task as rows. Samples without an id get their position, from 1, as in Inspect."""

    def __init__(self, task: Task, docker_image: str | None) -> None:
        self._samples = task.dataset
        self._places = [place_of(task, sample, docker_image) for sample in task.dataset]
        self.unsupported = sorted({place for place in self._places if isinstance(place, str)})
        self.has_sandboxes = any(place is not None for place in self._places)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, position: Any) -> Any:
        sample, place = self.sample(position)
        targets = [sample.target] if isinstance(sample.target, str) else sample.target
        further = {
            "choices": sample.choices, "metadata": sample.metadata, "files": sample.files, "setup": sample.setup,
            "sandbox": place and str(place.image or place.folder or "local"),
            "targets": targets if len(targets) > 1 else None,
        }  # fmt: skip
        return {
            "prompt": dump_messages([*_messages(sample)]),
            "answer": "\n".join(targets),
            "info": {"sample_id": sample.id, **{name: plain(value) for name, value in further.items() if value}},
        }

    def sample(self, position: int) -> tuple[Sample, SandboxPlace | None]:
        """Returns a copy of a sample, and the place of its sandbox."""
        sample: Sample = deepcopy(self._samples[position])
        if sample.id is None:
            sample.id = position + 1
        place = self._places[position]
        return sample, None if isinstance(place, str) else place


def _reference(is_target: bool, example: Mapping[str, Any]) -> str | None:
    info = example.get("info") or {}
    if not is_target or info.get("choices"):
        return None
    return str((info.get("targets") or [example.get("answer", "")])[0])


def _messages(sample: Sample) -> Iterator[Any]:
    if isinstance(sample.input, str):
        yield {"role": "user", "content": sample.input}
    else:
        yield from map(message_of, sample.input)


def _render(state: State, run: SampleRun) -> None:
    """Sets the prompt and the completion: Inspect's messages before and from the first answer of the model."""
    messages = with_known_messages(state["trajectory"], [message_of(message) for message in run.state.messages])
    first = next((n for n, message in enumerate(messages) if message.role == "assistant"), len(messages))
    state["prompt"], state["completion"] = messages[:first], messages[first:]


def _model(name: str) -> Model:
    return get_model(f"{PROVIDER}/{name}", config=GenerateConfig(max_connections=NO_LIMIT))

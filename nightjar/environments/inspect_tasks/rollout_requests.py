"""The requests of one rollout: Inspect's messages in, the run's client, Inspect's output out."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import LimitExceededError

from nightjar.clients.client import AnyClient
from nightjar.core.messages import Messages, Response
from nightjar.core.rollout.state import State, usage_of
from nightjar.core.rollout.usage import usage_counts
from nightjar.environments.agents.transcript import with_known_messages
from nightjar.environments.inspect_tasks.conversion import message_of, output_of, sampling_args_of, tool_of
from nightjar.environments.multiturn import MultiTurnEnv
from nightjar.errors import OverlongPromptError

JUDGE = "judge:"
"""Begins the name of the judge's model, which has a client of its own."""


class RolloutRequests:
    """Sends the requests of a rollout. Those of solvers are steps of its trajectory; those of scorers are not."""

    def __init__(self, env: MultiTurnEnv, state: State, judge: AnyClient | None) -> None:
        self._env = env
        self._state = state
        self._judge = judge
        self.is_scoring = False

    async def ask(
        self,
        model: str,
        messages: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Sends one request. A prompt that is too long gives the output that Inspect's providers give."""
        self._check_limits()
        is_judge = model.startswith(JUDGE)
        of_run = {} if is_judge else self._of_run()
        sampling = sampling_args_of(config, tools, tool_choice, of_run)
        prompt = with_known_messages(self._state["trajectory"], [message_of(message) for message in messages])
        offered = [tool_of(tool) for tool in tools]
        try:
            if self.is_scoring or is_judge:
                response = await self._ask_grader(is_judge, prompt, model, offered, sampling)
                self._count(response)
            else:
                response = await self._step(model, prompt, offered, sampling)
        except OverlongPromptError as error:
            self._state["is_truncated"] = True
            return ModelOutput.from_content(model, str(error), stop_reason="model_length", error=str(error))
        return output_of(response, tools)

    async def _ask_grader(
        self, is_judge: bool, prompt: Messages, model: str, offered: list[Any], sampling: dict[str, Any]
    ) -> Response:
        if is_judge and self._judge is not None:
            return await self._judge.get_response(prompt, model.removeprefix(JUDGE), sampling, offered or None)
        client: AnyClient = self._state["client"]
        return await client.get_response(prompt, model, sampling, offered or None, state=self._state)

    async def _step(self, model: str, prompt: Messages, offered: list[Any], sampling: dict[str, Any]) -> Response:
        env, state = self._env, self._state
        if offered and not state["tool_defs"]:
            state["tool_defs"] = offered
        with state["timing"].model.measure():
            response = await env.get_model_response(state, prompt, None, model, offered, sampling)
        await env.add_model_response(state, prompt, response)
        return response

    def _of_run(self) -> dict[str, Any]:
        """Returns the sampling arguments that the user set, without those that every environment has."""
        given = self._state["sampling_args"] or {}
        return {name: value for name, value in given.items() if (name, value) != ("n", 1) and value != {}}

    def _check_limits(self) -> None:
        """Raises if the environment's own limit of turns or of tokens is reached."""
        turns = len(self._state["trajectory"])
        if not self.is_scoring and 0 < self._env.max_turns <= turns:
            raise LimitExceededError("turn", value=turns, limit=self._env.max_turns)
        most, used = self._env.max_total_completion_tokens, usage_of(self._state)
        if used is not None and 0 < most <= used["output_tokens"]:
            raise LimitExceededError("token", value=used["output_tokens"], limit=most)

    def _count(self, response: Response) -> None:
        """Adds the tokens of a scorer's request to ``judge_usage``, as ``JudgeRubric`` does."""
        if response.usage is None:
            return
        before = self._state.get("judge_usage") or {}
        counts = zip(("input_tokens", "output_tokens"), usage_counts(response.usage), strict=True)
        self._state["judge_usage"] = {side: before.get(side, 0) + tokens for side, tokens in counts}

"""Chat completions from vLLM with token ids as prompts, because tokenizing text again may give other ids than sampled.

From the second turn on, a prompt consists of the ids of the turn before and the ids of the environment's response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from nightjar.clients.openai_chat import OpenAIChatCompletionsClient, OpenAIChatMessages, OpenAITool, has_part
from nightjar.core.rollout.state import SamplingArgs

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion


class TokenizeResponse(BaseModel):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class OpenAIChatCompletionsTokenClient(OpenAIChatCompletionsClient):
    """Chat completions of vLLM, with token ids (``/chat/completions/tokens``) if the conversation's ids are known.

    The ids come from the trajectory in ``state``, an argument of ``get_response``. The plain route is used for the
    first turn, for images and audio (which ``/tokenize`` does not expand), after a response that was cut, and if the
    ids do not fit together. In every case the ids of the response are in ``response.message.tokens``.

    Example:
        >>> import asyncio
        >>> from nightjar.clients import ClientConfig
        >>> from nightjar.core.messages import UserMessage
        >>> from nightjar.model_server import FixedAnswer, ModelServer
        >>> async def ask(url):
        ...     async with OpenAIChatCompletionsTokenClient(ClientConfig(api_base_url=url)) as client:
        ...         return await client.get_response([UserMessage(content="2+2?")], "any", {})
        >>> with ModelServer(FixedAnswer("It is 4")) as server:
        ...     tokens = asyncio.run(ask(server.base_url)).message.tokens
        >>> len(tokens.completion_ids), tokens.completion_mask
        (4, [1, 1, 1, 1])
    """

    async def get_native_response(
        self,
        prompt: OpenAIChatMessages,
        model: str,
        sampling_args: SamplingArgs,
        tools: list[OpenAITool] | None = None,
        **kwargs: Any,
    ) -> ChatCompletion:
        extra_body = {**(sampling_args.get("extra_body") or {}), "return_token_ids": True}
        sampling_args = {**sampling_args, "logprobs": True, "extra_body": extra_body}
        prompt_ids = await self._known_prompt_ids(kwargs.get("state"), prompt, tools)
        return await super().get_native_response(prompt, model, sampling_args, tools, tokens=prompt_ids, **kwargs)

    async def send(self, arguments: dict[str, Any]) -> ChatCompletion:
        if "tokens" not in arguments:
            return await super().send(arguments)
        return cast("ChatCompletion", await self.post("/chat/completions/tokens", arguments))

    async def _known_prompt_ids(
        self, state: Any, prompt: OpenAIChatMessages, tools: list[OpenAITool] | None
    ) -> list[int] | None:
        if not state or not state.get("trajectory") or has_part(prompt, "image_url", "input_audio"):
            return None
        prompt_ids = await self.get_prompt_ids(state, prompt, tools)
        if prompt_ids is None:
            self.warn_once(
                "Later turns are sent as messages, because their token ids do not continue those of earlier turns"
            )
        return prompt_ids

    async def get_prompt_ids(
        self, state: Mapping[str, Any], prompt_messages: OpenAIChatMessages, oai_tools: list[OpenAITool] | None
    ) -> list[int] | None:
        """Returns the ids of a prompt that continues the longest matching turn of the trajectory, or None."""
        steps = [step for step in state["trajectory"] if step.get("tokens") is not None]
        for step in sorted(steps, key=lambda step: len(step["prompt"]) + len(step["completion"]), reverse=True):
            known, _ = await self.to_native_prompt([*step["prompt"], *step["completion"]])
            if 0 < len(known) <= len(prompt_messages) and all(map(_is_same, known, prompt_messages)):
                break
        else:
            return None
        tokens, answer = step["tokens"], prompt_messages[len(known) :]
        ids = [*tokens["prompt_ids"], *tokens["completion_ids"]]
        is_cut = tokens.get("is_truncated") or step.get("is_truncated")
        if is_cut or not ids or not _is_environment_turn(answer):
            return None
        bridge = await self._bridge_ids(ids[-1], answer, oai_tools, state["model"])
        return None if bridge is None else ids + bridge

    async def _bridge_ids(
        self, stop_id: int, answer: OpenAIChatMessages, tools: list[OpenAITool] | None, model: str
    ) -> list[int] | None:
        """Returns the ids between ``stop_id``, the end of the model's turn, and the start of its next turn.

        The ids are cut out of a tokenized conversation. In it, a short turn replaces the model's turn, whose ids would
        differ.
        """
        stand_in = _stand_in_for(answer)
        whole, start = await asyncio.gather(
            self.tokenize(messages=[stand_in, *answer], tools=tools, model=model),
            self.tokenize(messages=[stand_in], tools=tools, model=model, extra_kwargs={"add_generation_prompt": False}),
            return_exceptions=True,
        )
        if isinstance(whole, BaseException) or isinstance(start, BaseException):
            self.logger.debug("Tokenizing failed: %r, %r", whole, start)
            return None
        if whole[: len(start)] != start or stop_id not in start:
            return None
        bridge = whole[len(start) - start[::-1].index(stop_id) :]
        return bridge[1:] if bridge[:1] == [stop_id] else bridge  # the end token may also be the start token

    async def tokenize(
        self,
        messages: str | OpenAIChatMessages,
        tools: list[OpenAITool] | None,
        model: str,
        extra_kwargs: dict[str, Any] | None = None,
        **_: Any,
    ) -> list[int]:
        """Returns the ids of a text or messages from vLLM's ``/tokenize``. ``extra_kwargs`` are further fields."""
        asked = {"prompt": messages} if isinstance(messages, str) else {"messages": messages, "tools": tools}
        fields = {name: value for name, value in {**asked, **(extra_kwargs or {})}.items() if value is not None}
        url = f"{str(self._sender.base_url).rstrip('/').removesuffix('/v1')}/tokenize"
        return TokenizeResponse.model_validate(await self.post(url, {"model": model, **fields})).tokens


def _is_same(message: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return message == other or _said(message) == _said(other)


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message without empty fields, because the content of a tool call may be missing, empty or None."""
    return {name: value for name, value in message.items() if value not in (None, "", [])}


def _is_environment_turn(messages: OpenAIChatMessages) -> bool:
    roles = [message.get("role") for message in messages]
    return bool(roles) and all(role == "tool" for role in roles[:-1]) and roles[-1] in {"tool", "user"}


def _stand_in_for(answer: OpenAIChatMessages) -> dict[str, Any]:
    """Returns the shortest turn of a model that may precede these messages.

    Templates require a call for every result.
    """
    results = [message for message in answer if message.get("role") == "tool"]
    if not results:
        return {"role": "assistant", "content": "x"}
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": result.get("tool_call_id"), "type": "function", "function": function} for result in results]
    return {"role": "assistant", "tool_calls": calls}

"""How a response ended: the reasons that servers give, by protocol, with the source of each.

The reason decides before the text does: a response that ended with an error may hold half an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Ending(Enum):
    """``ANSWERED`` includes tool calls. ``TRUNCATED`` means a limit. ``FAILED`` is retried like status 502."""

    ANSWERED = "answered"
    TRUNCATED = "truncated"
    FILTERED = "filtered"
    FAILED = "failed"


def _table(**reasons: str) -> dict[str, Ending]:
    return {reason: Ending(ending) for ending, names in reasons.items() for reason in names.split()}


CHAT: Mapping[str, Ending] = {
    # OpenAI and Azure: https://platform.openai.com/docs/api-reference/chat/object
    **_table(answered="stop tool_calls function_call", truncated="length", filtered="content_filter"),
    # Mistral: https://docs.mistral.ai/api
    **_table(truncated="model_length", failed="error"),
    # OpenRouter: https://openrouter.ai/docs/api-reference/overview (also ``error``)
    # DeepSeek: https://api-docs.deepseek.com/api/create-chat-completion
    **_table(failed="insufficient_system_resource"),
    # z.AI and Zhipu: https://docs.z.ai/api-reference/llm/chat-completion
    **_table(filtered="sensitive", failed="network_error", truncated="model_context_window_exceeded"),
    # vLLM: its class FinishReason. SGLang: its class BaseFinishReason
    **_table(failed="abort", truncated="repetition"),
    # TGI (https://huggingface.co/docs/text-generation-inference) and llama.cpp's own route
    **_table(answered="eos_token stop_sequence eos word", truncated="limit"),
    # Ollama (https://github.com/ollama/ollama/blob/main/docs/api.md): the model was loaded, and said nothing
    **_table(failed="load unload"),
    # Gemini behind gateways: https://ai.google.dev/api/generate-content#FinishReason
    **_table(
        truncated="max_tokens",
        filtered="safety recitation blocklist prohibited_content spii language model_armor image_safety "
        "image_prohibited_content image_recitation",
        failed="malformed_function_call function_call_filter unexpected_tool_call too_many_tool_calls "
        "malformed_response missing_thought_signature image_other no_image other",
    ),
    # Cohere: https://docs.cohere.com/reference/chat
    **_table(answered="complete tool_call", filtered="error_toxic"),
    **_table(failed="user_cancel timeout", truncated="error_limit"),
    # watsonx: https://cloud.ibm.com/apidocs/watsonx-ai
    **_table(truncated="token_limit time_limit", failed="cancelled not_finished"),
    # Together and AI21: https://docs.together.ai/reference/chat-completions, https://docs.ai21.com
    **_table(answered="endoftext function_calls"),
    # Alibaba and Baidu: https://help.aliyun.com/zh/model-studio, https://cloud.baidu.com/doc/qianfan
    **_table(answered="normal", filtered="data_inspection_failed"),
}  # fmt: skip
"""Chat completions and text completions."""

MESSAGES: Mapping[str, Ending] = {
    # Anthropic: https://docs.anthropic.com/en/api/handling-stop-reasons
    **_table(answered="end_turn stop_sequence tool_use", filtered="refusal"),
    **_table(truncated="max_tokens model_context_window_exceeded pause_turn"),
    # Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
    **_table(filtered="guardrail_intervened content_filtered", failed="malformed_model_output malformed_tool_use"),
}
"""Anthropic's Messages."""

RESPONSES: Mapping[str, Ending] = {
    # OpenAI: https://platform.openai.com/docs/api-reference/responses/object (``status``)
    **_table(answered="completed", truncated="incomplete", failed="failed cancelled in_progress queued"),
    # ``incomplete_details.reason``
    **_table(truncated="max_output_tokens max_tool_calls", filtered="content_filter"),
}
"""The Responses API."""

_OPENAI = ("stop", "length", "tool_calls")
"""The reasons that ``ResponseMessage`` knows."""
_EVERY = {**CHAT, **MESSAGES, **RESPONSES}
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def ending_of(reason: Any, protocol: Mapping[str, Ending]) -> Ending | None:
    """Returns how a response ended, or None if the reason is unknown. A missing reason means an answer.

    Gateways pass on reasons of other protocols, in other spellings: ``MAX_TOKENS``, ``endTurn``,
    ``content_filter: RECITATION``.
    """
    if not reason:
        return Ending.ANSWERED
    if isinstance(reason, str):
        if reason in protocol:
            return protocol[reason]
        name = _HUMP.sub("_", reason.partition(":")[0].strip()).lower().replace("-", "_").removeprefix("finish_reason_")
        return protocol.get(name) or _EVERY.get(name)
    return None


def ended(reason: Any, protocol: Mapping[str, Ending], *, has_calls: bool = False) -> dict[str, Any]:
    """Returns the fields of a ``ResponseMessage`` that say how the response ended."""
    ending = ending_of(reason, protocol)
    is_truncated = ending is Ending.TRUNCATED
    if reason not in _OPENAI:
        usual = "tool_calls" if has_calls else "stop" if reason and ending is Ending.ANSWERED else None
        reason = "length" if is_truncated else usual
    return {"finish_reason": reason, "is_truncated": is_truncated}

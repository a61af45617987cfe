"""The protocols of model endpoints. This table is the only list of protocols. A new protocol needs a new row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ClientType: TypeAlias = Literal[
    "openai_chat_completions",
    "openai_completions",
    "openai_chat_completions_token",
    "openai_responses",
    "anthropic_messages",
]


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol of model endpoints.

    ``kept_field`` keeps the model's output unchanged; only this protocol sends the field.
    """

    module: str
    client: str
    route: str
    sdk_client: tuple[str, str] | None = None
    kept_field: str | None = None
    nemo_name: str | None = None


PROTOCOLS: dict[ClientType, Protocol] = {
    "openai_chat_completions": Protocol(
        module="openai_chat",
        client="OpenAIChatCompletionsClient",
        route="/chat/completions",
        sdk_client=("openai", "AsyncOpenAI"),
        nemo_name="chat_completions",
    ),
    "openai_completions": Protocol(
        module="openai_completions",
        client="OpenAICompletionsClient",
        route="/completions",
        nemo_name="completions",
    ),
    "openai_chat_completions_token": Protocol(
        module="openai_chat_token",
        client="OpenAIChatCompletionsTokenClient",
        route="/chat/completions",
    ),
    "openai_responses": Protocol(
        module="openai_responses",
        client="OpenAIResponsesClient",
        route="/responses",
        kept_field="openai_responses_output",
        nemo_name="responses",
    ),
    "anthropic_messages": Protocol(
        module="anthropic_messages",
        client="AnthropicMessagesClient",
        route="/messages",
        sdk_client=("anthropic", "AsyncAnthropic"),
        kept_field="anthropic_content",
    ),
}

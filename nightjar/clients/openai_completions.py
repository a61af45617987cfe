"""OpenAI text completions: the model continues a text."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from nightjar.clients.answers import count_of, field_of, text_of, tokens_of, usage_of, without_text, wrong_field
from nightjar.clients.endings import CHAT, Ending, ended
from nightjar.clients.openai_chat import OpenAIClient, first_choice
from nightjar.core.messages import Messages, Response, ResponseMessage, TextLogprobs, Tool, content_text
from nightjar.errors import ConfigError

if TYPE_CHECKING:
    from openai.types import Completion

_CHOOSE_ANOTHER = "Use the client type 'openai_chat_completions'."


class OpenAICompletionsClient(OpenAIClient[str, "Completion", None]):
    """Text completions.

    The texts of all messages are joined by an empty line, whatever their roles. With the sampling argument
    ``logprobs``, the response has log probabilities of its tokens; with ``echo``, also of the prompt's tokens.
    """

    route, prompt_field, endings = "/completions", "prompt", CHAT

    async def to_native_prompt(self, messages: Messages) -> tuple[str, dict[str, Any]]:
        """Joins the texts of all messages. Raises ``ConfigError`` for parts that are not text."""
        for message in messages:
            for part in message.content if isinstance(message.content, list) else ():
                if (kind := field_of(part, "type")) != "text":
                    raise ConfigError(f"Text completions take text only, found a part {kind!r}. {_CHOOSE_ANOTHER}")
        return "\n\n".join(content_text(message.content) for message in messages), {}

    async def to_native_tool(self, tool: Tool) -> NoReturn:
        raise ConfigError(f"Text completions take no tools, found {tool.name!r}. {_CHOOSE_ANOTHER}")

    def native_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if "tools" in arguments:
            raise ConfigError(f"Text completions take no tools. {_CHOOSE_ANOTHER}")
        if "max_completion_tokens" in arguments:
            arguments.setdefault("max_tokens", arguments.pop("max_completion_tokens"))
        return arguments

    async def raise_from_native_response(self, response: Completion) -> None:
        choice = first_choice(response)
        text = field_of(choice, "text")
        if text is not None and not isinstance(text, str):
            raise wrong_field("choices[0].text", text, "a text")
        ending = self.check_ending(field_of(choice, "finish_reason"))
        if not (text or ending is Ending.TRUNCATED):
            raise without_text()

    async def from_native_response(self, response: Completion) -> Response:
        choice = field_of(response, "choices")[0]
        return Response(
            id=text_of(response, "id"),
            created=count_of(response, "created"),
            model=text_of(response, "model"),
            usage=usage_of(response),
            logprobs=_logprobs(choice),
            message=ResponseMessage(
                content=field_of(choice, "text"),
                **ended(field_of(choice, "finish_reason"), CHAT),
                tokens=tokens_of(response),
            ),
        )


def _logprobs(choice: Any) -> TextLogprobs | None:
    told = field_of(choice, "logprobs")
    parts = {name: field_of(told, name) for name in TextLogprobs.model_fields}
    with suppress(ValueError):  # log probabilities of another form, which only few environments read
        return TextLogprobs(**parts)
    return None

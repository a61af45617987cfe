"""OpenAI's legacy text completions (https://platform.openai.com/docs/api-reference/completions) on the server side.

The answerer gets the prompt as one user message; with ``echo``, the response also contains the prompt.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import orjson

from nightjar.model_server.answers import Answer, Message, message_text
from nightjar.model_server.chat_completions import usage
from nightjar.model_server.model_request import ApiError, Fields, ModelRequest, parse_limit, parse_model
from nightjar.model_server.tokens import END, cut, likeliest, logprob, pieces, prompt_logprobs, token_ids


def parse_request(fields: Fields) -> ModelRequest:
    model = parse_model(fields)
    match fields.get("prompt"):
        case str(prompt) | [str(prompt)]:
            pass
        case _:
            raise ApiError(400, "'prompt' must be one text; this server cannot read token ids.", param="prompt")
    prompt_ids = token_ids(pieces(prompt)) if fields.get("return_token_ids") else None
    messages: list[Message] = [{"role": "user", "content": prompt}]
    max_tokens = parse_limit(fields, "max_tokens")
    return ModelRequest(model, messages, max_tokens, len(prompt.split()), fields, prompt_ids=prompt_ids)


def answer_body(request: ModelRequest, answer: Answer, number: int) -> bytes:
    output = cut(Answer(question=answer.question, text=answer.text), request.max_tokens)
    tokens = pieces(output.text)
    is_cut = output.is_cut
    choice: dict[str, Any] = {"index": 0, "text": output.text}
    if request.prompt_ids is not None:
        is_cut = is_cut or len(tokens) == request.max_tokens  # no room for the end token
        tokens += [] if is_cut else [END]
        choice |= {"prompt_token_ids": request.prompt_ids, "token_ids": token_ids(tokens)}
    written = len(tokens)
    logprobs: list[float | None] = [logprob(token_id) for token_id in token_ids(tokens)]
    if request.fields.get("echo"):
        prompt = message_text(request.messages[0])
        choice["text"] = prompt + output.text
        asked = pieces(prompt)
        tokens, logprobs = [*asked, *tokens], [*prompt_logprobs(asked), *logprobs]
    choice["logprobs"] = _logprobs(tokens, logprobs, request.fields.get("logprobs"))
    choice["finish_reason"] = "length" if is_cut else "stop"
    return orjson.dumps(
        {
            "id": f"cmpl-{number:08x}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": request.model,
            "choices": [choice],
            "usage": usage(request.prompt_tokens, written),
        }
    )


def _logprobs(tokens: list[str], logprobs: list[float | None], top: int | None) -> dict[str, Any] | None:
    if top is None or top is False:
        return None
    likely = [None if value is None else likeliest(token, value) for token, value in zip(tokens, logprobs, strict=True)]
    return {
        "text_offset": list(itertools.accumulate(map(len, tokens[:-1]), initial=0)) if tokens else [],
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": likely if top else None,
    }

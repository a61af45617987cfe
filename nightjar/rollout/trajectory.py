"""Steps of a trajectory: one model call each, made of its response."""

from __future__ import annotations

from nightjar.messages import AssistantMessage, Messages, Response
from nightjar.rollout.state import TrajectoryStep, TrajectoryStepTokens


def new_step(
    prompt: Messages, response: Response, trajectory_id: str, max_seq_len: int | None = None
) -> TrajectoryStep:
    """Returns the step that a response makes.

    Args:
        prompt: what the model was asked with.
        response: what it answered.
        trajectory_id: of the rollout.
        max_seq_len: tokens that prompt and completion may have together; more are cut off, and the step counts as
            truncated. None for no limit. Needs an endpoint that returns token ids.
    """
    tokens = response_tokens(response, max_seq_len)
    return TrajectoryStep(
        prompt=prompt,
        completion=response_messages(response),
        response=response,
        tokens=tokens,
        reward=None,
        advantage=None,
        is_truncated=bool(response.message.is_truncated) or (tokens is not None and tokens["is_truncated"]),
        trajectory_id=trajectory_id,
        extras={},
    )


def response_messages(response: Response) -> Messages:
    """Returns what the model said as the messages of a conversation: one assistant message."""
    message = response.message
    return [
        AssistantMessage(
            content=message.content,
            reasoning_content=message.reasoning_content,
            thinking_blocks=message.thinking_blocks,
            tool_calls=message.tool_calls,
            **(message.model_extra or {}),
        )
    ]


def response_tokens(response: Response, max_seq_len: int | None = None) -> TrajectoryStepTokens | None:
    """Returns the token ids of a response, cut to ``max_seq_len``; None where the endpoint sent none."""
    tokens = response.message.tokens
    if tokens is None:
        return None
    given, written = len(tokens.prompt_ids), len(tokens.completion_ids)
    limit = given + written if max_seq_len is None else max_seq_len
    kept = max(0, limit - given)
    return TrajectoryStepTokens(
        prompt_ids=tokens.prompt_ids[:limit],
        prompt_mask=tokens.prompt_mask[:limit],
        completion_ids=tokens.completion_ids[:kept],
        completion_mask=tokens.completion_mask[:kept],
        completion_logprobs=tokens.completion_logprobs[:kept],
        overlong_prompt=given > limit,
        is_truncated=given + written > limit,
        routed_experts=None if tokens.routed_experts is None else tokens.routed_experts[:kept],
    )

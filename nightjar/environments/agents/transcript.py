"""The conversation of an agent as one list of messages, although each request repeats most of the one before."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from difflib import SequenceMatcher

from nightjar.core.messages import Message, Messages, ToolCall, content_text
from nightjar.core.rollout.state import TrajectoryStep

_MOST_COMPARISONS = 1_000_000


def transcript_of(trajectory: Sequence[TrajectoryStep]) -> Messages:
    """Returns all messages of a trajectory in order, each of them once.

    A request that continues an earlier conversation adds its new messages only. If an agent drops messages from its
    history or summarizes them, the summary is added and the dropped messages stay. The requests of a subagent are added
    where they were sent.
    """
    transcript: Messages = []
    for position, step in enumerate(trajectory):
        parent, shared = _closest(trajectory[:position], step["prompt"])
        transcript += _unknown(parent[shared:], step["prompt"][shared:])
        transcript += step["completion"]
    return transcript


def completion_of(trajectory: Sequence[TrajectoryStep]) -> Messages:
    """Returns the messages of a trajectory after its first prompt, each of them once."""
    return transcript_of(trajectory)[len(trajectory[0]["prompt"]) :] if trajectory else []


def with_known_messages(trajectory: Sequence[TrajectoryStep], prompt: Messages) -> Messages:
    """Returns a prompt in which messages that continue an earlier conversation are the recorded messages.

    The recorded messages of the model have what an agent does not send back, such as its reasoning with signatures.
    """
    parent, shared = _closest(trajectory, prompt)
    return [*parent[:shared], *prompt[shared:]]


def _closest(trajectory: Sequence[TrajectoryStep], prompt: Messages) -> tuple[Messages, int]:
    """Returns the conversation that shares the most first messages with a prompt, and their number."""
    closest: Messages = []
    longest = 0
    for step in reversed(trajectory):
        conversation = [*step["prompt"], *step["completion"]]
        shared = _count_shared(conversation, prompt)
        if shared > longest or not closest:
            closest, longest = conversation, shared
        if shared == len(conversation):
            break
    return closest, longest


def _count_shared(conversation: Messages, prompt: Messages) -> int:
    count = 0
    for known, sent in zip(conversation, prompt, strict=False):
        if known is not sent and not _is_same(known, sent):
            break
        count += 1
    return count


def _unknown(known: Messages, sent: Messages) -> Messages:
    """Returns the messages that are not in ``known``, in the same order; of very long conversations, all messages."""
    if not (known and sent) or len(known) * len(sent) > _MOST_COMPARISONS:
        return sent
    matcher = SequenceMatcher(None, [*map(_key, known)], [*map(_key, sent)], autojunk=False)
    repeated = {block.b + offset for block in matcher.get_matching_blocks() for offset in range(block.size)}
    return [message for position, message in enumerate(sent) if position not in repeated]


def _is_same(known: Message, sent: Message) -> bool:
    return known.role == sent.role and (known == sent or _key(known) == _key(sent))


def _key(message: Message) -> Hashable:
    """Returns what identifies a message, without the reasoning, which many agents do not send back."""
    calls = getattr(message, "tool_calls", None) or ()
    content = message.content
    texts = content_text(content)
    others = (
        () if content is None or isinstance(content, str) else tuple(str(p) for p in content if p["type"] != "text")
    )
    return message.role, texts, others, getattr(message, "tool_call_id", None), tuple(map(_call_key, calls))


def _call_key(call: ToolCall) -> Hashable:
    """Returns what identifies a call. Agents may write the same arguments with other blanks."""
    try:
        arguments = json.dumps(json.loads(call.arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return call.id, call.name, arguments

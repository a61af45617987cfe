"""The conversation of an agent as one list of messages."""

from nightjar.core.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from nightjar.environments.agents.transcript import transcript_of, with_known_messages


def messages(names):
    """Returns messages: ``s``, ``u`` and ``a`` begin the texts of a system, user and model message."""
    kinds = {"s": SystemMessage, "u": UserMessage, "a": AssistantMessage}
    return [
        ToolMessage(tool_call_id=name, content=name) if name[0] == "t" else kinds[name[0]](content=name)
        for name in names.split()
    ]


def step(request):
    """Returns the step of a request that is written as ``prompt -> completion``."""
    prompt, completion = request.split("->")
    return {"prompt": messages(prompt), "completion": messages(completion)}


def test_a_transcript_has_each_message_once():
    for requests, transcript in (
        ([], ""),
        (["s u1 -> a1"], "s u1 a1"),
        (["s u1 -> a1", "s u1 a1 t1 -> a2", "s u1 a1 t1 a2 u2 -> a3"], "s u1 a1 t1 a2 u2 a3"),
        # the same text again is a new message
        (["s u1 -> a1", "s u1 a1 u1 -> a1", "s u1 a1 u1 a1 u1 -> a1"], "s u1 a1 u1 a1 u1 a1"),
        # the agent summarizes its history
        (["s u1 -> a1", "s u1 a1 t1 -> a2", "s u9 -> a3", "s u9 a3 t3 -> a4"], "s u1 a1 t1 a2 u9 a3 t3 a4"),
        # and keeps its last messages
        (["s u1 -> a1", "s u1 a1 t1 -> a2", "s u9 a1 t1 a2 t2 -> a3"], "s u1 a1 t1 a2 u9 t2 a3"),
        # a window that slides over the conversation
        (
            ["s u1 -> a1", "s u1 a1 u2 -> a2", "s a1 u2 a2 u3 -> a3", "s u2 a2 u3 a3 u4 -> a4"],
            "s u1 a1 u2 a2 u3 a3 u4 a4",
        ),
        # a subagent between two requests, and two subagents in turn
        (
            ["s u1 -> a1", "s2 u5 -> a5", "s2 u5 a5 t5 -> a6", "s u1 a1 t1 -> a2"],
            "s u1 a1 s2 u5 a5 t5 a6 t1 a2",
        ),
        (
            ["s u1 -> a1", "s2 u5 -> a5", "s2 u6 -> a6", "s2 u5 a5 t5 -> a7", "s2 u6 a6 t6 -> a8", "s u1 a1 t1 -> a2"],
            "s u1 a1 s2 u5 a5 u6 a6 t5 a7 t6 a8 t1 a2",
        ),
        # the agent asks again, or takes a step back
        (["s u1 -> a1", "s u1 -> a2", "s u1 a2 t2 -> a3"], "s u1 a1 a2 t2 a3"),
        (["s u1 -> a1", "s u1 a1 t1 -> a2", "s u1 a1 t9 -> a3"], "s u1 a1 t1 a2 t9 a3"),
    ):  # fmt: skip
        assert transcript_of(list(map(step, requests))) == messages(transcript), requests


def test_a_repeated_message_may_be_written_otherwise_but_other_text_calls_or_images_make_another():
    said = AssistantMessage(
        content=None, reasoning_content="Hm.", tool_calls=[ToolCall(id="c", name="f", arguments='{"a": 1, "b": 2}')]
    )
    sent = AssistantMessage(content="", tool_calls=[ToolCall(id="c", name="f", arguments='{"b":2,"a":1}')])
    asked = messages("s u1")
    again = [SystemMessage(content="s"), UserMessage(content=[{"type": "text", "text": "u1"}]), sent, *messages("t1")]
    first = {"prompt": asked, "completion": [said]}
    known = with_known_messages([first], again)
    assert [left is right for left, right in zip(known, [*asked, said, again[3]], strict=True)] == [True] * 4
    second = {"prompt": again, "completion": messages("a2")}
    assert transcript_of([first, second]) == [*asked, said, *messages("t1 a2")]
    said = {"content": "", "tool_calls": [ToolCall(id="c", name="f", arguments="{}")]}
    first = {"prompt": messages("u1"), "completion": [AssistantMessage(**said)]}
    for other in (
        {"content": "x"},
        {"tool_calls": [ToolCall(id="d", name="f", arguments="{}")]},
        {"tool_calls": [ToolCall(id="c", name="g", arguments="{}")]},
        {"tool_calls": [ToolCall(id="c", name="f", arguments='{"a": 1}')]},
    ):
        sent = AssistantMessage(**said | other)
        assert with_known_messages([first], [*messages("u1"), sent])[1] is sent
    one, two = (
        UserMessage(content=[{"type": "image_url", "image_url": {"url": url}}]) for url in ("data:,a", "data:,b")
    )
    first = {"prompt": [one], "completion": messages("a1")}
    second = {"prompt": [two], "completion": messages("a2")}
    assert transcript_of([first, second]) == [one, *messages("a1"), two, *messages("a2")]

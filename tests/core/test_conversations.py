"""A conversation as the web view shows it, and what is different between two texts."""

import time

import pytest


def turns(*arguments, **options):
    from nightjar.view.conversation import turns  # imports rich

    return turns(*arguments, **options)


def seen(turn):
    return [(passage.kind, passage.text) for passage in turn.passages]


def test_parts_are_shown_by_kind_and_only_images_that_are_in_the_message():
    parts = [
        {"type": "text", "text": "Look: $$x$$ and \\(y\\)"},
        {"image_url": {"url": "javascript:x(1)"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    [turn] = turns([{"role": "user", "content": parts}])
    assert [kind for kind, _ in seen(turn)] == ["markdown", "code", "note"]
    assert "javascript:" in seen(turn)[1][1]
    for url, kind in {
        "data:image/png;base64,AA==": "image",
        "data:image/webp;base64,AA==": "image",
        "data:image/svg+xml,<svg onload='alert(1)'/>": "note",
        "data:text/html,<script>alert(1)</script>": "note",
        "http://example.com/a.png": "link",
        "https://x/a.png": "link",
    }.items():
        for part in ({"image_url": {"url": url}}, {"image_url": url}):
            [turn] = turns([{"role": "user", "content": [part]}])
            assert [passage.kind for passage in turn.passages] == [kind]


def test_results_stand_at_their_call_and_messages_are_numbered():
    call = {"id": "1", "name": "add", "arguments": "{a"}
    said = [
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "2"}]},
        {"role": "tool", "tool_call_id": "1", "content": "4"},
        {"role": "tool", "tool_call_id": "9", "content": "5"},
    ]
    first, second = turns(said)
    assert [call.result and call.result[0].text for call in first.calls] == ["4", None]
    assert first.calls[0].short == [("", "{a")]
    assert (second.role, seen(second)) == ("tool", [("output", "5")])
    calls = [{"id": "1", "name": "add", "arguments": "{}"}, {"id": "2", "name": "sub", "arguments": "{}"}]
    said = [
        {"role": "assistant", "content": "So", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "2", "content": "second"},
        {"role": "tool", "tool_call_id": "1", "content": "first"},
        {"role": "assistant", "content": "Done"},
    ]
    first, last = turns(said, first=3)
    assert [(call.number, call.result[0].text) for call in first.calls] == [(5, "first"), (4, "second")]
    assert (first.number, last.number) == (3, 6)
    call = {"role": "assistant", "tool_calls": [{"id": "0", "name": "f"}]}
    one, two = ({"role": "tool", "tool_call_id": "0", "content": text} for text in ("one", "two"))
    assert [turn.calls[0].result[0].text for turn in turns([call, one, call, two])] == ["one", "two"]


@pytest.mark.slow
def test_no_text_takes_long():
    began = time.process_time()
    for nasty in ("`", "```", "```a", "\\[", "$$", "$$ ", " ", "\n"):
        turns([{"role": "assistant", "content": nasty * 1_000_000}])
    assert time.process_time() - began < 80


def test_what_is_shown_is_limited_and_what_is_no_conversation_is_shown_as_it_is():
    [*_, last] = turns([{"role": "user", "content": "x" * 100_000}] * 1_000)
    assert sum(len(passage.text + passage.rest) for passage in last.passages) < 5_000

    from markupsafe import escape

    for messages in (
        [{"role": "user", "content": "x"}] * 100_000,
        [{"role": "user", "content": [{"type": "text", "text": "<"}] * 100_000}],
        [{"role": "assistant", "tool_calls": [{"id": "1", "name": "x" * 100_000, "arguments": "[" * 200_000}] * 1000}],
        [{"role": "x" * 1_000_000, "content": [{"image_url": {"url": "data:image/png;base64," + "A" * 900_000}}] * 9}],
        [{"role": "user", "content": [{"image_url": {"url": "https://" + "a" * 9_000_000}}]}],
        [{"role": "user", "content": '"' * 200_000}] * 50,
        '"' * 2_000_000,
    ):
        shown = turns(messages)
        parts = [part for turn in shown for part in [*turn.passages, *(one for c in turn.calls for one in c.arguments)]]
        names = [name for turn in shown for name in (turn.role, *(call.name for call in turn.calls))]
        texts = [*names, *(passage.text + passage.rest for passage in parts)]
        assert sum(len(escape(text)) for text in texts) < 6_000_000
        assert len(texts) < 50_000
        assert [passage.kind for passage in shown[-1].passages][-1] == "note"

    from nightjar.view.conversation import plain_text

    for odd in (
        None, 1, "text", {}, {"role": None, "content": {"a": 1}}, [[1]], [None, "said", 2], [{"tool_calls": "x"}],
        [{"tool_calls": [1, {"id": [1], "arguments": 1}]}, {"role": "tool", "tool_call_id": [1], "content": 4}],
        [{"thinking_blocks": [1, {"thinking": 2}], "content": [None, 1, {"text": 3}]}],
    ):  # fmt: skip
        shown = turns(odd)
        assert all(isinstance(part.text, str) for turn in shown for part in [*turn.passages, *turn.reasoning])
        assert isinstance(plain_text(odd), str)


def test_the_outline_has_the_first_words_and_the_copied_text_is_what_was_written_with_calls():
    said = {"role": "assistant", "content": " First\n words", "tool_calls": [{"id": "1", "name": "add"}]}
    [spoken, silent] = turns([said, {**said, "content": None}])
    assert (spoken.words, silent.words) == ("First words", "add")

    from nightjar.view.conversation import plain_text, raw_text

    parts = [{"type": "text", "text": "a\u202e**b**"}, {"image_url": {"url": "data:image/png;base64,AA=="}}]
    call = {"id": "1", "name": "add", "arguments": '{"x": 1}'}
    said = {"role": "assistant", "content": parts, "tool_calls": [call]}
    assert raw_text(said) == 'a\u202e**b**\nadd({"x": 1})'
    assert raw_text({"role": "tool", "content": "\x1b[31mred"}) == "\x1b[31mred"
    said = [{"role": "assistant", "content": "So", "tool_calls": [call]}, {"role": "tool"}]
    plain = [plain_text(given) for given in (said, "text", None)]
    assert plain == ['So\nadd({"x": 1})\n\n', "text", ""]

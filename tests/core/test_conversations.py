"""A conversation as the web view shows it, and what is different between two texts."""

import time

import pytest
from markupsafe import escape

from nightjar.view.conversation import plain_text, turns
from nightjar.view.diffs import word_difference


def seen(turn):
    return [(passage.kind, passage.text) for passage in turn.passages]


def test_parts_are_shown_by_kind_and_only_images_that_are_in_the_message():
    parts = [
        {"type": "text", "text": "Look: $$x$$ and \\(y\\)"},
        *({"image_url": {"url": url}} for url in ("data:image/png;base64,AA==", "https://x/a.png", "javascript:x(1)")),
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]
    [turn] = turns([{"role": "user", "content": parts}])
    assert [kind for kind, _ in seen(turn)] == ["markdown", "image", "link", "code", "note"]
    assert "javascript:" in seen(turn)[3][1]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("data:image/webp;base64,AA==", "image"),
        ("data:image/svg+xml,<svg onload='alert(1)'/>", "note"),
        ("data:text/html,<script>alert(1)</script>", "note"),
        ("http://example.com/a.png", "link"),
    ],
)
def test_an_image_is_shown_where_it_holds_nothing_but_pixels(url, kind):
    for part in ({"image_url": {"url": url}}, {"image_url": url}):
        [turn] = turns([{"role": "user", "content": [part]}])
        assert [passage.kind for passage in turn.passages] == [kind]


def test_a_result_stands_at_its_call_and_one_without_a_call_by_itself():
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


@pytest.mark.slow
@pytest.mark.parametrize("nasty", ["`", "```", "```a", "\\[", "$$", "$$ ", " ", "\n"])
def test_no_text_takes_long(nasty):
    began = time.process_time()
    turns([{"role": "assistant", "content": nasty * 1_000_000}])
    assert time.process_time() - began < 10


def test_a_long_conversation_shows_less_of_each_message():
    [*_, last] = turns([{"role": "user", "content": "x" * 100_000}] * 1_000)
    assert sum(len(passage.text + passage.rest) for passage in last.passages) < 5_000


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "x"}] * 300_000,
        [{"role": "user", "content": [{"type": "text", "text": "<"}] * 300_000}],
        [{"role": "assistant", "tool_calls": [{"id": "1", "name": "x" * 100_000, "arguments": "[" * 200_000}] * 1000}],
        [{"role": "x" * 1_000_000, "content": [{"image_url": {"url": "data:image/png;base64," + "A" * 900_000}}] * 9}],
        [{"role": "user", "content": [{"image_url": {"url": "https://" + "a" * 9_000_000}}]}],
        [{"role": "user", "content": '"' * 200_000}] * 50,
        '"' * 10_000_000,
    ],
)
def test_what_is_shown_does_not_grow_with_what_is_said(messages):
    shown = turns(messages)
    parts = [part for turn in shown for part in [*turn.passages, *(one for c in turn.calls for one in c.arguments)]]
    names = [name for turn in shown for name in (turn.role, *(call.name for call in turn.calls))]
    texts = [*names, *(passage.text + passage.rest for passage in parts)]
    assert sum(len(escape(text)) for text in texts) < 6_000_000
    assert len(texts) < 50_000
    assert [passage.kind for passage in shown[-1].passages][-1] == "note"


@pytest.mark.parametrize(
    "odd",
    [None, 1, "text", {}, {"role": None, "content": {"a": 1}}, [[1]], [None, "said", 2], [{"tool_calls": "x"}],
     [{"tool_calls": [1, {"id": [1], "arguments": 1}]}, {"role": "tool", "tool_call_id": [1], "content": 4}],
     [{"thinking_blocks": [1, {"thinking": 2}], "content": [None, 1, {"text": 3}]}]],
)  # fmt: skip
def test_what_is_no_conversation_is_shown_as_it_is(odd):
    shown = turns(odd)
    assert all(isinstance(part.text, str) for turn in shown for part in [*turn.passages, *turn.reasoning])
    assert isinstance(plain_text(odd), str)


def test_a_difference_is_of_words_and_bounded():
    difference = word_difference("one two three", "one 2 three four")
    assert [(change.kind, change.text) for change in difference.changes] == [
        ("same", "one"), ("gone", " two"), ("new", " 2"), ("same", " three"), ("new", " four")
    ]  # fmt: skip
    long = "word " * 100_000
    cut = word_difference(long, "other" * 1_000_000)
    assert (difference.is_whole, cut.is_whole) == (True, False)
    assert sum(len(change.text) for change in cut.changes) < 200_000


def test_plain_text_has_calls_too():
    call = {"id": "1", "name": "add", "arguments": '"2"'}
    said = [{"role": "assistant", "content": "So", "tool_calls": [call]}, {"role": "tool"}]
    assert [plain_text(given) for given in (said, "text", None)] == ['So\nadd("2")\n\n', "text", ""]

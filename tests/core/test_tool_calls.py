"""Tool calls and JSON as the web view shows them."""

import json
import re
import time
from types import SimpleNamespace

import pytest

HOSTILE = "<script>document.title = 'taken'</script>\u202e"


@pytest.fixture(scope="module")
def view():
    """The functions of the view that these tests use; they import a lot."""
    from nightjar.view import json_trees, passages, room, tool_calls

    return SimpleNamespace(**vars(json_trees) | vars(passages) | vars(room) | vars(tool_calls))


@pytest.fixture
def shown(view):
    def shown(name, arguments, result=None):
        call = {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}
        return view.read_call(call, None if result is None else {"content": result}, view.Room())

    return shown


def text_of(html):
    return " ".join(re.sub(r"<[^>]*>", " ", str(html)).split())


def test_arguments_are_lines_texts_trees_or_code_in_its_language(shown):
    call = shown("mail", {"to": "ada", "copy": False, "tags": ["a", 1], "body": "Dear Ada,\n\nyes.", "long": "x" * 90})
    assert call.short == [("to", '"ada"'), ("copy", "false"), ("tags", '["a", 1]')]
    assert [(part.label, part.text) for part in call.arguments] == [("body", "Dear Ada,\n\nyes."), ("long", "x" * 90)]
    [rows] = shown("insert", {"rows": [{"name": f"row {number}", "ok": True} for number in range(9)]}).arguments
    assert (rows.kind, rows.label) == ("json", "rows")
    for arguments in ("{not json", "5", "[1]"):
        assert shown("f", arguments).short == [("", arguments)]
    for arguments in ("null", "", "{}"):
        assert shown("f", arguments).short == []
    for tool, arguments, languages in (
        ("python", {"code": "1 + 1"}, ["python"]), ("bash", {"cmd": "ls"}, ["bash"]),
        ("bash", {"code": "ls"}, ["bash"]), ("run", {"sql": "SELECT 1"}, ["sql"]),
        ("write", {"path": "a/b.rs", "text": "fn\n"}, ["rs"]), ("write", {"path": "README", "text": "a\n"}, [""]),
        ("say", {"text": "a\nb"}, [""]), ("python", {"code": 1}, []),
    ):  # fmt: skip
        assert [part.language for part in shown(tool, arguments).arguments] == languages


def test_a_result_is_output_or_a_tree_and_may_have_images(shown):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    parts = [{"type": "text", "text": "\x1b[31mred"}, image, {"type": "text", "text": json.dumps(list(range(90)))}]
    result = shown("f", {}, parts).result
    assert [part.kind for part in result] == ["output", "image", "json"]
    assert result[0].screen.shown == '<span class="f1">red</span>'
    assert shown("f", {}).result is None


def test_columns_short_values_and_trees_are_recognised_and_deep_json_ends_with_a_note(view):
    columns = {
        "+----+---+\n| id | n |\n+----+---+": True, "id  name\n1   Ada\n22  Bob": True, "│ a │\n│ b │": True,
        "id | name\n---+-----\n 1 | Ada": True, "one line  only": False, "Prose.\nTwo lines.": False, "": False,
    }  # fmt: skip
    assert {output: view.is_aligned(output) for output in columns} == columns
    assert list(map(view.short_json, ["a", {"a": [1]}, "a\nb", "x" * 80])) == ['"a"', '{"a": [1]}', None, None]
    for text in (
        "",
        "text",
        "{",
        "[1, 2",
        "5",
        "null",
        "{}",
        "[]",
        "{'a': 1}",
        "[" * 9_000 + "]" * 9_000,
        f"[{'9' * 5_000}]",
    ):
        assert view.parse_container(text, view.Room()) is None
    found = 1
    for _ in range(60):
        found = {"name": found, "a long name that fills the line": "x" * 60}
    assert "deeper than 30 levels; see the raw JSON" in text_of(view.tree(found, view.Room()))


def test_a_tree_has_every_value_folds_and_is_never_html(view):
    found = {"id": 7, "name": "Ada", "ok": True, "none": None, "text": "a\nb", "items": [{"x": 1}, list(range(50))]}
    html = view.tree(found, view.Room())
    assert text_of(html).startswith(
        "6 keys id 7 name Ada ok true none null text a b items 2 items 0 {&#34;x&#34;: 1} 1 50 items"
    )
    assert html.count("<details open>") == 2
    assert "10 more" in text_of(html)
    found = {HOSTILE: [HOSTILE, {"a": HOSTILE}], "text": f"{HOSTILE}\n" * 200}
    html = str(view.tree(found, view.Room()))
    assert "<script" not in html
    assert "\u202e" not in html
    assert html.count("[U+202E]") == 203


@pytest.mark.parametrize(
    "make",
    [lambda: {"rows": [{"id": number, "tags": ["a", "b"]} for number in range(25_000)]}, lambda: list(range(30_000)),
     lambda: [["x" * 1_000] * 100] * 100, lambda: {str(number): {} for number in range(30_000)},
     lambda: ["<" * 3_000_000], lambda: [{"a" * 1_000: {"b": ["\n" * 10] * 10}}] * 5_000],
)  # fmt: skip
def test_a_large_tree_is_bounded_and_quick(view, make):
    text = json.dumps(make())
    room, began = view.Room(), time.process_time()
    [passage] = view.output_passages(text, room)
    assert time.process_time() - began < 10
    assert len(passage.html or passage.screen.shown) < 2_500_000
    assert str(passage.html).count("<div>") <= view.MOST_VALUES + 1
    assert "see the raw JSON" in (passage.html or str(passage.screen.left_out and "see the raw JSON"))


def test_many_trees_stay_within_the_room_of_a_conversation(view):
    room, text = view.Room(100), json.dumps([{"id": number, "name": "a name"} for number in range(1_500)])
    shown = [part for _ in range(100) for part in view.output_passages(text, room)]
    assert sum(len(part.html) for part in shown if part.html) < 3_000_000
    assert {part.kind for part in shown} == {"json", "output"}

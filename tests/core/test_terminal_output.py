"""The output of programs as the web view shows it, and the files of a diff."""

import time

import pytest
from drawing import drawn
from late import late

terminal, diffs = late("nightjar.view.terminal", "nightjar.view.diffs")


def test_text_and_colours_are_what_a_terminal_shows():
    texts = {
        "a\r\nb\n": "a\nb", "abcdef\rxy": "xycdef", "50 %\r\x1b[K7 %": "7 %", "abc\x1b[2Kd": "d",
        "abc\x1b[1Gx": "xbc", "ab\bc": "ac", "\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\": "ab",
        "\x1b[9999za\x1b[?25lb\x1b(Bc\x1bPq\x1b\\d\x1b": "abcd", f"\x1b[{'1' * 5_000}ma\x1b[²mb": "a²mb",
    }  # fmt: skip
    assert {output: "".join(piece.text for piece in terminal.pieces(output)) for output in texts} == texts
    looks = {
        "1;31": "f1 bold", "92": "f10", "30;47": "f0 g7", "38;5;208": "f208", "48;5;17": "g17",
        "38;2;255;0;0": "f196", "48;2;0;0;255": "g21", "7": "fpaper gink", "7;32;41": "f1 g2",
        "3;4;9;2": "dim italic underline strike", "38": "", "999": "", "31;0": "", "31;39": "", "8": "",
    }  # fmt: skip
    assert {code: [piece.look for piece in terminal.pieces(f"\x1b[{code}mx")] for code in looks} == {
        code: [look] for code, look in looks.items()
    }
    assert terminal.pieces("\x1b[31ma\nb\x1b[0mc") == [("a\nb", "f1"), ("c", "")]
    assert terminal.pieces("\x1b[31mabc\r\x1b[32mx") == [("x", "f2"), ("bc", "f1")]


def test_output_is_never_html():
    shown = terminal.screen("<script>\x1b[31m\"<img src=x onerror='a'>\x1b]8;;javascript:x\x07\u202e").shown
    assert shown == '&lt;script&gt;<span class="f1">&#34;&lt;img src=x onerror=&#39;a&#39;&gt;[U+202E]</span>'


def test_long_output_is_folded_at_a_line_and_shows_its_beginning_or_end():
    output = "".join(f"line {number}\n" for number in range(1_000))
    first, last = terminal.screen(output), terminal.screen(output, shows_end=True)
    assert (first.shown.splitlines()[0], first.shown.splitlines()[-1]) == ("line 0", "line 19")
    assert (last.shown.splitlines()[0], last.shown.splitlines()[-1]) == ("line 980", "line 999")
    assert first.shown + first.folded == last.folded + last.shown == output.rstrip("\n")
    huge = terminal.screen("x" * 1_000_000)
    assert (len(huge.shown), huge.folded_length, huge.left_out) == (4_000, 196_000, 800_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "nasty",
    drawn(["x", "\n", "\r", "\x1b", "\x1b[", "\x1b[1", "\x1b]", "\x1b[m", "\x1b[7mx\x1b[mx", "xy\b\x1b[2K",
           "x" * 1000 + "\b", "\x1b[38;2;1;2;3mx\r", "\x1b[Kab\x1b[1G"], 5),
)  # fmt: skip
def test_a_megabyte_of_any_output_is_quick_and_makes_a_page_of_bounded_size(nasty):
    began = time.process_time()
    shown = terminal.screen(nasty * (1_000_000 // len(nasty)))
    assert time.process_time() - began < 30
    assert len(shown.shown) + len(shown.folded) < 2_500_000


DIFF = """diff --git a/x.py b/x.py
--- a/x.py
+++ b/x.py
@@ -1,3 +1,3 @@
 a
--- old
+++ new
 c
--- /dev/null
+++ b/added file
@@ -0,0 +1 @@
+hello
diff --git a/y.png b/y.png
Binary files a/y.png and b/y.png differ
"""


def test_a_diff_is_split_into_files_and_what_is_no_diff_shown_as_it_is():
    files = diffs.changed_files(DIFF)
    assert [(file.name, file.added, file.removed) for file in files] == [
        ("x.py", 1, 1), ("added file", 1, 0), ("y.png", 0, 0)
    ]  # fmt: skip
    assert [lines.kind for lines in files[0].lines] == ["head", "same", "gone", "new", "same"]
    assert "\n".join(lines.text for file in files for lines in file.lines) == DIFF.rstrip("\n")
    for odd in ("text", "@@ -1,9999999999 +1 @@\n+x", "--- a", "+++\n", "\n" * 100, "+" * 1_000_000):
        [file] = diffs.changed_files(odd)
        assert "\n".join(lines.text for lines in file.lines) == odd.rstrip("\n")[:200_000]

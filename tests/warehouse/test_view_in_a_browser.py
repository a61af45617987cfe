"""The web view in a real browser: every page, every choice, keys, deep links, phones, and what a screen reader finds.

Each test fails, too, where the browser complains in its console, or is refused what a page asks for.
"""

import json
import os
import re
from contextlib import closing
from datetime import UTC, datetime
from subprocess import PIPE
from urllib.parse import parse_qs, urlsplit

import pytest

from nightjar.analysis import judge_night
from nightjar.core.process_ids import process_host
from nightjar.view import runs, samples
from nightjar.view.server import Access
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import NOTES, Night, NightEvaluation, Note

axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra 'dev'")
pytestmark = [pytest.mark.slow, pytest.mark.long]
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
OUTPUT = f"\x1b[31m{HOSTILE}\x1b[0m\x1b[1;92;41mhigh\x1b[0m\n1 %\r2 %\x1b[9999z\x1b]0;title\x07" + "y" * 1_000_000
AGENT = {
    "completion": [
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "name": "bash", "arguments": json.dumps({"command": HOSTILE, "timeout": 5})}
        ]},
        {"role": "tool", "tool_call_id": "1", "content": OUTPUT},
    ],
    "agent_steps": [{"turn": 0, "tool": "bash", "seconds": 1.5, "exit_code": 1}],
    "agent_log": OUTPUT,
    "verifier_log": "test \x1b[32mPASSED\x1b[0m\n" * 1_000,
    "verifier_seconds": 2.5,
    "changed_files": f"--- a/{HOSTILE}\n+++ b/{HOSTILE}\n@@ -1 +1 @@\n-{HOSTILE}\n+{HOSTILE}\n",
    "artifacts": [{"path": HOSTILE + "/page.html", "file": "artifacts/page.html", "bytes": 100}],
    "image_digest": HOSTILE,
    "task_name": HOSTILE,
}  # fmt: skip
"""A hostile rollout of an agent."""
RESULTS = (
    "+----+------+\n| id | name |\n+----+------+\n|  1 | Ada  |", json.dumps({"rows": list(range(90))}),
    "\x1b[32mdone\x1b[0m", "line\n" * 90 + "the needle", HOSTILE,
    [{"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="}}],
)  # fmt: skip
TOOLS = [
    message
    for number, result in enumerate(RESULTS)
    for message in (
        {"role": "assistant", "content": f"Step **{number}**.", "tool_calls": [
            {"id": str(number), "name": "query", "arguments": json.dumps({"sql": f"SELECT {number}\nFROM t", "n": 5})}
        ]},
        {"role": "tool", "tool_call_id": str(number), "content": result},
    )
] + [{"role": "assistant", "content": json.dumps({"answer": "4", "steps": list(range(60))})}]  # fmt: skip
"""A long conversation with tools: messages 2 to 14."""
LARGE = "large/" + "a-name-as-long-as-none-should-be-" * 4
KEYS = [(example, index) for example in range(4) for index in (0, 1)]
PAGES = (
    "/", "/?group=model", "/?q=nothing", "/runs/after", "/runs/running", "/runs/after/samples",
    "/runs/after/samples?where=nonsense", "/runs/after/0/0",
    "/runs/after/0/1?beside=after", "/runs/after/1/1", "/runs/after/1/1?beside=before", "/runs/after/3/1",
    "/runs/running/0/0", "/runs/running/1/0",
    "/runs/after/samples?by=rollout", "/samples?run=before&run=after", "/rollouts", "/rollouts?most=0.5",
    "/?columns=suite&columns=tags&columns=tokens",
    "/search?q=4", "/compare", "/compare?run=before&run=after", "/compare?run=before&run=after&run=large", "/history",
    "/history?env=gsm8k", "/nights", "/nights?suite=nightly&night=2026-11-22", "/sql",
    "/sql?q=leaderboard&chart=bars", "/notes",
)  # fmt: skip
CUT = """
[...document.querySelectorAll(".scroll")].filter(
    each => each.scrollWidth > each.clientWidth + 1 && !each.closest(".sql")
).map(each => each.innerText)
"""
"""Tables that are wider than their place; answers of SQL may be."""
UNSEEN = """
[...document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex='0']")].filter(each => {
    each.focus();
    return each === document.activeElement && getComputedStyle(each).outlineStyle === "none";
}).map(each => each.outerHTML)
"""
"""What a page has that can be used by keys, and does not show it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run_writer):
    """A warehouse of three runs, one of them of a night, and a fourth run that is under way."""
    folder = tmp_path_factory.mktemp("view")
    warehouse = Warehouse(folder / "warehouse")
    one = run_writer.rollout
    right = [one(0, 0, 1.0, completion=TOOLS), *(one(example, index, 1.0) for example, index in KEYS[1:])]
    hostile = {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": HOSTILE}]}
    slow = {"timing": {"generation_ms": 9e6, "scoring_ms": 0.0, "total_ms": 9e6}}
    long = {"is_truncated": True, "token_usage": {"input_tokens": 1, "output_tokens": 9999}}
    mixed = [*right[:2], one(1, 0, 1.0, **hostile), one(1, 1, 0.0, **hostile), one(2, 0, 0.0, **slow), one(2, 1, 0.0),
             one(3, 0, 1.0, **long), run_writer.failed(3, 1)]  # fmt: skip
    night = {"env_id": "math", "model": LARGE, "suite": "nightly", "tags": ["night:2026-11-22", "fast"]}
    for day, run_id, rollouts, told in (
        (20, "before", right, {"model": "small", "avg_reward": 1.0, "coverage": 0.8, "time_ms": 2.0}),
        (21, "after", mixed, {"model": "small", "avg_reward": 0.5, "coverage": 0.7, "time_ms": 1.0}),
        (22, "large", right, {**night, "status": "completed", "avg_reward": 0.7, "coverage": 0.9, "time_ms": 3.0}),
    ):
        started = {"run_id": run_id, "started_at": f"2026-11-{day}T02:00:00Z"}
        warehouse.publish(run_writer.write(folder / run_id, rollouts, **told, **started), tidies=False)
    evaluations = [NightEvaluation("math", "missing", "math", LARGE)]
    warehouse.write_night(judge_night(warehouse, Night("nightly", "2026-11-22", "running", evaluations=evaluations)))
    written_at = datetime(2026, 11, 22, tzinfo=UTC)
    warehouse.write_rows(NOTES, [Note("first", "after", 2, 0, "interesting", "somebody", written_at)])
    running = folder / "outputs" / "evals" / "gsm8k--small" / "running"
    agent = one(0, 0, 1.0, **AGENT)
    told = {"run_id": "running", "status": "running", "state_columns": list(AGENT)[1:]}
    run_writer.write(running, [agent], [run_writer.attempt(0, 0)], **told)
    (running / ".lock").write_text(f"process {os.getpid()} on {process_host()}")
    (running / "artifacts").mkdir()
    (running / "artifacts" / "page.html").write_text(HOSTILE)
    (running / "live").mkdir()
    tell_live(folder, {"kind": "message", "text": HOSTILE}, {"kind": "command", "text": HOSTILE})
    tell_live(folder, {"kind": "output", "text": OUTPUT, "seconds": 1.5, "exit_code": 1})
    return folder


def tell_live(folder, *events):
    """Adds events of a rollout in progress, and a line that is no UTF-8."""
    with (folder / "outputs/evals/gsm8k--small/running/live/1-0.jsonl").open("ab") as file:
        file.writelines(json.dumps({"at": 1e9} | event).encode() + b"\n" for event in events)
        file.write(b'{"at": 1e9, "kind": "output", "text": "\xff"}\n')


@pytest.fixture(scope="module")
def address(serve, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        command_of = lambda config: ["nightjar", "eval", "run", config.env_id]  # noqa: E731
        with serve(Warehouse("warehouse"), Access(), command_of) as found:
            yield found


@pytest.fixture
def blank(chromium):
    """A page that fails its test if the browser reports an error."""
    with closing(chromium.new_context()) as context:
        opened, complaints = context.new_page(), []
        opened.set_default_timeout(30_000)
        opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("requestfailed", lambda asked: complaints.append(f"{asked.failure}: {asked.url}"))
        opened.on("response", lambda given: complaints.append(given.url) if is_missing(given) else None)
        yield opened
        # what a page still asks for ends when it is left; a refusal is among the responses
        usual = ("net::ERR_ABORTED", "Failed to load resource")
        assert [each for each in complaints if not each.startswith(usual)] == []


@pytest.fixture
def page(blank, address):
    blank.goto(address)
    return blank


def is_missing(response):
    return response.status >= 400 and response.request.resource_type != "document"


def visit(page, path):
    return page.goto(f"http://{urlsplit(page.url).netloc}{path}").status


def rows(page):
    page.wait_for_load_state()
    return page.locator("a[data-row]").all_inner_texts()


def assert_is_for_everybody(page):
    """Checks that a page fits a phone, works with a screen reader and shows the focus, in light and dark mode."""
    page.set_viewport_size({"width": 375, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    for scheme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)
        found = axe.Axe().run(page, options=options).response["violations"]
        bad = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]
        assert bad == []
    page.keyboard.press("Tab")  # from here on the browser shows the focus
    assert page.evaluate(UNSEEN) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible(page, path):
    assert visit(page, path) == 200
    assert "taken" not in page.title()
    assert_is_for_everybody(page)
    for width in (1024, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT) == []


@pytest.mark.parametrize(("path", "status"), [("/runs/none", 404), ("/runs/after/9/9", 404), ("/nowhere", 404)])
def test_an_error_page_is_accessible(page, path, status):
    assert visit(page, path) == status
    assert_is_for_everybody(page)


RUNS = [
    ("q", "LARGE", ["large"]), ("env", "math", ["large"]), ("model", "small", ["after", "before"]),
    ("suite", "nightly", ["large"]), ("status", "incomplete", ["after", "before"]),
    ("sort", "reward", ["before", "large", "after"]), ("sort", "cost", ["after", "before", "large"]),
    ("sort", "time", ["large", "before", "after"]), ("sort", "coverage", ["after", "before", "large"]),
    ("sort", "started", ["large", "after", "before"]), ("sort", "environment", ["after", "before", "large"]),
    ("sort", "model", ["large", "after", "before"]), ("sort", "status", ["large", "after", "before"]),
    ("sort", "examples", ["after", "before", "large"]), ("sort", "failed", ["after", "before", "large"]),
    ("sort", "tokens", ["after", "before", "large"]), ("group", "environment", ["after", "before", "large"]),
    ("group", "model", ["large", "after", "before"]), ("group", "suite", ["large", "after", "before"]),
    ("group", "night", ["large", "after", "before"]),
]  # fmt: skip
SAMPLES = [
    ("q", "taken", ["0", "1"]), ("where", "total_ms > 1e6 AND reward = 0", ["2"]), ("against", "before", ["2"]),
    ("show", "wrong", ["1", "2"]), ("show", "right", ["0", "1", "3"]), ("show", "failed", ["3"]),
    ("show", "flaky", ["1"]), ("show", "truncated", ["3"]), ("show", "noted", ["2"]),
    *(("show", ended, []) for ended in ("filtered", "timed out", "empty")),
    ("sort", "worst", ["2", "1", "0", "3"]), ("sort", "best", ["0", "3", "1", "2"]),
    ("sort", "spread", ["1", "0", "2", "3"]), ("sort", "longest", ["3", "0", "1", "2"]),
    ("sort", "slowest", ["2", "0", "1", "3"]), ("sort", "example", ["0", "1", "2", "3"]),
]  # fmt: skip


def test_every_choice_lists_its_rows(folder, browse):
    view, tried = browse(Warehouse(folder / "warehouse")), {}
    for path, choices in (("/", RUNS), ("/runs/after/samples", SAMPLES)):
        for name, value, expected in choices:
            told = view.get(path, params={name: value}).text
            assert re.findall(r"<a [^>]*data-row[^>]*>\s*([^<]*?)\s*<", told) == expected, (name, value)
            tried.setdefault((path, name), set()).add(value)
    assert (tried["/", "sort"], tried["/", "group"]) == (runs.SORTS.keys(), runs.GROUPS.keys())
    of_samples = [tried["/runs/after/samples", name] for name in ("sort", "show")]
    assert of_samples == [samples.SORTS.keys(), samples.KINDS.keys()]


@pytest.mark.parametrize(("path", "name", "value", "expected"), [
    ("/", "q", "LARGE", ["large"]), ("/", "sort", "time", ["large", "before", "after"]),
    ("/runs/after/samples", "where", "total_ms > 1e6 AND reward = 0", ["2"]),
    ("/runs/after/samples", "show", "wrong", ["1", "2"]),
])  # fmt: skip
def test_a_filter_changes_rows_and_address_and_the_back_button_undoes_it(page, path, name, value, expected):
    visit(page, path)
    everything, field = rows(page), page.locator(f"[name={name}]")
    if field.evaluate("field => field.matches('select')"):
        field.select_option(value)
    else:
        field.fill(value)
        field.press("Enter")
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query).get(name) == [value])
    assert rows(page) == expected
    address = page.url
    page.go_back()
    assert rows(page) == everything
    page.goto(address)
    assert (rows(page), field.input_value()) == (expected, value)


GROUND = "getComputedStyle(document.body).backgroundColor"
AT_FIRST = """
new MutationObserver(() => {
    if (document.body) window.atFirst ??= document.documentElement.dataset.theme;
}).observe(document, { childList: true, subtree: true });
"""
"""Keeps the colours that a page has when its body begins, before anything of it is painted."""


def test_the_colours_that_a_reader_chooses_are_kept_and_painted_from_the_start(page):
    page.add_init_script(AT_FIRST)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(GROUND)
    page.get_by_role("button", name="Colours: Auto").click()
    page.get_by_role("button", name="Colours: Light").press("Enter")
    page.get_by_role("button", name="Colours: Dark").wait_for()
    dark = page.evaluate(GROUND)
    assert dark != light
    visit(page, "/nights")
    assert (page.evaluate(GROUND), page.evaluate("atFirst")) == (dark, "dark")
    page.get_by_role("button", name="Colours: Dark").click()
    assert page.evaluate(GROUND) == light  # of the system again
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(GROUND) == dark
    assert page.evaluate("document.querySelector('.brand img').naturalWidth") > 0


def test_typing_searches_at_once(page):
    visit(page, "/?sort=reward")
    page.get_by_label("Search").press_sequentially("larg")
    page.wait_for_url("**/?q=larg&sort=reward")
    assert rows(page) == ["large"]
    visit(page, "/runs/after/samples")
    page.get_by_label("Search").press_sequentially("taken")
    page.wait_for_url("**/samples?q=taken&by=example&sort=example")
    assert rows(page) == ["0", "1"]


def test_ticked_runs_stay_ticked_on_other_pages(page):
    visit(page, "/?q=after")
    page.get_by_label("Compare after").check()
    visit(page, "/?q=before")
    page.get_by_text("and 1 on other pages").wait_for()
    page.get_by_label("Compare before").check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?run=before&run=after")
    visit(page, "/")
    assert page.locator("[name=ticked]:checked").count() == 0


def test_chosen_columns_are_in_the_address_and_stay_on_other_visits(page):
    visit(page, "/?model=small")
    page.get_by_text("Columns", exact=True).press("Enter")
    page.get_by_label("suite", exact=True).press("Space")
    page.wait_for_url("**/?model=small&**columns=suite")
    assert page.get_by_role("columnheader", name="Suite").is_visible()
    assert page.evaluate("document.activeElement.value") == "suite"
    page.keyboard.press("Escape")
    assert page.get_by_label("suite", exact=True).is_hidden()
    visit(page, "/runs/after")
    visit(page, "/?sort=reward")
    page.wait_for_url("**/?sort=reward&**columns=suite")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("link", name="Usual columns").click()
    page.wait_for_url("**/?sort=reward")
    assert page.get_by_role("columnheader", name="Suite").count() == 0


def test_choices_act_in_a_browser_that_permits_no_storage(page):
    page.add_init_script("""
        for (const kind of ["localStorage", "sessionStorage"])
            Object.defineProperty(window, kind, {get() { throw new DOMException("refused", "SecurityError"); }});
    """)
    visit(page, "/")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("suite", exact=True).check()
    page.wait_for_url("**/?columns=**suite")
    page.get_by_role("button", name="Colours: Auto").click()
    assert page.locator("html[data-theme=light]").count() == 1
    page.get_by_label("Compare before").check()
    page.get_by_label("Compare after").check()
    page.get_by_role("button", name="Compare selected runs").click()
    page.wait_for_url("**/compare?**")


def test_wrong_answers_are_stepped_through(page):
    visit(page, "/runs/after/samples?show=wrong&sort=worst")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/after/2/0?show=wrong&sort=worst")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/runs/after/1/1?show=wrong&sort=worst")
    page.get_by_text(HOSTILE).first.wait_for()
    page.get_by_role("link", name="These samples").click()
    page.wait_for_url("**/runs/after/samples?show=wrong&sort=worst")
    page.go_back()
    page.wait_for_url("**/runs/after/1/1?show=wrong&sort=worst")


def test_a_tag_leads_to_the_runs_that_have_it(page):
    visit(page, "/runs/large")
    page.get_by_role("link", name="fast").click()
    page.wait_for_url("**tag=fast")
    assert rows(page) == ["large"]


def test_keys_lead_through_runs_samples_and_rollouts(page):
    for key in "jjkj":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/after")
    visit(page, "/runs/after/samples")
    page.keyboard.press("/")
    page.keyboard.type("jk/?")  # what is typed is no key
    assert page.get_by_role("searchbox").input_value() == "jk/?"
    visit(page, "/runs/after/samples")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    keys.get_by_role("button", name="Close").click()
    keys.wait_for(state="hidden")
    page.locator("dialog:not(:has(:focus))").wait_for(state="attached")  # a frame later than it is hidden
    for key in ("j", "j", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**/runs/after/1/1")  # the wrong one of its rollouts
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/runs/after/2/0")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/runs/after/1/1")


def test_ticked_runs_are_compared(page):
    for run in ("before", "after"):
        page.get_by_label(f"Compare {run}").check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?run=before&run=after")
    page.get_by_text("Broken: 1 example").wait_for()
    page.get_by_label("Tolerated drop").fill("2")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**max_drop=2**")
    page.locator("h1", has_text="PASS").wait_for()


def test_a_query_is_run_drawn_and_kept_in_the_address(page):
    visit(page, "/sql")
    page.get_by_label("A query").fill("SELECT run_id, avg_reward FROM runs ORDER BY run_id")
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/sql?q=SELECT**")
    page.get_by_role("button", name="Bars").click()
    page.wait_for_url("**chart=bars**")
    assert page.reload().status == 200
    assert page.get_by_role("img").count() == 1
    assert page.locator("main td a").all_inner_texts() == ["after", "before", "large"]


def test_a_note_is_kept_and_shown(page):
    visit(page, "/runs/after/1/0")
    page.get_by_text("Add a note").click()
    page.get_by_label("Your name").fill("somebody")
    page.get_by_label("Comment").fill("odd wording")
    page.get_by_role("button", name="Note").click()
    page.get_by_text("odd wording").wait_for()
    visit(page, "/notes")
    assert "odd wording" in page.inner_text("main")
    assert_is_for_everybody(page)


def test_a_rollout_in_progress_is_followed_and_its_artifacts_are_saved(page, folder):
    visit(page, "/runs/running/0/0")
    assert (
        page.locator(".terminal .f10.g1.bold").first.evaluate("each => getComputedStyle(each).color")
        == "rgb(141, 219, 140)"
    )
    with page.expect_download() as saving:
        page.get_by_role("link", name="page.html").click()
    assert (saving.value.suggested_filename, saving.value.path().read_text()) == ("page.html", HOSTILE)
    visit(page, "/runs/running/1/0")
    page.wait_for_load_state()
    tell_live(folder, {"kind": "command", "text": "make test"})
    page.locator(".terminal .line", has_text="make test").wait_for()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    tell_live(folder, {"kind": "output", "text": "\x1b[32mall right\x1b[0m"})
    page.locator(".terminal .f2", has_text="all right").wait_for()
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY") < 2
    assert "taken" not in page.title()


def test_a_run_in_progress_is_followed_until_it_is_published(page, folder, run_writer):
    running = folder / "outputs" / "evals" / "gsm8k--small" / "running"
    visit(page, "/runs/running")
    assert "1 of 4" in page.inner_text("main")
    run_writer.write(running, run_writer.rollouts[:2], run_id="running", status="running")
    page.get_by_text("2 of 4").wait_for()
    run_writer.write(running, run_id="running", status="incomplete")
    Warehouse(folder / "warehouse").publish(running, tidies=False)
    page.get_by_role("heading", name="Numbers").wait_for()


@pytest.mark.parametrize("rollout", ["after/1/1", "running/0/0"])
def test_a_conversation_is_wider_than_its_score(page, rollout):
    page.set_viewport_size({"width": 1200, "height": 900})
    visit(page, f"/runs/{rollout}")
    talk, score = (page.locator(f"section[aria-labelledby={name}]").bounding_box() for name in ("talk", "score"))
    assert (talk["x"] + talk["width"] <= score["x"], talk["y"] <= score["y"]) == (True, True)
    assert talk["width"] > score["width"]


@pytest.mark.parametrize("is_granted", [True, False])
def test_the_text_of_a_message_and_its_link_are_copied(page, is_granted):
    if is_granted:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    else:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    visit(page, "/runs/after/0/0")
    page.get_by_role("button", name="Copy message 3").click()
    page.locator("#m3 button", has_text="Copied").wait_for()
    assert pasted(page) == RESULTS[0]
    page.get_by_role("link", name="Link to message 4").click()
    page.locator("#m4 a", has_text="Copied").wait_for()
    assert page.url.endswith("/runs/after/0/0#m4")
    assert pasted(page) == page.url


def pasted(page):
    """Pastes into the field of a note, and returns its text."""
    page.locator("textarea").evaluate("field => { field.closest('details').open = true; field.value = ''; }")
    page.locator("textarea").press("Control+V")
    return page.locator("textarea").input_value()


def test_the_outline_is_used_with_keys(page):
    page.set_viewport_size({"width": 1200, "height": 900})
    visit(page, "/runs/after/0/0")
    outline = page.get_by_role("navigation", name="Messages")
    assert outline.get_by_role("link").all_inner_texts()[:2] == ["1 user 2 + 2?", "2 assistant Step **0**."]
    outline.get_by_role("link").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**#m4")
    assert page.locator("#m4").evaluate("turn => turn.matches(':target') && turn.getBoundingClientRect().top < 500")
    outline.get_by_role("link").nth(2).focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.hash") == "#m14"
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    outline.locator("[aria-current=true][href='#m2'], [aria-current=true][href='#m1']").wait_for()


def test_the_outline_of_a_phone_opens_and_closes(page):
    page.set_viewport_size({"width": 375, "height": 800})
    visit(page, "/runs/after/0/0#m9")
    links = page.locator(".outline a")
    assert links.first.is_visible() is False
    page.locator(".outline summary").click()
    links.nth(3).click()
    page.wait_for_url("**#m6")
    assert links.first.is_visible() is False


def test_a_link_to_folded_text_opens_it(page):
    """Browsers open ``<details>`` for their search and for links to a text alike."""
    visit(page, "/runs/after/0/0")
    folded = page.locator("#m9 .rest")
    assert (folded.get_attribute("open"), page.get_by_text("the needle").is_visible()) == (None, False)
    page.goto(f"{page.url}#:~:text=the%20needle")
    page.locator("#m9 .rest[open]").wait_for()


def test_from_the_demo_to_a_wrong_answer_in_three_clicks(blank, fork, tmp_path):
    home = {**os.environ, "NIGHTJAR_HOME": str(tmp_path / "home")}
    with fork.nightjar("view", "--no-browser", "--port", 0, env=home, cwd=tmp_path, stdout=PIPE) as view:
        blank.goto(re.search(r"http://\S+", view.stdout.readline())[0])
        assert "No runs yet" in blank.title()
        assert_is_for_everybody(blank)
        printed, _ = fork.nightjar("demo", "--direct", env=home, cwd=tmp_path, stdout=PIPE).communicate()
        assert re.search(r"^ +nightjar view ", printed, re.MULTILINE)  # it opens the page that follows
        blank.reload()
        run_id = re.search("run ([0-9a-f]{12}): completed", printed)[1]
        for link in (run_id, "Wrong answers", re.compile(r"^\d+$")):
            with blank.expect_navigation():
                blank.get_by_role("link", name=link).first.click()
        blank.get_by_role("heading", name="Score").wait_for()
        told = blank.inner_text("main")
        assert re.search(r"\b0 wrong[\s\S]*What is [\s\S]*The answer is", told)

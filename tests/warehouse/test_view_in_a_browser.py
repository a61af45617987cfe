"""The web view in a real browser: every page, every choice, keys, deep links, phones, and what a screen reader finds.

Each test fails, too, where the browser complains in its console, or is refused what a page asks for.
"""

import json
import os
import re
from datetime import UTC, datetime
from subprocess import PIPE
from urllib.parse import parse_qs, urlsplit

import pytest
from drawing import drawn

from nightjar.core.process_ids import process_host
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import NOTES, Night, NightEvaluation, Note

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
KINDS = (
    "/?columns=suite&columns=tags&columns=tokens", "/?group=model", "/runs/after", "/runs/running",
    "/runs/after/samples", "/runs/after/0/0", "/runs/after/1/1?beside=before", "/runs/after/3/1", "/runs/running/0/0",
    "/rollouts?most=0.5", "/search?q=4", "/compare?run=before&run=after", "/history?env=gsm8k",
    "/nights?suite=nightly&night=2026-11-22", "/sql?q=leaderboard&chart=bars", "/notes",
)  # fmt: skip
"""A page of each kind."""
OTHERS = (
    "/", "/?q=nothing", "/runs/after/samples?where=nonsense", "/runs/after/0/1?beside=after", "/runs/after/1/1",
    "/runs/running/1/0", "/runs/after/samples?by=rollout", "/samples?run=before&run=after", "/rollouts", "/compare",
    "/compare?run=before&run=after&run=large", "/history", "/nights", "/sql",
)  # fmt: skip
MISSING = ("/runs/none", "/runs/after/9/9", "/nowhere")
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
def folder(shared_house, run_writer):
    """A folder with a warehouse of three runs, one of them of a night, and a fourth run that is under way."""
    from nightjar.analysis import judge_night

    folder, warehouse, one = shared_house.folder, shared_house.warehouse, run_writer.rollout
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
        shared_house.publish_rows(run_id, rollouts, **told, started_at=f"2026-11-{day}T02:00:00Z")
    evaluations = [NightEvaluation("math", "missing", "math", LARGE)]
    warehouse.write_night(judge_night(warehouse, Night("nightly", "2026-11-22", "running", evaluations=evaluations)))
    written_at = datetime(2026, 11, 22, tzinfo=UTC)
    warehouse.write_rows(NOTES, [Note("first", "after", 2, 0, "interesting", "somebody", written_at)])
    running = folder / "outputs" / "evals" / "gsm8k--small" / "running"
    told = {"run_id": "running", "status": "running", "state_columns": list(AGENT)[1:]}
    run_writer.write(running, [one(0, 0, 1.0, **AGENT)], [run_writer.attempt(0, 0)], **told)
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
    from nightjar.view.server import Access

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        command_of = lambda config: ["nightjar", "eval", "run", config.env_id]  # noqa: E731
        with serve(Warehouse("outputs/warehouse"), Access(), command_of) as found:
            yield found


def rows(page):
    page.wait_for_load_state()
    return page.locator("a[data-row]").all_inner_texts()


def faults(page, schemes=("light", "dark")):
    """What keeps a page from fitting a phone, working with a screen reader and showing the focus."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra 'dev'")
    page.set_viewport_size({"width": 375, "height": 800})
    found = [] if page.evaluate("document.documentElement.scrollWidth") <= 375 else ["wider than a phone"]
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        only = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
        violations = axe.Axe().run(page, options={"resultTypes": ["violations"], **only}).response["violations"]
        found += [one["nodes"][0]["html"] for one in violations if one["impact"] in {"serious", "critical"}]
    page.keyboard.press("Tab")  # from here on the browser shows the focus
    return found + page.evaluate(UNSEEN)


def test_every_page_is_accessible_and_as_wide_as_its_window(page):
    also_dark = drawn(KINDS, 3)
    for path in (*KINDS, *drawn(OTHERS + MISSING, 3)):
        assert page.goto(path).status == (404 if path in MISSING else 200)
        assert "taken" not in page.title()
        assert faults(page, ("light", "dark") if path in also_dark else ("light",)) == [], path
        for width in (1024, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate(CUT) == [], path


RUNS = {
    "q=LARGE": "large", "env=math": "large", "model=small": "after before", "suite=nightly": "large",
    "status=incomplete": "after before", "sort=reward": "before large after", "sort=cost": "after before large",
    "sort=time": "large before after", "sort=coverage": "after before large", "sort=started": "large after before",
    "sort=environment": "after before large", "sort=model": "large after before", "sort=status": "large after before",
    "sort=examples": "after before large", "sort=failed": "after before large", "sort=tokens": "after before large",
    "group=environment": "after before large", "group=model": "large after before",
    "group=suite": "large after before", "group=night": "large after before",
}  # fmt: skip


def test_every_choice_of_runs_lists_its_rows(folder, browse):
    from nightjar.view import runs

    view = browse(Warehouse(folder / "outputs/warehouse"))
    found = {choice: " ".join(link.removeprefix("/runs/") for link in view.links(f"/?{choice}")) for choice in RUNS}
    assert found == RUNS
    assert {choice[5:] for choice in RUNS if choice.startswith("sort=")} == runs.SORTS.keys()
    assert {choice[6:] for choice in RUNS if choice.startswith("group=")} == runs.GROUPS.keys()


def test_a_filter_changes_rows_and_address_and_the_back_button_undoes_it(page):
    for path, name, value, expected in (
        ("/", "sort", "time", ["large", "before", "after"]),
        ("/runs/after/samples", "where", "total_ms > 1e6 AND reward = 0", ["2"]),
    ):  # fmt: skip
        page.goto(path)
        everything, field = rows(page), page.locator(f"[name={name}]")
        if field.evaluate("field => field.matches('select')"):
            field.select_option(value)
        else:
            field.fill(value)
            field.press("Enter")
        page.wait_for_url(lambda url, name=name, value=value: parse_qs(urlsplit(url).query).get(name) == [value])
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
    page.goto("/")
    light = page.evaluate(GROUND)
    page.get_by_role("button", name="Colours: Auto").click()
    page.get_by_role("button", name="Colours: Light").press("Enter")
    page.get_by_role("button", name="Colours: Dark").wait_for()
    dark = page.evaluate(GROUND)
    assert dark != light
    page.goto("/nights")
    assert (page.evaluate(GROUND), page.evaluate("atFirst")) == (dark, "dark")
    page.get_by_role("button", name="Colours: Dark").click()
    assert page.evaluate(GROUND) == light  # of the system again
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(GROUND) == dark
    assert page.evaluate("document.querySelector('.brand img').naturalWidth") > 0


def test_typing_searches_at_once_and_a_tag_leads_to_the_runs_that_have_it(page):
    page.goto("/?sort=reward")
    page.get_by_label("Search").press_sequentially("larg")
    page.wait_for_url("**/?q=larg&sort=reward")
    assert rows(page) == ["large"]
    page.goto("/runs/after/samples")
    page.get_by_label("Search").press_sequentially("taken")
    page.wait_for_url("**/samples?q=taken&by=example&sort=example")
    assert rows(page) == ["0", "1"]
    page.goto("/runs/large")
    page.get_by_role("link", name="fast").click()
    page.wait_for_url("**tag=fast")
    assert rows(page) == ["large"]


def test_ticked_runs_stay_ticked_on_other_pages_and_are_compared(page):
    page.goto("/?q=after")
    page.get_by_label("Compare after").check()
    page.goto("/?q=before")
    page.get_by_text("and 1 on other pages").wait_for()
    page.get_by_label("Compare before").check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?run=before&run=after")
    page.get_by_text("Broken: 1 example").wait_for()
    page.get_by_label("Tolerated drop").fill("2")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**max_drop=2**")
    page.locator("h1", has_text="PASS").wait_for()
    page.goto("/")
    assert page.locator("[name=ticked]:checked").count() == 0


def test_chosen_columns_are_in_the_address_and_stay_on_other_visits(page):
    page.goto("/?model=small")
    page.get_by_text("Columns", exact=True).press("Enter")
    page.get_by_label("suite", exact=True).press("Space")
    page.wait_for_url("**/?model=small&**columns=suite")
    assert page.get_by_role("columnheader", name="Suite").is_visible()
    assert page.evaluate("document.activeElement.value") == "suite"
    page.keyboard.press("Escape")
    assert page.get_by_label("suite", exact=True).is_hidden()
    page.goto("/runs/after")
    page.goto("/?sort=reward")
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
    page.goto("/")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("suite", exact=True).check()
    page.wait_for_url("**/?columns=**suite")
    page.get_by_role("button", name="Colours: Auto").click()
    assert page.locator("html[data-theme=light]").count() == 1
    page.get_by_label("Compare before").check()
    page.get_by_label("Compare after").check()
    page.get_by_role("button", name="Compare selected runs").click()
    page.wait_for_url("**/compare?**")


def test_keys_lead_through_runs_samples_and_rollouts(page):
    page.goto("/")
    for key in ("j", "j", "k", "j", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**/runs/after")
    page.goto("/runs/after/samples")
    page.keyboard.press("/")
    page.keyboard.type("jk/?")  # what is typed is no key
    assert page.get_by_role("searchbox").input_value() == "jk/?"
    page.goto("/runs/after/samples?show=wrong&sort=worst")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    keys.get_by_role("button", name="Close").click()
    keys.wait_for(state="hidden")
    page.locator("dialog:not(:has(:focus))").wait_for(state="attached")  # a frame later than it is hidden
    for key, address in {"j": "samples", "Enter": "2/0", "ArrowRight": "1/1", "ArrowLeft": "2/0"}.items():
        page.keyboard.press(key)
        page.wait_for_url(f"**/runs/after/{address}?show=wrong&sort=worst")
    page.keyboard.press("ArrowRight")
    page.get_by_text(HOSTILE).first.wait_for()
    page.get_by_role("link", name="These samples").click()
    page.wait_for_url("**/runs/after/samples?show=wrong&sort=worst")
    page.go_back()
    page.wait_for_url("**/runs/after/1/1?show=wrong&sort=worst")
    page.goto("/runs/after/samples")
    for key in ("j", "j", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**/runs/after/1/1")  # the wrong one of its rollouts


def test_a_query_is_run_drawn_and_kept_in_the_address(page):
    page.goto("/sql")
    page.get_by_label("A query").fill("SELECT run_id, avg_reward FROM runs ORDER BY run_id")
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/sql?q=SELECT**")
    page.get_by_role("button", name="Bars").click()
    page.wait_for_url("**chart=bars**")
    assert page.reload().status == 200
    assert page.get_by_role("img").count() == 1
    assert page.locator("main td a").all_inner_texts() == ["after", "before", "large"]


def test_a_note_is_kept_and_shown(page):
    page.goto("/runs/after/1/0")
    page.get_by_text("Add a note").click()
    page.get_by_label("Your name").fill("somebody")
    page.get_by_label("Comment").fill("odd wording")
    page.get_by_role("button", name="Note").click()
    page.get_by_text("odd wording").wait_for()
    page.goto("/notes")
    assert "odd wording" in page.inner_text("main")
    assert faults(page) == []


def test_a_rollout_in_progress_is_followed_and_its_artifacts_are_saved(page, folder):
    page.goto("/runs/running/0/0")
    colour = page.locator(".terminal .f10.g1.bold").first.evaluate("each => getComputedStyle(each).color")
    assert colour == "rgb(141, 219, 140)"
    with page.expect_download() as saving:
        page.get_by_role("link", name="page.html").click()
    assert (saving.value.suggested_filename, saving.value.path().read_text()) == ("page.html", HOSTILE)
    page.goto("/runs/running/1/0")
    tell_live(folder, {"kind": "command", "text": "make test"})
    page.locator(".terminal .line", has_text="make test").wait_for()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    tell_live(folder, {"kind": "output", "text": "\x1b[32mall right\x1b[0m"})
    page.locator(".terminal .f2", has_text="all right").wait_for()
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY") < 2
    assert "taken" not in page.title()


def test_a_run_in_progress_is_followed_until_it_is_published(page, folder, run_writer):
    running = folder / "outputs" / "evals" / "gsm8k--small" / "running"
    page.goto("/runs/running")
    assert "1 of 4" in page.inner_text("main")
    run_writer.write(running, run_writer.rollouts[:2], run_id="running", status="running")
    page.get_by_text("2 of 4").wait_for()
    run_writer.write(running, run_id="running", status="incomplete")
    Warehouse(folder / "outputs/warehouse").publish(running, tidies=False)
    page.get_by_role("heading", name="Numbers").wait_for()


@pytest.mark.parametrize("is_granted", [True, False])
def test_the_text_of_a_message_and_its_link_are_copied(page, is_granted):
    if is_granted:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    else:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.goto("/runs/after/0/0")
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


def test_the_outline_is_used_with_keys_and_a_conversation_is_wider_than_its_score(page):
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto("/runs/after/0/0")
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
    for rollout in ("after/1/1", "running/0/0"):
        page.goto(f"/runs/{rollout}")
        talk, score = (page.locator(f"section[aria-labelledby={name}]").bounding_box() for name in ("talk", "score"))
        assert (talk["x"] + talk["width"] <= score["x"], talk["y"] <= score["y"]) == (True, True)
        assert talk["width"] > score["width"]


def test_the_outline_of_a_phone_opens_and_closes_and_a_link_to_folded_text_opens_it(page):
    page.set_viewport_size({"width": 375, "height": 800})
    page.goto("/runs/after/0/0#m9")
    links = page.locator(".outline a")
    assert links.first.is_visible() is False
    page.locator(".outline summary").click()
    links.nth(3).click()
    page.wait_for_url("**#m6")
    assert links.first.is_visible() is False
    folded = page.locator("#m9 .rest")
    assert (folded.get_attribute("open"), page.get_by_text("the needle").is_visible()) == (None, False)
    page.goto("/runs/after/0/0#:~:text=the%20needle")  # browsers open it for their search alike
    page.locator("#m9 .rest[open]").wait_for()


def test_from_the_demo_to_a_wrong_answer_in_three_clicks(page, fork, tmp_path):
    home = {**os.environ, "NIGHTJAR_HOME": str(tmp_path / "home")}
    with fork.nightjar("view", "--no-browser", "--port", 0, env=home, cwd=tmp_path, stdout=PIPE) as view:
        page.goto(re.search(r"http://\S+", view.stdout.readline())[0])
        assert "No runs yet" in page.title()
        assert faults(page) == []
        printed, _ = fork.nightjar("demo", "--direct", env=home, cwd=tmp_path, stdout=PIPE).communicate()
        assert re.search(r"^ +nightjar view ", printed, re.MULTILINE)  # it opens the page that follows
        page.reload()
        run_id = re.search("run ([0-9a-f]{12}): completed", printed)[1]
        for link in (run_id, "Wrong answers", re.compile(r"^\d+$")):
            with page.expect_navigation():
                page.get_by_role("link", name=link).first.click()
        page.get_by_role("heading", name="Score").wait_for()
        told = page.inner_text("main")
        assert re.search(r"\b0 wrong[\s\S]*What is [\s\S]*The answer is", told)

"""The web view in a real browser: links, filters, keys, deep links, phones, and what a screen reader finds."""

import re
import shutil
import socket
import threading
from contextlib import closing

import pytest
import uvicorn

from nightjar.serving.access import Access
from nightjar.serving.app import create_app
from nightjar.warehouse import Warehouse

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra 'screenshots'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra 'screenshots'")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome on the PATH")
HOSTILE = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"


@pytest.fixture(scope="module")
def address(tmp_path_factory, run_writer):
    """Serves two runs over the same three examples; the last one is right in the first run alone."""
    folder = tmp_path_factory.mktemp("view")
    warehouse = Warehouse(folder / "warehouse")
    for run_id, last in (("before", 1.0), ("after", 0.0)):
        texts = {"prompt": [{"role": "user", "content": HOSTILE}]}
        rows = [run_writer.rollout(n, 0, float(n < 2 or last), **texts) for n in range(3)]
        warehouse.publish(run_writer.write(folder / run_id, rows, run_id=run_id, scored=3, failed=0), tidies=False)
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(warehouse, Access(), lambda config: ["nightjar", "eval", "run", config.env_id])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with (
        playwright.sync_playwright() as running,
        closing(running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])) as launched,
    ):
        yield launched


@pytest.fixture
def page(browser, address):
    """A page that fails its test where the browser has something to complain of."""
    with closing(browser.new_context(base_url=address)) as context:
        opened, complaints = context.new_page(), []
        opened.set_default_timeout(30_000)
        opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        yield opened
        assert complaints == []


PAGES = ("/", "/runs/after", "/runs/after/samples", "/runs/after/2/0", "/compare?run=before&run=after", "/nights",
         "/history?env=gsm8k", "/sql", "/notes", "/search?q=4")  # fmt: skip


def test_from_the_first_page_to_a_wrong_answer(page, address):
    page.goto("/")
    page.get_by_role("link", name="after").first.click()
    page.get_by_role("link", name="Samples").first.click()
    page.wait_for_url("**/samples")
    page.locator("select[name=show]").select_option("wrong")
    page.wait_for_url(re.compile("show=wrong"))
    page.get_by_role("link", name="2", exact=True).click()
    assert page.url == f"{address}/runs/after/2/0"
    assert HOSTILE in page.inner_text("main")
    assert "taken" not in page.title()
    page.go_back()
    assert "show=wrong" in page.url


def test_keys_lead_through_samples(page, address):
    page.goto("/runs/after/samples")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/after/1/0")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/runs/after/2/0")


def test_runs_that_are_ticked_are_compared(page):
    page.goto("/")
    for run in ("before", "after"):
        page.get_by_label(f"Compare {run}").check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare?**")
    assert "1 example" in page.inner_text("main")


def test_a_note_is_kept_and_shown(page):
    page.goto("/runs/after/1/0")
    page.get_by_text("Note something").click()
    page.get_by_label("Comment").fill("odd wording")
    page.get_by_role("button", name="Note").click()
    page.wait_for_load_state()
    page.goto("/notes")
    assert "odd wording" in page.inner_text("main")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_on_a_phone_and_is_read_aloud(browser, address, path):
    with closing(browser.new_context(base_url=address, bypass_csp=True)) as context:
        page = context.new_page()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": 375, "height": 800})
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 375
            found = axe.Axe().run(page).response["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}
            ]
            assert serious == []

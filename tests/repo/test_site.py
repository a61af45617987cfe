"""The site of docs/ builds without a network, its links lead somewhere, and ``nightjar docs`` serves it."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

import pytest

from nightjar.cli.app import COMMANDS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Page(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if "src" in given or (tag == "link" and given.get("rel") != "canonical"):
            self.loaded.append(given.get("src") or given.get("href", ""))
        elif tag == "a" and given.get("href"):
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site in a package of its own, so that the checkout is not changed."""
    package = tmp_path_factory.mktemp("installed") / "nightjar"
    package.mkdir()
    for path in (ROOT / "nightjar").iterdir():
        if path.name not in {"site", "__pycache__"}:
            (package / path.name).symlink_to(path)
    built = package / "site"
    ended = subprocess.run(
        [sys.executable, ROOT / "docs" / "site" / "build.py", built], capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return built


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.fixture(scope="module")
def address(site):
    """The address of the first page, served by ``nightjar docs``."""
    with docs(site, "--no-browser", "--port", "0") as serving:
        line = serving.stdout.readline()
        yield re.findall(r"http://127\.0\.0\.1:\d+/", line)[0]
        serving.terminate()


def docs(site, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "nightjar", "docs", *arguments],
        cwd=site.parents[1], env={**os.environ, "PYTHONPATH": str(site.parents[1]), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_every_link_leads_to_a_page_and_an_anchor_and_no_file_is_loaded_from_another_host(site, pages):
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if parts.scheme in {"http", "https", "mailto"}:
                continue
            if (
                not target.is_relative_to(site.resolve())
                or not target.is_file()
                or (parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors)
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []
    loaded = {each for page in pages.values() for each in page.loaded}
    assert {each for each in loaded if urlsplit(each).scheme not in {"", "data"}} == set()


def test_every_command_has_its_part_of_the_reference(site, pages):
    for words in COMMANDS:
        name = words.partition(" ")[0]
        page = pages[site / "reference" / "commands" / f"{name}.html"]
        assert f"nightjar-{words.replace(' ', '-')}" in page.anchors


def test_every_page_begins_with_what_its_reader_can_do(site, pages):
    """Also the generated pages; test_documentation.py has the others."""
    first = re.compile(r"</h1>\s*<p>After (?:this page|these|this notebook)")
    assert [str(path.relative_to(site)) for path in pages if not first.search(path.read_text("utf-8"))] == []


def test_the_pages_of_the_reference_have_the_names_of_the_code(site):
    for page, words in {
        "reference/sql.html": ("avg_reward", "TIMESTAMP WITH TIME ZONE", "flips(a, b)", "Query hardest"),
        "reference/http.html": ("/v1/chat/completions", "/seed_session", "/runs/{run_id}/samples", "max_drop"),
        "reference/python/runs.html": ("ComparisonResult", "open_run", "Summary"),
        "reference/python/flows.html": ("evaluate", "retry_failed"),
        "reference/configuration.html": ("rollouts_per_example", "--rollouts-per-example"),
    }.items():
        text = re.sub(r"<[^>]+>", "", (site / page).read_text("utf-8"))
        assert [word for word in words if word not in text] == []


def test_nightjar_docs_serves_pages_and_nothing_else(address):
    with urlopen(f"{address}guides/nights.html", timeout=10) as answer:
        assert "A night is the evaluation of a" in answer.read().decode()
    with pytest.raises(HTTPError, match="404") as refused:
        urlopen(f"{address}../../__init__.py", timeout=10)
    refused.value.close()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not here")
def test_the_search_finds_a_page_without_a_network(address):
    from playwright.sync_api import sync_playwright

    arguments = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
    with sync_playwright() as playwright, closing(playwright.chromium.launch(**arguments)) as browser:
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
            asked = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(f"{address}index.html", wait_until="networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            page.keyboard.press("Control+k")
            page.locator("input[aria-label=Search]").fill("change points")
            assert "Find out when results changed" in page.get_by_role("option").first.inner_text(timeout=60_000)
            assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_an_unknown_page_and_missing_pages_are_errors_that_say_what_to_do(site, tmp_path):
    out, err = docs(site, "guides/night.md", "--no-browser", "--port", "0").communicate(timeout=60)
    assert out == ""
    assert "There is no page 'guides/night.md'. Choose one of: " in err
    assert "guides/nights" in err
    package = tmp_path / "nightjar"
    shutil.copytree(site.parent, package, symlinks=True, ignore=shutil.ignore_patterns("site"))
    out, err = docs(package / "site", "--no-browser").communicate(timeout=60)
    assert out == ""
    assert "make docs" in err

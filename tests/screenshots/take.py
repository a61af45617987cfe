"""Takes the pictures of docs/guides/screenshots.md: real runs in the UI of a real Prefect server, in headless Chromium.

    make screenshots

It wants a Chromium or Chrome on the PATH, or ``--chromium PATH``. All else is its own, and ends with it: home, folder,
server and models. It takes about three minutes.
"""

import argparse
import re
import shutil
import sys
import tempfile
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("flows", "forking", "performance")]

from local_services import Services, wait_for_answers  # noqa: E402

from nightjar.model_server import ArithmeticSolver, Faults, ModelServer  # noqa: E402

IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
WIDTH, HEIGHT = 1200, 800
SLOW = Faults(latency_ms=1500, jitter_ms=1000)
SOME_FAIL = Faults(latency_ms=300, jitter_ms=200, rate_500=0.03, seed=3)
ENVIRONMENT = """import nightjar as vf

def load_environment() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=[{"question": "What is the capital of France?", "answer": "Paris"}])
"""


class Pages:
    """Pages of Prefect's UI: what a person does on them, and pictures of them.

    Args:
        page: of a browser.
        services: what ``nightjar up`` started.
    """

    def __init__(self, page, services):
        self._page = page
        self._services = services
        self._deployment = services.call("GET", "/deployments/name/evaluate/evaluate")["id"]

    def open(self, path):
        self._page.goto(f"{self._services.api.removesuffix('/api')}{path}")
        self._page.wait_for_load_state("networkidle")
        self._settle()

    def take(self, name, height=HEIGHT, width=WIDTH):
        self._page.set_viewport_size({"width": WIDTH, "height": height})
        self._page.evaluate("document.activeElement.matches('[type=search]') || document.activeElement.blur()")
        self._settle()
        shown = {"x": 0, "y": 0, "width": width, "height": height}
        save(self._page.screenshot(clip=shown), IMAGES / f"{name}.png")
        print(f"docs/images/{name}.png")

    def show_run(self, flow_run):
        self.open(f"/runs/flow-run/{flow_run}")

    def show_artifact(self, key):
        chosen = {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC"}
        newest, *_ = self._services.call("POST", "/artifacts/filter", chosen)
        self.open(f"/artifacts/artifact/{newest['id']}")

    def show_errors_first(self):
        self._choose(self._drop_down("est to "), "Newest to oldest")

    def show_tab(self, name):
        self._page.get_by_role("tab", name=name).or_(self._page.get_by_text(name, exact=True)).first.click()
        self._settle()

    def press(self, *buttons):
        """Presses buttons, one after the other, in the dialog where there is one."""
        for button in buttons:
            self._page.get_by_role("button", name=button, exact=True).locator("visible=true").last.click()
            self._settle()

    def start_in_form(self, picture, fields):
        """Fills in the form, with a picture of it, and submits it; returns the flow run."""
        self.open(f"/deployments/deployment/{self._deployment}/run")
        self._page.locator("input:visible").first.fill("theta99-rigel")  # as most names that the form draws
        self._drop_down("").first.focus()
        self._page.keyboard.press("ArrowDown")
        self.take(picture)
        self._page.get_by_text("arithmetic", exact=True).click()
        for title, text in fields.items():
            self._field(title).fill(text)
        with self._page.expect_response(lambda answer: answer.status == HTTPStatus.CREATED) as created:
            self.press("Submit")
        return str(created.value.json()["id"])

    def fill_in_schedule(self, cron, fields):
        """Fills in a schedule with values for parameters, and leaves it unsaved."""
        self.open(f"/deployments/deployment/{self._deployment}")
        self.press("Schedule", "Cron")
        self._page.locator(".p-modal input:visible").last.fill(cron)
        self._choose(self._drop_down("Select parameters to override"), *fields)
        self._page.get_by_text("Add schedule").click()
        for title, text in fields.items():
            if title == "env_id":
                self.press("Any name")
            self._field(title).fill(text)

    def _drop_down(self, shown):
        return self._page.locator(".p-select-button__control:visible", has_text=shown)

    def _choose(self, drop_down, *choices):
        """Opens a drop-down by its key, and clicks on choices."""
        drop_down.last.focus()
        self._page.keyboard.press("ArrowDown")
        for choice in choices:
            self._page.locator(".p-select-option").get_by_text(choice, exact=True).click()
        self._settle()

    def _field(self, title):
        label = self._page.locator(".schema-form-property__label", has_text=re.compile(rf"^{title}\b"))
        return self._page.locator(".schema-form-property", has=label).locator("textarea, input").last

    def _settle(self):
        self._page.wait_for_timeout(1500)


def save(picture, path):
    """Saves a picture with 128 colours, which is a third of its size."""
    from PIL import Image

    Image.open(BytesIO(picture)).convert("RGB").quantize(128).save(path, optimize=True)


@contextmanager
def browsed(services, chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield Pages(browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}), services)
        browser.close()


def start(services, server, model, **more):
    parameters = {"env_id": "arithmetic", "model": model, "base_url": server.url, "num_examples": 60, **more}
    return services.start("evaluate", parameters)


def take_a_run_that_goes_well(services, pages):
    with ModelServer(ArithmeticSolver(error_rate=0.2, seed=1), faults=SLOW) as server:
        fields = {"model": "small-model", "num_examples": "200", "Model: base_url": server.url}
        flow_run = pages.start_in_form("form", fields)
        wait_for_answers(server, 250)
        pages.show_run(flow_run)
        pages.take("running")
        services.wait_for(flow_run, "COMPLETED")
    pages.show_run(flow_run)
    pages.take("done")
    pages.show_artifact("results-arithmetic-small-model")
    pages.take("results", 832)


def take_a_run_that_fails(services, pages):
    with ModelServer(ArithmeticSolver(), faults=SOME_FAIL) as server:
        port, flow_run = server.port, start(services, server, "shaky-model", max_shards=8)
        services.wait_for(flow_run, "FAILED")
    pages.show_run(flow_run)
    pages.show_errors_first()
    pages.take("failed", 1000)
    with ModelServer(ArithmeticSolver(), port=port):
        pages.press("Retry", "Retry")
        services.wait_for(flow_run, "COMPLETED")
    pages.show_run(flow_run)
    pages.show_tab("Task Runs")
    pages.take("retried", 1000)


def take_a_run_that_is_cancelled(services, pages):
    with ModelServer(ArithmeticSolver(), faults=SLOW) as server:
        flow_run = start(services, server, "slow-model", num_examples=500)
        wait_for_answers(server, 150)
        pages.show_run(flow_run)
        pages.press("Cancel", "Confirm")
        services.wait_for(flow_run, "CANCELLED")
    pages.show_run(flow_run)
    pages.show_errors_first()
    pages.take("cancelled", 1000)


def take_forms(pages):
    pages.fill_in_schedule("0 2 * * *", {"env_id": "gsm8k", "model": "gpt-4.1-mini"})
    pages.take("schedule", 1100)
    pages.open("/blocks/catalog/nightjar-model-endpoint/create")
    pages.take("block", 960, width=910)  # without its logo, which is got from the web


def browser_of(description):
    """Returns the browser that the command line says, or the machine has."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chromium", default=found, required=found is None, help="the browser (default: %(default)s)")
    return str(parser.parse_args().chromium)


def main():
    chromium = browser_of(__doc__)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        services = Services(Path(folder))
        (services.folder / "environments").mkdir()
        (services.folder / "environments" / "capitals.py").write_text(ENVIRONMENT)
        try:
            print(services.up().stdout)
            with browsed(services, chromium) as pages:
                take_a_run_that_goes_well(services, pages)
                take_a_run_that_fails(services, pages)
                take_a_run_that_is_cancelled(services, pages)
                take_forms(pages)
        finally:
            services.run("down", "--yes")


if __name__ == "__main__":
    main()

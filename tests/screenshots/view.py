"""Takes the pictures of the web view in docs/images: real runs of a local model, served by ``nightjar view``.

    .venv/bin/python tests/screenshots/view.py

It takes half a minute, and wants a browser as ``take.py`` does.
"""

import asyncio
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from take import FLAGS, IMAGES, browser_of, save

from nightjar.errors import NightjarError
from nightjar.evaluation import evaluate
from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

WIDTH, HEIGHT = 1200, 700
RUNS = (("small-model", 0.35), ("large-model", 0.1), ("small-model", 0.25))
"""Models, and how often each is wrong; the last run is the one that is shown."""
FAULTS = Faults(latency_ms=120, jitter_ms=80, rate_500=0.02, seed=3)


def make_runs(folder):
    """Evaluates the models; some of their rollouts fail."""
    for seed, (model, error_rate) in enumerate(RUNS):
        with ModelServer(ArithmeticSolver(error_rate, seed), faults=FAULTS) as server:
            config = RunConfig(
                env_id="arithmetic", model=model, base_url=server.url, num_examples=80, rollouts_per_example=4,
                max_concurrent=24, request_retries=0,
            )  # fmt: skip
            try:
                asyncio.run(evaluate(config, warehouse=Warehouse(folder / "outputs" / "warehouse"), output_dir=folder))
            except NightjarError as error:
                print(error)


def follow(page, link):
    with page.expect_navigation():
        link.click()


def take(page, name):
    save(page.screenshot(), IMAGES / f"{name}.png")
    print(f"docs/images/{name}.png")


def main():
    from figures import view  # in a folder that take.py names

    chromium = browser_of(__doc__)
    with tempfile.TemporaryDirectory() as name:
        make_runs(Path(name))
        with sync_playwright() as playwright, view(Path(name, "outputs", "warehouse"), cwd=name) as (_, address):
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(address)
            follow(page, page.locator("a[data-row]").first)
            take(page, "view-run")
            follow(page, page.get_by_role("link", name="Wrong answers"))
            follow(page, page.locator("a[data-row]").first)
            with page.expect_navigation():
                page.get_by_label("Compare with").select_option(index=2)
            page.evaluate("scrollTo(0, 0)")
            take(page, "view-rollout")
            browser.close()


if __name__ == "__main__":
    main()

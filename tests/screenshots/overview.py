"""Draws docs/images/suite.svg: a suite of eight evaluations under way, one of them broken, as a terminal shows it.

    .venv/bin/python tests/screenshots/overview.py

It takes a few seconds; the models are local servers.
"""

import asyncio
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console

from nightjar.cli.eval.live_view import frame
from nightjar.engine import open_runs
from nightjar.errors import NightjarError
from nightjar.evaluation import evaluate
from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, Faults, ModelServer
from nightjar.warehouse import Warehouse

SVG = Path(__file__).parents[2] / "docs" / "images" / "suite.svg"
ERROR_RATES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.35, 0.45)
WIDTH, HEIGHT = 100, 40
SECONDS = 9.0


async def main():
    """Runs the suite, and draws it when it is half through."""
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(latency_ms=600, jitter_ms=400, rate_500=0.02)
        good = [ModelServer(ArithmeticSolver(rate, seed), faults=faults) for seed, rate in enumerate(ERROR_RATES)]
        broken = ModelServer(ArithmeticSolver(), faults=Faults(latency_ms=600, rate_malformed=0.6))
        servers = [server.__enter__() for server in (*good, broken)]
        runs = [asyncio.create_task(run(number, server, Path(folder))) for number, server in enumerate(servers)]
        await asyncio.sleep(SECONDS)
        under_way = sorted(open_runs(), key=lambda one: one.metadata.name or "")
        console = Console(width=WIDTH, height=HEIGHT, record=True, file=io.StringIO(), force_terminal=True)
        console.print(frame(console, under_way, len(under_way) - 1))
        drawn = console.export_svg(title="nightjar eval run suite.toml")
        SVG.write_text(re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL))  # nothing from elsewhere
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        for server in servers:
            server.__exit__(None, None, None)


async def run(number, server, folder):
    config = RunConfig(
        env_id="arithmetic", name=f"model-{number + 1}", model=f"model-{number + 1}", base_url=server.url,
        num_examples=500, rollouts_per_example=1, max_concurrent=24,
    )  # fmt: skip
    try:
        await evaluate(config, warehouse=Warehouse(folder / "warehouse"), output_dir=folder)
    except NightjarError as error:
        print(f"{config.name}: {error}")


if __name__ == "__main__":
    asyncio.run(main())

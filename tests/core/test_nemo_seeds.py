"""The examples of NeMo Evaluator's documentation run with other imports and another address."""

import asyncio
import json
import re
import socket
import textwrap
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nightjar.compat import nemo
from nightjar.model_server import FixedAnswer, ModelServer

pytestmark = pytest.mark.slow

PAGES = sorted((Path(__file__).parents[3] / "shared/reference/seeds").glob("003_*.txt"))
CODE = re.compile(
    r"from |import |@|class |(?:async )?def |super\(|self\.|return |\.\.\.$|\w+ = |\w+=|write_all\(|\)$|# "
)


def examples():
    """Yields the blocks of code with imports; the page has lost their indentation."""
    block: list[str] = []
    for line in [*(line for page in PAGES for line in page.read_text().splitlines()), ""]:
        if CODE.match(line) and (block or line.startswith("from nemo_evaluator")):
            block.append(line)
        elif block:
            yield "\n".join(indented(block))
            block = []


def indented(lines):
    depth = 0
    for line in lines:
        if line.startswith("class "):
            yield line
            depth = 8
        elif depth and line.startswith(("def ", "async def ")):
            yield f"    {line}"
        else:
            yield " " * depth + line


@pytest.fixture
async def ground(tmp_path, monkeypatch):
    """Two earlier evaluations, datasets, and names from earlier examples, which the page presupposes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEMO_SKILLS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("LMUData", str(tmp_path))
    (tmp_path / "gpqa").mkdir()  # as NeMo Skills has it; the answer 4 is right for none
    (tmp_path / "gpqa/__init__.py").write_text('METRICS_TYPE = "multichoice"\nEVAL_SPLIT = "diamond"\n')
    rows = [{"problem": f"{n}?\n\nA) x\nB) y", "expected_answer": letter} for n, letter in enumerate("ABBA")]
    (tmp_path / "gpqa/diamond.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    image = "iVBORw0KGgo="
    (tmp_path / "MMBench_DEV_EN.tsv").write_text(
        f"index\timage\tquestion\tA\tB\tanswer\n0\t{image}\t2+2?\t4\t5\tA\n1\t{image}\t2+3?\t4\t5\tB\n"
    )
    bundles = []
    for side in ("baseline", "candidate"):
        env = nemo.get_environment("arithmetic", num_problems=20)
        bundles.append(await nemo.run_evaluation(env, nemo.OracleSolver()))
        nemo.write_all(bundles[-1], side)
    env = nemo.get_environment("arithmetic", num_problems=3)
    names = {name: getattr(nemo, name) for name in ("run_evaluation", "ChatSolver", "VLMSolver")}
    return {"bundle": bundles[0], "env": env, **names}


@asynccontextmanager
async def served(env):
    import uvicorn

    from nightjar.compat.nemo.serving.app import generate_app

    config = uvicorn.Config(generate_app(env), log_level="warning", timeout_graceful_shutdown=1)
    server, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.to_thread(thread.join)
        listening.close()


@pytest.mark.skipif(not PAGES, reason="needs ../shared/reference")
@pytest.mark.parametrize("code", list(examples()), ids=lambda code: code.splitlines()[0].split()[1].partition(".")[2])
async def test_an_example_runs(code, ground):
    source = code.replace("nemo_evaluator", "nightjar.compat.nemo")
    async with served(ground["env"]) as benchmark:
        with ModelServer(FixedAnswer("4")) as server:
            source = source.replace("https://integrate.api.nvidia.com/v1", server.url)
            source = source.replace("http://localhost:9090", benchmark)
            names = ground | {"client": nemo.ModelClient(server.url, "m")}
            exec("async def main():\n" + textwrap.indent(f"{source}\nreturn locals()", "    "), names)
            found = await names["main"]()
    check(found)


def check(found):
    if "response" in found:
        assert found["response"].content == "4"
    if "report" in found:
        assert found["report"]["flip_report"]["n_paired"] == 20
        assert "identical in all 20 pairs" in found["report"]["verdict_reasons"][0]
    if "MyBenchmark" in found:
        assert len(nemo.get_environment("My_Benchmark")) == 1
    if "GymEnvironment" in found:
        assert found["bundle"]["n_results"] == 12
    if "SkillsEnvironment" in found:
        assert (found["bundle"]["benchmark"]["name"], found["bundle"]["n_results"]) == ("skills:gpqa", 16)
    if "VLMEvalKitEnvironment" in found:
        assert [row["reward"] for row in found["bundle"]["_results"]] == [1.0, 0.0]
    if "app" in found:
        assert {"/health", "/dataset_size", "/seed_session", "/verify"} <= {route.path for route in found["app"].routes}
    if "write_all" in found:
        names = {path.name for path in Path("eval_results").iterdir()}
        assert names >= {"results.jsonl", "trajectories.jsonl", "runtime_stats.json", "failure_analysis.json"}


def test_the_page_has_examples():
    if PAGES:
        assert len(list(examples())) == 8

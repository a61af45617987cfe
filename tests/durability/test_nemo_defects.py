"""Defects of NeMo Evaluator's commands as tests of Nightjar; others are in ``../core/test_nemo_defects.py``."""

import json
import textwrap

import pytest

from nightjar.model_server import FixedAnswer

pytestmark = pytest.mark.long

BENCH = """
    from nightjar.compat.nemo import benchmark, exact_match, scorer
    ROWS = [{"q": f"{n}?", "target": "4" if n % 2 else "5", "response": "a column"} for n in range(30)]

    @benchmark(name="fours", dataset=ROWS, prompt="{q}")
    @scorer
    def check(sample):
        return exact_match(sample)
"""
CONFIG = """\
services:
  model: {{type: api, url: "{url}/chat/completions", protocol: chat_completions, model: m}}
benchmarks:
  - name: bench.py:fours
    solver: {{type: simple, service: model}}
"""


@pytest.fixture
def bench(nightjar):
    (nightjar.folder / "bench.py").write_text(textwrap.dedent(BENCH))
    return nightjar


def test_a_changed_config_gives_no_old_scores(bench, serve):
    server = serve(FixedAnswer("4"), keep_requests=100)
    (bench.folder / "c.yaml").write_text(CONFIG.format(url=server.url))

    def run(*overrides):
        typed = [word for override in overrides for word in ("-O", override)]
        ended = bench.start("eval", "run", "c.yaml", "--direct", "--resume", "--json", *typed).wait()
        asked = [request.body for request in server.requests]
        return ended, asked

    few = "benchmarks.0.max_problems=3"
    first, asked = run(few)
    assert (first.code, len(asked)) == (0, 3), first.stderr
    assert [each["name"] for each in json.loads(first.stdout)] == ["fours"], "nothing but JSON on stdout"
    assert len(run(few)[1]) == 3, "what is done is not asked again"
    changes = ("services.model.generation.temperature=0.5", "services.model.model=n", "benchmarks.0.repeats=2")
    for number, change in enumerate(changes, start=1):
        _, asked = run(few, change)
        assert len(asked) >= 3 * (number + 1), f"{change} is no reason to show what was scored without it"
    assert asked[3]["temperature"] == 0.5
    assert asked[6]["model"] == "n"


def test_stdout_is_only_json_and_exit_codes_are_verdicts(bench, serve):
    for name, answer, count in (("base", "4", "-1"), ("worse", "6", "-1"), ("part", "4", "2")):
        typed = ("-m", "m", "-b", serve(FixedAnswer(answer)).url, "-r", "1", "-o", name, "-n", count)
        bench.start("eval", "run", "bench.py:fours", *typed, "--direct").wait().ok()
    (bench.folder / "listed.yaml").write_text("version: 1\nbenchmarks:\n  fours: {tier: critical}\n")
    (bench.folder / "nothing.yaml").write_text("version: 1\n")
    (bench.folder / "empty").mkdir()
    for candidate, code, decision in (("worse", 1, "REGRESSION"), ("part", 2, "INCONCLUSIVE")):
        ended = bench.start("compare", "base", candidate, "--json", "--strict", "--html", "page.html").wait()
        assert (ended.code, json.loads(ended.stdout)["decision"]) == (code, decision)
    none = bench.start("compare", "base", "empty", "--json", "--strict").wait()
    assert (none.code, none.stdout, "No results in 'empty'" in none.stderr) == (1, "", True)
    for baseline, candidate, policy, code, decision in (
        ("base", "worse", "listed", 1, "NO-GO"), ("base", "empty", "listed", 1, "NO-GO"),
        ("empty", "empty", "nothing", 2, "INCONCLUSIVE"), ("base", "part", "nothing", 2, "INCONCLUSIVE"),
    ):  # fmt: skip
        typed = ["gate", baseline, candidate, "-p", f"{policy}.yaml", "--json", "-o", "gate.json"]
        ended = bench.start(*typed).wait()
        assert (ended.code, json.loads(ended.stdout)["decision"]) == (code, decision)

"""Comparisons, gates and reports of folders of bundles, under the names of NeMo Evaluator."""

import json

import pytest

from nightjar.analysis.gates.policy import GatePolicy
from nightjar.compat import nemo
from nightjar.errors import ConfigError, WarehouseError


def write(folder, name, rewards, model="m"):
    from nightjar.compat.nemo.engine.artifacts import bundle_of

    results = [
        {"problem_idx": n, "repeat": 0, "reward": reward, "prompt": f"Q{n}", "model_response": "A", "metadata": {}}
        | {"expected_answer": "A", "scoring_details": {}, "scorer_rewards": {}, "tokens": 3, "latency_ms": 5.0}
        for n, reward in enumerate(rewards)
    ]
    nemo.write_all(bundle_of(name, results, [], {"model": model}, repeats=1, elapsed_seconds=1.0, retries=0), folder)


@pytest.fixture
def sides(tmp_path, monkeypatch):
    """Two benchmarks on both sides: one is unchanged, the other has lost 30 of 100."""
    monkeypatch.chdir(tmp_path)
    for side, right in (("baseline", 80), ("candidate", 50)):
        write(tmp_path / side / "mmlu", "mmlu", [1.0] * right + [0.0] * (100 - right))
        write(tmp_path / side / "gsm", "gsm|8k", [1.0, 0.0] * (200 if side == "baseline" else 100))
    return tmp_path


def test_bundles_are_found_by_benchmark(sides):
    from nightjar.compat.nemo.engine.artifacts import discover_bundles, extract_benchmark_name, match_bundles

    base, cand = (discover_bundles(sides / side) for side in ("baseline", "candidate"))
    assert set(base) == {"mmlu", "gsm|8k"}
    del cand["gsm|8k"]
    both, alone, new = match_bundles(base, {**cand, "new": cand["mmlu"]})
    assert (both, alone, new) == ({"mmlu": (base["mmlu"], cand["mmlu"])}, {"gsm|8k"}, {"new"})
    assert extract_benchmark_name(base["mmlu"]) == "mmlu"
    assert extract_benchmark_name(base["mmlu"].parent / "results.jsonl") is None
    write(sides / "baseline" / "again", "mmlu", [1.0])
    with pytest.raises(ConfigError, match="'mmlu' has two bundles"):
        discover_bundles(sides / "baseline")
    (sides / "empty").mkdir()
    with pytest.raises(WarehouseError, match="No results"):
        discover_bundles(sides / "empty")


def test_patterns_and_folders_are_compared_in_three_formats(sides, nightjar, tmp_path):
    for name in ("mmlu/eval-*.json", "mmlu"):
        assert nemo.compare_runs(f"baseline/{name}", f"candidate/{name}")["verdict"] == "BLOCK"
        assert nightjar("compare", f"baseline/{name}", f"candidate/{name}", "--strict").code == 1
    assert nightjar("compare", "baseline/*/eval-*.json", "candidate/*/eval-*.json", "--strict").code == 1
    from nightjar.compat.nemo.reports import regression

    report = nemo.compare_runs("baseline/mmlu", "candidate/mmlu")
    texts = {form: render(report) for form, render in regression.RENDERERS.items()}
    assert texts["text"].startswith("BLOCK: ")
    assert "## BLOCK" in texts["markdown"]
    assert "### Regressions: 30" in texts["markdown"]
    assert json.loads(texts["json"])["verdict"] == "BLOCK"
    assert regression.write_report(report, tmp_path / "new" / "r.md").read_text() == texts["markdown"]
    assert json.loads(regression.write_report(report, tmp_path / "r.json").read_text())["report_version"] == 1


def test_problems_pair_whatever_their_repeat_and_unpaired_ones_are_counted(tmp_path):
    """NeMo Evaluator pairs only equal repeats, and does not report problems of one side."""
    for side in ("a", "b"):
        write(tmp_path / side, "some", [1.0] * 20)
    path = tmp_path / "b" / "results.jsonl"
    rows = [json.loads(line) | {"repeat": 1} for line in path.read_text().splitlines()][:15]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = nemo.compare_runs(tmp_path / "a", tmp_path / "b")["flip_report"]
    assert (found["n_paired"], found["unpaired"]["baseline"]) == (15, 5)


def test_a_gate_of_folders_of_bundles(sides, nightjar):
    from nightjar.compat.nemo.engine.comparison import gate_runs, write_gate_report
    from nightjar.compat.nemo.reports import gate as gate_reports

    rule = {"tier": "critical", "max_drop": 0.015, "max_relative_drop": 0.5}
    policy = GatePolicy.model_validate({"version": 1, "benchmarks": {"mmlu": rule}})
    report = gate_runs("baseline", "candidate", policy)
    told = {one.benchmark: one for one in report.benchmarks}
    assert report.verdict == "NO-GO"
    assert (told["mmlu"].status, told["mmlu"].n_paired, told["mmlu"].delta) == ("BREACH", 100, pytest.approx(-0.3))
    assert told["mmlu"].relative_drop_pct == pytest.approx(37.5)
    assert (told["mmlu"].absolute_breached, told["mmlu"].relative_breached) == (True, False)
    assert told["mmlu"].max_relative_drop_threshold == 0.5
    written = json.loads(write_gate_report(report, sides / "out" / "gate.json").read_text())
    assert written == report.to_dict()
    texts = {form: render(report.to_dict()) for form, render in gate_reports.RENDERERS.items()}
    assert texts["text"].startswith("NO-GO: ")
    assert "<code>gsm&#124;8k</code>" in texts["markdown"]
    assert gate_reports.write_gate_markdown(report.to_dict(), sides / "g.md").read_text() == texts["markdown"]
    (sides / "p.yaml").write_text("version: 1\nbenchmarks:\n  mmlu: {tier: critical}\n")
    assert nightjar("gate", "-p", "p.yaml", "baseline/*/eval-*.json", "candidate/*/eval-*.json").code == 1


def test_few_problems_and_empty_folders_are_no_go(tmp_path):
    """NeMo Evaluator returns GO for five problems with [1, 1], and for two empty folders."""
    from nightjar.compat.nemo.engine.comparison import gate_runs

    for side in ("a", "b"):
        write(tmp_path / side, "tiny", [1.0] * 5, model=side)
        (tmp_path / f"no-{side}").mkdir()
    policy = GatePolicy.model_validate({"version": 1})
    report = gate_runs(tmp_path / "a", tmp_path / "b", policy)
    assert (report.verdict, report.benchmarks[0].status) == ("INCONCLUSIVE", "INSUFFICIENT_EVIDENCE")
    assert gate_runs(tmp_path / "no-a", tmp_path / "no-b", policy).verdict == "INCONCLUSIVE"
    listed = GatePolicy.model_validate({"version": 1, "benchmarks": {"gone": {}}})
    report = gate_runs(tmp_path / "a", tmp_path / "b", listed)
    assert (report.verdict, report.missing) == ("NO-GO", ["gone"])


def test_a_table_of_bundles_in_five_formats(sides):
    from nightjar.compat.nemo.reports import eval as eval_reports

    table = eval_reports.build_table(eval_reports.load_bundles([sides / "baseline"]))
    [gsm, mmlu] = table["rows"]
    assert (mmlu["benchmark"], mmlu["samples"], mmlu["pass@1"], mmlu["coverage"]) == ("mmlu", 100, 0.8, 1.0)
    assert mmlu["pass@1_ci_lower"] == pytest.approx(0.7112, abs=1e-4)  # Wilson's of 80 in 100
    texts = {form: render(table) for form, render in eval_reports.RENDERERS.items()}
    assert set(texts) == {"markdown", "html", "latex", "csv", "json"}
    assert "0.8000 [0.7112, 0.8666]" in texts["markdown"]
    assert "<code>gsm&#124;8k</code>" in texts["markdown"]
    assert '<th scope="row">gsm|8k</th>' in texts["html"]
    assert r"gsm\textbar{}8k" in texts["latex"]
    assert json.loads(texts["json"]) == table
    assert texts["csv"].startswith("benchmark,model,samples,repeats,mean_reward,")
    assert eval_reports.RENDERERS["markdown"](eval_reports.build_table([])) == "\n"
    assert gsm["repeats"] == 1

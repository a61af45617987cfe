"""``nightjar eval merge`` of shards of ``run_evaluation`` and NeMo Evaluator, and of run directories."""

import asyncio
import hashlib
import json
import shutil

import pytest

from nightjar.compat import nemo

TIMES = ("ms", "seconds", "per_second", "timestamp", "run_id", "config_hash", "latency")


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not any(word in k for word in TIMES)}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def files(folder):
    """Returns the content of a folder's files, without times."""
    [bundle] = folder.glob("eval-*.json")
    rows = [(folder / name).read_text().splitlines() for name in ("results.jsonl", "trajectories.jsonl")]
    lines = [[json.loads(line) for line in each] for each in rows]
    names = (bundle.name, "runtime_stats.json", "failure_analysis.json")
    whole = [json.loads((folder / name).read_text()) for name in names]
    return without_times([whole, lines])


def digests(folder):
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A folder with the run directories and files of four shards, and those of the undivided evaluation."""

    class Sums(nemo.EvalEnvironment):
        """Ten problems with the answers 0, 1, 2, …"""

        name = "sums"

        def __len__(self):
            return 10

        async def seed(self, idx):
            return nemo.SeedResult(f"0+{idx}?", str(idx), {"category": "odd" if idx % 2 else "even"})

        async def verify(self, response, expected, sandbox=None, **metadata):
            return nemo.VerifyResult(float(response == expected), response, {"method": "exact"})

    class EvenOnly:
        """Answers even problems."""

        async def solve(self, task):
            return nemo.SolveResult(task.expected_answer if int(task.expected_answer) % 2 == 0 else "wrong")

    folder = tmp_path_factory.mktemp("evaluated")

    async def evaluate():
        nemo.write_all(await nemo.run_evaluation(Sums(), EvenOnly(), n_repeats=2), folder / "whole")
        for shard in range(4):
            logs, how = folder / "logs" / f"shard_{shard}", {"n_repeats": 2, "shard_info": (shard, 4)}
            part = await nemo.run_evaluation(Sums(), EvenOnly(), **how, step_log_dir=logs)
            nemo.write_all(part, folder / "parts" / f"shard_{shard}")

    asyncio.run(evaluate())
    return folder


@pytest.fixture
def shards(evaluated, tmp_path):
    shutil.copytree(evaluated, tmp_path, dirs_exist_ok=True)
    return tmp_path / "parts"


def test_merged_shards_equal_the_undivided_evaluation(shards, nightjar, tmp_path):
    before = digests(shards)
    done = nightjar("eval", "merge", shards)
    assert (done.code, done.err) == (0, "")
    assert "4 parts, 20 steps, mean reward 0.5000, coverage 100.0%" in done.out
    assert files(shards) == files(tmp_path / "whole")
    assert {path: digest for path, digest in digests(shards).items() if path in before} == before
    nightjar("eval", "merge", shards, "-o", tmp_path / "again")
    assert files(tmp_path / "again") == files(tmp_path / "whole")
    assert nightjar("eval", "merge", shards).code == 0


def test_run_directories_of_one_configuration_are_merged(shards, nightjar, tmp_path):
    done = nightjar("eval", "merge", tmp_path / "logs", "-o", tmp_path / "merged")
    assert (done.code, done.err) == (0, "")
    [merged, whole] = (files(tmp_path / name) for name in ("merged", "whole"))
    del merged[0][0]["config"], whole[0][0]["config"]
    assert merged == whole


def test_missing_steps_are_named_by_range(shards, nightjar, tmp_path):
    (shards / "shard_1").rename(tmp_path / "elsewhere")
    done = nightjar("eval", "merge", shards)
    assert (done.code, "1 of 4 shards is missing" in done.err) == (1, True)
    assert "6 of 20 steps are missing (problems 3-5)" in done.err
    assert "14 steps, mean reward 0.5714, coverage 70.0% (14 of 20)" in done.out
    [bundle] = shards.glob("eval-*.json")
    coverage = json.loads(bundle.read_text())["benchmark"]["scores"]["coverage"]
    assert coverage == {"value": 0.7, "scored": 14, "total": 20}
    done = nightjar("eval", "merge", shards, "-n", 3, "-o", tmp_path / "thrice")
    assert "(problems 0-9)" in done.err


def test_a_missing_last_shard_and_a_duplicate_are_named(shards, nightjar):
    shutil.rmtree(shards / "shard_3")
    shutil.copytree(shards / "shard_1", shards / "shard_3")
    done = nightjar("eval", "merge", shards)
    assert (done.code, "coverage 80.0% (16 of 20)" in done.out) == (1, True)
    assert f"{shards / 'shard_1'} and {shards / 'shard_3'}" in done.err
    assert "8-9" in done.err


def test_parts_with_different_settings_are_refused(shards, nightjar):
    before = digests(shards)
    assert "is one of the parts" in nightjar("eval", "merge", shards, "-o", shards / "shard_0").err
    assert digests(shards) == before
    [bundle] = (shards / "shard_2").glob("eval-*.json")
    changed = json.loads(bundle.read_text())
    changed["config"] |= {"model": "other", "temperature": 0.5}
    bundle.write_text(json.dumps(changed))
    done = nightjar("eval", "merge", shards)
    assert done.code == 1
    assert "They differ in model: 'EvenOnly', 'other'; temperature: None, 0.5" in done.err
    assert not list(shards.glob("eval-*.json"))


def nemo_shard(folder, rows, config, **bundle):
    """Writes what NeMo Evaluator writes: other keys in another order, and no ``failure_analysis.json``."""
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    runtime = {"scores": {"runtime": {"elapsed_seconds": 2.5}}}
    told = {"benchmark": runtime | {"samples": len(rows), "name": "mmlu"} | bundle}
    told |= {"n_results": len(rows), "config": config, "run_id": f"eval-20260101T000000Z-{folder.name}"}
    (folder / f"{told['run_id']}.json").write_text(json.dumps(told))


def nemo_row(problem, reward, **more):
    row = {"reward": reward, "model_response": "A", "repeat": 0, "problem_idx": problem, "tokens": 5}
    return row | {"latency_ms": 10.0, "scoring_details": {"method": "mcq"}} | more


def test_shards_that_nemo_evaluator_wrote(nightjar, tmp_path):
    config = {"model": "m", "model_url": "http://localhost:4001/v1", "n_shards": 2}
    first = [nemo_row(1, 1.0, latency_ms=40.0), nemo_row(0, 0.0), nemo_row(0, 1.0)]
    first.append(nemo_row(2, 0.5, metadata=None, prompt=None, latency_ms=20.0))
    broke = nemo_row(4, 0.0, model_response="", scoring_details={"error_category": "infra_error", "error": "gone"})
    nemo_shard(tmp_path / "shard_0" / "mmlu", first, {**config, "shard_range": [0, 3]})
    second = {**config, "shard_range": [3, 5], "model_url": "http://localhost:4002/v1"}
    nemo_shard(tmp_path / "shard_1" / "mmlu", [nemo_row(3, 0.0, latency_ms=30.0), broke], second)
    before = digests(tmp_path)
    done = nightjar("eval", "merge", tmp_path)
    assert (done.code, done.err) == (0, "")
    assert {path: digest for path, digest in digests(tmp_path).items() if path in before} == before
    [bundle] = (tmp_path / "mmlu").glob("eval-*.json")
    told = json.loads(bundle.read_text())
    scores = told["benchmark"]["scores"]
    assert (told["benchmark"]["name"], told["benchmark"]["repeats"], told["n_results"]) == ("mmlu", 1, 5)
    assert scores["mean_reward"]["value"] == pytest.approx((1 + 1 + 0.5 + 0) / 4)  # the one that broke has none
    assert (scores["coverage"]["value"], scores["errors"]["value"]) == (0.8, 1)
    stats = json.loads((tmp_path / "mmlu" / "runtime_stats.json").read_text())
    assert (stats["total_steps"], stats["total_tokens"], stats["elapsed_seconds"]) == (5, 20, 2.5)
    assert stats["latency_percentiles_ms"]["p50"] == 25.0, "of the steps of all shards"
    analysis = json.loads((tmp_path / "mmlu" / "failure_analysis.json").read_text())
    assert set(analysis["categories"]) == {"infra_error", "format_error"}
    assert nightjar("eval", "report", tmp_path / "mmlu", "-f", "csv").code == 0


def test_invalid_fields_of_rows_have_defaults(nightjar, tmp_path):
    nan, text = nemo_row(0, float("nan"), scoring_details=None), nemo_row(1, "1.0", extracted_answer=5, prompt=None)
    nemo_shard(tmp_path / "shard_0", [nan, text], {}, scores=None)
    nemo_shard(tmp_path / "shard_1", [nemo_row(2, True, metadata=["x"], repeat=None)], None, scores=None)
    (tmp_path / "shard_1" / "trajectories.jsonl").write_text('{"problem_idx": 2, "model": null, "timing": null}\n{}\n')
    assert nightjar("eval", "merge", tmp_path).code == 0
    [bundle] = tmp_path.glob("eval-*.json")
    scores = json.loads(bundle.read_text())["benchmark"]["scores"]
    assert (scores["mean_reward"]["value"], scores["coverage"]["value"]) == (1.0, pytest.approx(2 / 3))


def test_damaged_parts_are_an_error_of_one_line(nightjar, tmp_path):
    nemo_shard(tmp_path / "shard_0", [nemo_row(0, 1.0)], {})
    nemo_shard(tmp_path / "shard_1", [], {})
    for content in ("", "not json\n", '{"repeat": 0}\n'):
        (tmp_path / "shard_1" / "results.jsonl").write_text(content)
        done = nightjar("eval", "merge", tmp_path)
        assert (done.code, done.err.count("\n") <= 1) == (1 if content else 0, True)
    assert nightjar("eval", "merge", tmp_path / "none").code == 1

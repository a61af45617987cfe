"""Results of lm-eval become runs.

The files in ``lm_eval_results`` are those of lm-eval 0.4.13: its own tasks over a few documents, with the answers of
``nightjar model-server`` (``acme__recorded``) and of a model whose log-likelihoods are hashes (``acme__hashed``).
"""

import json
import math
import shutil
from pathlib import Path

import pytest

from nightjar import analysis
from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse


@pytest.fixture(scope="module")
def importers():
    from nightjar import importers

    return importers


RESULTS = Path(__file__).parent / "lm_eval_results"
HASHED, RECORDED = RESULTS / "acme__hashed", RESULTS / "acme__recorded"
TASKS = {
    "arc_easy": HASHED, "drop": HASHED, "mmlu_anatomy": HASHED, "mmlu_astronomy": HASHED, "gsm8k": RECORDED,
    "gsm8k_maj": RECORDED, "gsm8k_two_shot": RECORDED,
}  # fmt: skip
"""The tasks whose scores are means."""


def samples_of(task, folder):
    [path] = folder.glob(f"samples_{task}_2026*.jsonl")
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def scores_of(task, folder):
    """Returns the scores in lm-eval's results file."""
    date = samples_of(task, folder).stem.rpartition("_")[2]
    return json.loads((folder / f"results_{date}.json").read_bytes())["results"][task]


@pytest.fixture
def read(tmp_path, importers):
    """Converts the samples of a task, and reads the run: metadata and rows."""

    def read(path):
        [found] = importers.find_results(path)
        run_dir = importers.convert(found, tmp_path / "scratch")
        return json.loads((run_dir / "metadata.json").read_bytes()), lines(run_dir / "results.jsonl")

    return read


@pytest.fixture
def copied(tmp_path):
    """Copies a folder of results; the copy may be damaged."""
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy" / folder.name))


class TestScores:
    @pytest.mark.parametrize("task", TASKS)
    def test_every_score_mean_and_standard_error_is_that_of_lm_eval(self, read, task):
        metadata, rows = read(samples_of(task, TASKS[task]))
        samples, scores = lines(samples_of(task, TASKS[task])), scores_of(task, TASKS[task])
        has_filters = len({sample["filter"] for sample in samples}) > 1
        found = {}
        for sample in samples:
            for metric in sample["metrics"]:
                name = f"{metric},{sample['filter']}"
                found.setdefault(sample["doc_id"], {})[name if has_filters else metric] = sample[metric]
                assert metadata["avg_metrics"][name if has_filters else metric] == pytest.approx(
                    scores[name], rel=1e-12
                )
        assert {row["example_id"]: row["metrics"] for row in rows} == found
        first = samples[0]["metrics"][0]
        chosen = {"gsm8k_maj": "score-first", "arc_easy": "none"}.get(task, samples[0]["filter"])
        assert metadata["original"]["reward"] == (f"{first},{chosen}" if has_filters else first)
        assert metadata["avg_reward"] == pytest.approx(scores[f"{first},{chosen}"], rel=1e-12)
        assert metadata["stderr"] == pytest.approx(scores[f"{first}_stderr,{chosen}"], rel=1e-12)
        assert metadata["original"]["scores"] == scores

    def test_perplexities_follow_from_log_likelihoods_and_weights(self, read):
        metadata, rows = read(samples_of("wikitext", HASHED))
        scores = scores_of("wikitext", HASHED)
        for name in ("word_perplexity", "byte_perplexity"):
            total, weight = (
                sum(row["metrics"][f"{name}.{part}"] for row in rows) for part in ("loglikelihood", "weight")
            )
            assert math.exp(-total / weight) == pytest.approx(scores[f"{name},none"])
        assert [row["reward"] for row in rows] == [
            float(one["resps"][0][0]) for one in lines(samples_of("wikitext", HASHED))
        ]
        assert metadata["original"]["reward"] == "word_perplexity.loglikelihood"
        assert metadata["original"]["higher_is_better"]["word_perplexity"] is False
        assert {row["completion"] for row in rows} == {None}

    def test_the_mean_of_a_group_follows_from_its_tag(self, tmp_path, importers):
        warehouse = Warehouse(tmp_path / "warehouse")
        list(importers.import_all(warehouse, [HASHED]))
        means = "sum(avg_reward * scored) / sum(scored), any_value(metadata -> 'original' -> 'groups' -> 'mmlu_two')"
        [(mean, theirs)] = warehouse.query(f"SELECT {means} FROM runs WHERE list_contains(tags, 'mmlu_two')").rows
        assert mean == pytest.approx(json.loads(theirs)["acc,none"])


def test_rows_of_a_multiple_choice_a_chat_with_two_filters_several_responses_and_a_few_shot_text(read):
    metadata, rows = read(samples_of("arc_easy", HASHED))
    [first, *_] = lines(samples_of("arc_easy", HASHED))
    row, texts = rows[0], first["doc"]["choices"]["text"]
    assert row["prompt"] == [{"role": "user", "content": f"Question: {first['doc']['question']}\nAnswer:"}]
    likely = [float(resp[0][0]) for resp in first["resps"]]
    assert [(one["text"], one["loglikelihood"]) for one in row["choices"]] == list(zip(texts, likely, strict=True))
    assert row["completion"] == [{"role": "assistant", "content": texts[likely.index(max(likely))]}]
    assert (row["answer"], row["info"]) == (texts[0], first["doc"])
    assert (metadata["env_id"], metadata["model"], metadata["env_version"]) == ("arc_easy", "acme/hashed", "1.0")
    assert metadata["env_args"] == {"num_fewshot": 0}
    assert metadata["status"] == "completed"
    assert metadata["version_info"] == {"lm_eval_version": "0.4.13"}
    metadata, rows = read(samples_of("gsm8k", RECORDED))
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert rows[0]["completion"][0]["content"].endswith("A: 224")
    assert rows[0]["filtered_resps"] == {"strict-match": ["[invalid]"], "flexible-extract": ["224"]}
    assert metadata["base_url"] == "http://127.0.0.1:8742/v1/chat/completions"
    assert metadata["env_args"]["system_instruction"] == "Be brief."
    assert metadata["sampling_args"]["temperature"] == 0.0
    assert rows[0]["timing"] == {"generation_ms": None, "scoring_ms": None, "total_ms": None}
    _, rows = read(samples_of("gsm8k_maj", RECORDED))
    assert len(rows[0]["resps"][0]) == 4
    assert rows[0]["completion"][0]["content"] == rows[0]["resps"][0][0]
    _, rows = read(samples_of("gsm8k_two_shot", RECORDED))
    for row, sample in zip(rows, lines(samples_of("gsm8k_two_shot", RECORDED))[: len(rows)], strict=True):
        shots, question = (message["content"] for message in row["prompt"])
        assert shots + question == sample["arguments"]["gen_args_0"]["arg_0"]
        assert question == f"Question: {row['info']['question']}\nAnswer:"


class TestFiles:
    def test_a_folder_has_a_run_for_each_task_and_importing_twice_changes_nothing(self, tmp_path, importers):
        before = {path: path.read_bytes() for path in RESULTS.rglob("*.json*")}
        warehouse = Warehouse(tmp_path / "warehouse")
        found = list(importers.import_all(warehouse, [RESULTS]))
        assert sorted(one.env_id for one in found) == sorted([*TASKS, "wikitext"])
        assert {(one.kind, one.novelty, one.error) for one in found} == {("lm-eval", "new", None)}
        assert {one.novelty for one in importers.import_all(warehouse, [RESULTS])} == {"already there"}
        assert {path: path.read_bytes() for path in RESULTS.rglob("*.json*")} == before

    def test_a_results_file_stands_for_its_samples(self, importers):
        [path] = HASHED.glob("results_*.json")
        assert len(list(importers.find_results(path))) == 5
        [path, _] = sorted(RECORDED.glob("results_*.json"))
        assert {one.path.name.split("_2026")[0] for one in importers.find_results(path)} == {
            "samples_gsm8k_maj", "samples_gsm8k_two_shot",
        }  # fmt: skip

    def test_unreadable_rows_are_named_and_the_others_are_imported(self, copied, tmp_path, importers):
        path = samples_of("arc_easy", copied(HASHED))
        first, second, third = path.read_text("utf-8").splitlines()
        graded = json.dumps(json.loads(second) | {"acc": "high"})
        path.write_text(f'{first}\n{{"doc_id": 1}}\n{graded}\n{third[:100]}')
        [found] = importers.import_all(Warehouse(tmp_path / "warehouse"), [path])
        assert (found.rollouts, found.error, found.novelty) == (1, None, "new")
        assert [one.partition(" is ")[0] for one in found.unreadable] == [
            f"{path}, line {number}" for number in (2, 3, 4)
        ]

    def test_a_damaged_results_file_and_a_file_without_samples_are_errors(self, copied, tmp_path, importers):
        folder = copied(RECORDED)
        damaged, _ = sorted(folder.glob("results_*.json"))
        damaged.write_text(damaged.read_text()[:1000])
        samples_of("gsm8k", folder).write_text('{"doc_id": 18446744073709551616, "arguments": [["2+2?"]]}\n')
        found = list(importers.import_all(Warehouse(tmp_path / "warehouse"), [folder]))
        assert ["is damaged" in one.error for one in found] == [False, True, True]
        assert "has no sample" in found[0].error
        assert "line 1 is not a sample of lm-eval" in found[0].error
        folder = copied(HASHED)
        for path in folder.glob("samples_*"):
            path.unlink()
        [found] = importers.import_all(Warehouse(tmp_path / "warehouse"), [folder])
        assert "no file of samples" in found.error
        assert "--log_samples" in found.error

    def test_samples_without_a_results_file_are_a_run_of_an_unknown_model(self, copied, read):
        path = samples_of("gsm8k", copied(RECORDED))
        for results in path.parent.glob("results_*"):
            results.unlink()
        metadata, rows = read(path)
        assert (metadata["env_id"], metadata["model"], metadata["started_at"]) == ("gsm8k", None, None)
        assert set(rows[0]["metrics"]) == {"exact_match,strict-match", "exact_match,flexible-extract"}

    def test_the_names_of_the_oldest_versions(self, copied, read):
        """Version 0.4.0 wrote no dates, lists as arguments, and neither filters nor the names of metrics."""
        folder = copied(HASHED)
        path = samples_of("arc_easy", folder)
        old = folder / "pretrained__acme__hashed_arc_easy.jsonl"
        rows = [
            {name: value for name, value in row.items() if name not in {"filter", "metrics"}}
            | {"arguments": [list(one.values()) for one in row["arguments"].values()]}
            for row in lines(path)
        ]
        old.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        [results] = folder.glob("results_*.json")
        results.rename(folder / "results.json")
        expected, _ = read(samples_of("arc_easy", HASHED))
        metadata, _ = read(old)
        compared = ("env_id", "model", "avg_reward", "avg_metrics", "stderr", "run_id")
        assert [metadata[name] for name in compared] == [expected[name] for name in compared]

    def test_rows_without_the_name_of_their_filter_have_the_order_of_the_filters(self, copied, read):
        path = samples_of("gsm8k", copied(RECORDED))
        expected, _ = read(path)
        rows = [{name: value for name, value in row.items() if name != "filter"} for row in lines(path)]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        metadata, _ = read(path)
        assert (metadata["avg_metrics"], metadata["avg_reward"]) == (expected["avg_metrics"], expected["avg_reward"])

    def test_other_json_files_are_not_results(self, tmp_path, importers):
        (tmp_path / "results.json").write_text('{"results": {}}')
        (tmp_path / "other.jsonl").write_text("{}\n")
        with pytest.raises(WarehouseError, match=r"samples_\*\.jsonl"):
            list(importers.find_results(tmp_path))


def test_a_task_is_compared_with_a_run_of_nightjar_without_an_import(run_writer, tmp_path):
    questions = [row["doc"] for row in lines(samples_of("gsm8k_two_shot", RECORDED))[:4]]
    rows = [
        run_writer.rollout(
            number, 0, prompt=[{"role": "user", "content": doc["question"]}], answer=doc["answer"].split("#### ")[1],
            example_hash=f"own-{number}",
        )
        for number, doc in enumerate(questions)
    ]  # fmt: skip
    mine = run_writer.write(tmp_path / "mine", rows, run_id="mine", num_examples=4, rollouts=4, scored=4, failed=0)
    for task in ("gsm8k", "gsm8k_two_shot"):
        found = analysis.compare_runs(samples_of(task, RECORDED), mine)
        assert (found.pairs, found.paired_by, found.unpaired) == (4, {"question": 4}, [])
    with analysis.selected([HASHED], Warehouse(tmp_path / "none"), each=True) as (_, [run_ids]):
        assert len(run_ids) == 5

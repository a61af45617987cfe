"""``nightjar env list`` and ``nightjar data get``: what benchmarks there are, and their data ahead of a run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import app
from nightjar.environments.packages.catalog import built_in_packages

LICENSES = {"MIT", "CC BY 4.0", "CC BY-SA 4.0", "unknown", "not stated", None}


@pytest.fixture
def nightjar(tmp_path, monkeypatch):
    """Types a command in an empty folder; ``datasets`` takes a repository that is a folder there for one of the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.fixture
def math500(tmp_path):
    folder = tmp_path / "HuggingFaceH4" / "MATH-500"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n')


def listed(ended):
    assert ended.exit_code == 0
    return {row["env_id"]: row for row in json.loads(ended.stdout)}


def test_each_benchmark_says_what_it_is_and_where_its_data_is(nightjar):
    rows = listed(nightjar("env", "list", "--json"))
    assert set(rows) >= {package.env_id for package in built_in_packages()}
    built_in = [row for row in rows.values() if row["origin"] == "built-in"]
    assert {row["data_license"] for row in built_in} == LICENSES
    assert all(row["description"].endswith(".") for row in built_in)
    assert (rows["arithmetic"]["data"], rows["gpqa"]["data"], rows["mgsm"]["data"]) == ("generated", "gated", "not yet")
    assert (rows["mmlu-pro"]["num_examples"], len(rows["mgsm"]["data_files"])) == (12_032, 11)


def test_the_table_fits_and_nothing_is_cut_off_and_names_are_whole_in_any_terminal(nightjar, monkeypatch):
    assert nightjar("env", "init", "quite-a-long-name").exit_code == 0
    for columns in (20, 40, 72, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = nightjar("env", "list").stdout.splitlines()
        words = {word for line in lines for word in line.split()[:1]}
        assert words >= {"quite-a-long-name", *(package.env_id for package in built_in_packages())}
        if columns == 80:
            [gpqa] = [line for line in lines if line.strip().startswith("gpqa")]
            assert gpqa.split()[-5:] == ["198", "CC", "BY", "4.0", "gated"]
            assert max(len(line.rstrip()) for line in lines) <= 80
            assert not any("…" in line for line in lines)


def test_data_is_fetched_once_and_then_here(nightjar, math500):
    first, again = nightjar("data", "get", "math500", "--json"), nightjar("data", "get", "math500", "MATH500", "--json")
    [fetched], [here] = json.loads(first.stdout), json.loads(again.stdout)
    assert (fetched["outcome"], here["outcome"], here["files"]) == ("fetched", "here", fetched["files"])
    assert json.loads(Path(here["files"][0]).read_text()) == {"problem": "1+1?", "answer": "2"}
    assert listed(nightjar("env", "list", "--json"))["math500"]["data"] == "here"
    assert nightjar("env", "validate", "math500").exit_code == 0


def test_all_that_a_benchmark_can_be_asked_to_read_is_fetched(nightjar, tmp_path):
    folder = tmp_path / "TIGER-Lab" / "MMLU-Pro"
    folder.mkdir(parents=True)
    row = {"question": "1+1?", "options": ["2", "3"], "answer": "A", "category": "math", "cot_content": "A: 2."}
    for split in ("test", "validation"):
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    [fetched] = json.loads(nightjar("data", "get", "mmlu-pro", "--json").stdout)
    assert [Path(file).stem for file in fetched["files"]] == ["test", "validation"]
    asked = ["-a", '{"num_few_shot": 5}']
    assert nightjar("env", "validate", "mmlu-pro", *asked).exit_code == 0


def test_words_of_wordle_are_data_too(nightjar, tmp_path, monkeypatch):
    nltk = pytest.importorskip("nltk", reason="needs the extra 'textarena'")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    assert listed(nightjar("env", "list", "--json"))["wordle"]["data"] == "not yet"
    for folder in ("corpora/words", "taggers/averaged_perceptron_tagger_eng"):
        (tmp_path / folder).mkdir(parents=True)
    assert listed(nightjar("env", "list", "--json"))["wordle"]["data"] == "here"
    assert nightjar("data", "get", "wordle").exit_code == 0


def test_the_error_names_what_cannot_be_fetched_and_the_others_are_fetched(nightjar, math500, tmp_path):
    (tmp_path / "Idavidrein" / "gpqa").mkdir(parents=True)
    ended = nightjar("data", "get", "gpqa", "math500", "arithmetic")
    assert (ended.exit_code, "gpqa: Cannot load dataset 'Idavidrein/gpqa'" in ended.stderr) == (1, True)
    assert "accept the terms" in ended.stderr
    assert "2 of 3 here" in ended.stderr
    assert listed(nightjar("env", "list", "--json"))["math500"]["data"] == "here"


def test_data_that_cannot_be_kept_is_an_error(nightjar, math500, tmp_path):
    (tmp_path / "cache").write_text("no folder")
    ended = nightjar("data", "get", "math500")
    assert (ended.exit_code, "Cannot store dataset 'HuggingFaceH4/MATH-500'" in ended.stderr) == (1, True)


def test_names_that_there_are_not_are_usage_errors(nightjar):
    for words, said in (("nonsense", "'nonsense'"), ("", "--all"), ("gsm8k --all", "or use --all")):
        ended = nightjar("data", "get", *words.split())
        assert (ended.exit_code, said in ended.stderr) == (2, True)


def test_a_hub_that_cannot_be_reached_is_asked_once(nightjar, math500, monkeypatch):
    assert nightjar("data", "get", "math500").exit_code == 0
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    ended = nightjar("data", "get", "gsm8k", "math500", "mgsm", "--json")
    outcomes = [(row["outcome"], (row["error"] or "")[:30]) for row in json.loads(ended.stdout)]
    assert ended.exit_code == 1
    assert outcomes == [
        ("failed", "Cannot load dataset 'openai/gs"), ("here", ""), ("failed", "Not tried, as the hub cannot b"),
    ]  # fmt: skip

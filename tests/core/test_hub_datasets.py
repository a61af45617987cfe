"""Datasets of the hub: loaded by ``datasets`` once, from Nightjar's cache from then on."""

import json
import subprocess
import sys

import pytest

from nightjar.environments.data import BenchmarkData, load_hub_dataset
from nightjar.environments.data.hub import fetch_hub_dataset
from nightjar.errors import DatasetError

ROWS = [{"question": "1+1?", "answer": "2"}, {"question": "Wie viele Äpfel?", "answer": "3"}]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A dataset repository in a folder, which ``datasets`` loads as it loads one of the hub."""
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_second_time_does_not_even_import_datasets(repository):
    code = (
        "import sys\nfrom nightjar.environments.data import load_hub_dataset\n"
        f"print(len(load_hub_dataset({str(repository)!r}, None, 'test')), 'datasets' in sys.modules)"
    )
    for said in ("2 True\n", "2 False\n"):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ended.stdout == said
    assert load_hub_dataset(str(repository), None, "test") == ROWS


def test_a_folder_that_cannot_be_written_is_named_before_the_hub_is_asked(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DatasetError, match=r"Cannot store dataset 'nobody/nothing' in '.*cache.*NIGHTJAR_CACHE"):
        fetch_hub_dataset("nobody/nothing", None, "test")


@pytest.mark.slow
def test_a_dataset_that_cannot_be_had_is_one_clear_error(repository):
    with pytest.raises(DatasetError, match=r"split 'train'.*Unknown split"):
        load_hub_dataset(str(repository), None, "train")
    with pytest.raises(DatasetError, match=r"split 'train'.*Without a network, pass a file"):
        BenchmarkData(str(repository), 2, "MIT", (), split="train").rows()

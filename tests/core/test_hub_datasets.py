"""Datasets of the hub: loaded by ``datasets`` once, from Nightjar's cache from then on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nightjar.environments.data import BenchmarkData, load_hub_dataset
from nightjar.environments.data.sources import fetch_hub_dataset
from nightjar.errors import DatasetError

ROWS = [{"question": "1+1?", "answer": "2"}, {"question": "Wie viele Äpfel?", "answer": "3"}]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset repository in a folder, which ``datasets`` loads as it loads one of the hub."""
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hf"))
    folder = tmp_path / "repository"
    folder.mkdir()
    lines = '{"question": "1+1?", "answer": "2"}\n{"question": "Wie viele Äpfel?", "answer": "3"}\n'
    (folder / "test.jsonl").write_text(lines, encoding="utf-8")
    return folder


def load_in_new_process(repository: Path) -> str:
    code = f"""
import sys
from nightjar.environments.data import BenchmarkData, load_hub_dataset
print(len(load_hub_dataset({str(repository)!r}, None, "test")), "datasets" in sys.modules)
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_second_time_does_not_even_import_datasets(repository: Path) -> None:
    assert load_in_new_process(repository) == "2 True\n"
    assert load_in_new_process(repository) == "2 False\n"
    assert load_hub_dataset(str(repository), None, "test") == ROWS


def test_a_folder_that_cannot_be_written_is_named_before_the_hub_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("NIGHTJAR_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DatasetError, match=r"Cannot store dataset 'nobody/nothing' in '.*cache.*NIGHTJAR_CACHE"):
        fetch_hub_dataset("nobody/nothing", None, "test")


def test_a_dataset_that_cannot_be_had_is_one_clear_error(repository: Path) -> None:
    with pytest.raises(DatasetError, match=r"split 'train'.*Unknown split"):
        load_hub_dataset(str(repository), None, "train")
    with pytest.raises(DatasetError, match=r"split 'train'.*Without a network, pass a file"):
        BenchmarkData(str(repository), 2, "MIT", (), split="train").rows()

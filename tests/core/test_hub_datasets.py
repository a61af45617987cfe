"""Datasets of the hub: loaded by ``datasets`` once, from Nightjar's cache from then on."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from textwrap import dedent
from threading import Thread
from urllib.parse import unquote, urlsplit

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


BRANCH = "refs/convert/parquet"
FILES = ("main/test/0000.parquet", "main/test/0001.parquet", "main/train/0000.parquet", "socratic/test/0000.parquet")
WITHOUT_LIBRARY = """
    import json, sys
    sys.modules["datasets"] = sys.modules["pyarrow"] = None
    from nightjar.environments.data import load_hub_dataset
    print(json.dumps(load_hub_dataset("openai/gsm8k", sys.argv[1] or None, sys.argv[2])))
"""


@pytest.fixture
def hub(tmp_path):
    """A hub with the Parquet files of a dataset; each has one row, which names the file."""
    import pyarrow as pa
    from pyarrow import parquet

    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        row = {"question": file, "number": 7, "choices": {"text": ["a", "b"]}, "missing": None}
        parquet.write_table(pa.Table.from_pylist([row]), tmp_path / file)

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            path = unquote(urlsplit(self.path).path)
            if path == f"/api/datasets/openai/gsm8k/tree/{BRANCH}":
                tree = [{"type": "file", "path": file, "size": 1, "oid": "0" * 40} for file in FILES]
                self.answer(json.dumps(tree).encode())
            elif path.startswith(prefix := f"/datasets/openai/gsm8k/resolve/{BRANCH}/"):
                self.answer((tmp_path / path.removeprefix(prefix)).read_bytes())
            else:
                self.answer(b'{"error": "Repository not found"}', 404)

        def answer(self, content, status=200):
            self.send_response(status)
            headers = {"X-Repo-Commit": "0" * 40, "ETag": f'"{hash(content)}"', "Content-Length": len(content)}
            for name, value in headers.items():
                self.send_header(name, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "split", "expected"),
    [
        ("main", "test", ["main/test/0000.parquet", "main/test/0001.parquet"]),
        ("main", "dev", "no Parquet files of split 'dev', found test, train"),
        ("", "test", "no Parquet files of configuration 'default', found main, socratic"),
    ],
)
def test_without_the_library_rows_come_from_the_parquet_files_of_the_hub(fork, hub, tmp_path, config, split, expected):
    env = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "hf"), "NIGHTJAR_CACHE": str(tmp_path / "cache")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    stdout, stderr = fork.python(dedent(WITHOUT_LIBRARY), config, split, env=env, **pipes).communicate()
    if isinstance(expected, str):
        assert f"{expected}. For other datasets: pip install 'nightjar-evals[datasets]'" in stderr
    else:
        found = json.loads(stdout)
        assert [row["question"] for row in found] == expected, stderr
        assert found[0] == {"question": expected[0], "number": 7, "choices": {"text": ["a", "b"]}, "missing": None}

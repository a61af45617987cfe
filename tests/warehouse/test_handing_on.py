"""``nightjar export``: the page that opens offline, and the log for Inspect."""

import json
import re
from datetime import UTC, datetime

import pytest

from nightjar.core.process_ids import process_host
from nightjar.warehouse import Warehouse
from nightjar.warehouse.storage.records import NOTES, Note

HOSTILE = "</style><script>alert(1)</script>"


@pytest.fixture
def run_dir(tmp_path, run_writer):
    completion = [
        {
            "role": "assistant", "content": [{"type": "text", "text": "I add."}], "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "c1", "name": "add", "arguments": '{"a": 2}'},
                {"id": "c2", "name": "add", "arguments": "{a"},
                {"id": "c3", "name": "add", "arguments": "[" * 5_000},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": f"4 {HOSTILE}"},
    ]  # fmt: skip
    rollouts = [run_writer.rollout(0, 0, 1.0, completion=completion), *run_writer.rollouts[1:]]
    return run_writer.write(tmp_path / "run", rollouts, run_id="r1", started_at="2026-01-02T03:04:05+00:00")


def test_a_page_has_figures_and_samples_up_to_a_limit_and_needs_nothing_else(run_dir, nightjar, tmp_path):
    ended = nightjar("export", run_dir, "--html", tmp_path / "run.html")
    assert (ended.code, ended.out) == (0, f"Wrote {tmp_path / 'run.html'}: 4 of 4 rollouts\n")
    page = (tmp_path / "run.html").read_text()
    assert page.count("<script") == 1  # of Nightjar, which shows rendered or raw texts
    assert not re.search(r"<link (?!rel=\"icon\" href=\"data:)|src=|@import|https?://", page)
    policy = r"default-src 'none'; script-src 'sha256-[^']+'; style-src 'unsafe-inline'; img-src data:"
    assert re.search(policy, page)
    assert re.findall(r'id="r-(\d+-\d+)"', page) == ["0-0", "0-1", "1-0", "1-1"]
    assert "&lt;/style&gt;&lt;script&gt;alert(1)" in page
    nightjar("export", run_dir, "--html", tmp_path / "run.html", "--limit", 3)
    page = (tmp_path / "run.html").read_text()
    assert re.findall(r'id="r-(\d+-\d+)"', page) == ["0-0", "0-1"]
    assert "The first 2 of 4 rollouts." in page


def test_a_log_has_every_score_and_message_as_inspect_calls_them(run_dir, run_writer, nightjar, tmp_path):
    assert nightjar("export", run_dir, "--inspect-log", tmp_path / "logs").code == 0
    [path] = (tmp_path / "logs").iterdir()
    assert path.name == "2026-01-02T03-04-05+00-00_gsm8k_r1.json"
    log = json.loads(path.read_text())
    assert (log["version"], log["status"], log["eval"]["task"]) == (2, "success", "gsm8k")
    assert list(log) == ["version", "status", "eval", "plan", "results", "stats", "samples"]
    found = [(s["id"], s["epoch"], {name: it["value"] for name, it in s["scores"].items()}) for s in log["samples"]]
    scores = [{"reward": reward, "correct": reward, "length": 12.0} for reward in (1.0, 0.0, 0.5)]
    assert found == [(0, 1, scores[0]), (0, 2, scores[1]), (1, 1, scores[2]), (1, 2, {})]
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (4, 3)
    assert log["results"]["scores"][0]["metrics"]["mean"] == {"name": "mean", "value": 0.5}
    said = log["samples"][0]["messages"][1:]
    assert [part["type"] for part in said[0]["content"]] == ["reasoning", "text"]
    assert [call["arguments"] for call in said[0]["tool_calls"]] == [{"a": 2}, {"text": "{a"}, {"text": "[" * 5_000}]
    assert said[1] == {"role": "tool", "content": "4", "tool_call_id": "c1"}
    assert run_writer.failure["message"] in log["samples"][3]["error"]["message"]


def test_notes_are_exported(run_dir, nightjar, tmp_path):
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.publish(run_dir, tidies=False)
    written = datetime(2026, 1, 2, tzinfo=UTC)
    warehouse.write_rows(NOTES, [Note("n1", "r1", 0, 1, "wrong grade", "Zoë", written, f"It is 4. {HOSTILE}", 1.0)])
    where = ("--warehouse", warehouse.location)
    assert nightjar("export", run_dir, *where, "--html", tmp_path / "run.html").code == 0
    page = re.sub(r"<[^>]*>", "", (tmp_path / "run.html").read_text())
    assert "Rollouts with notes: 1. All numbers use the recorded rewards." in page
    assert "wrong grade: reward should be 1.0000 Zoë, 2026-01-02 00:00 It is 4. &lt;/style&gt;" in page
    assert nightjar("export", run_dir, *where, "--inspect-log", tmp_path / "logs").code == 0
    [path] = (tmp_path / "logs").iterdir()
    notes = [sample["metadata"].get("notes") for sample in json.loads(path.read_text())["samples"]]
    assert [bool(found) for found in notes] == [False, True, False, False]
    assert (notes[1][0]["mark"], notes[1][0]["overruled_reward"]) == ("wrong grade", 1.0)


def test_a_run_that_went_on_and_was_killed_is_crashed_and_newer_than_the_warehouse_has(
    run_dir, nightjar, tmp_path, fork
):
    house = Warehouse(tmp_path / "warehouse")
    house.publish(run_dir, tidies=False)
    where = ("--warehouse", house.location)
    assert nightjar("export", "r1", *where, "--html", tmp_path / "before.html").code == 0
    metadata = json.loads((run_dir / "metadata.json").read_text())
    (run_dir / "metadata.json").write_text(json.dumps({**metadata, "status": "running"}))
    gone = fork.python("")
    gone.wait()
    (run_dir / ".lock").write_text(f"process {gone.pid} on {process_host()}")
    files = ("--html", tmp_path / "run.html", "--inspect-log", tmp_path / "log.json")
    assert nightjar("export", "r1", *where, *files).code == 0
    assert re.search(r"status-crashed[^>]*>crashed<", (tmp_path / "run.html").read_text())
    told = [name for name in ("before", "run") if "newer than the warehouse" in (tmp_path / f"{name}.html").read_text()]
    assert told == ["run"]
    assert json.loads((tmp_path / "log.json").read_text())["status"] == "error"


def test_an_export_of_a_killed_run_says_what_was_planned(run_dir, nightjar, tmp_path):
    metadata = json.loads((run_dir / "metadata.json").read_text())
    (run_dir / "metadata.json").write_text(json.dumps({**metadata, "num_examples": 5, "rollouts": 10}))
    ended = nightjar("export", run_dir, "--html", tmp_path / "run.html", "--inspect-log", tmp_path / "log.json")
    assert ended.err.count("The run is not complete: 6 of 10 planned rollouts are missing\n") == 2
    log = json.loads((tmp_path / "log.json").read_text())
    assert log["eval"]["dataset"]["samples"] == 5
    assert log["results"] | {"scores": []} == {"total_samples": 10, "completed_samples": 3, "scores": []}


def test_a_page_replaces_only_a_page_of_the_same_run_and_other_errors_are_named(run_dir, nightjar, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<p>mine</p>")
    kept = nightjar("export", run_dir, "--html", path)
    assert (kept.code, path.read_text()) == (1, "<p>mine</p>")
    assert "is not a page of run 'r1' by Nightjar, so it is kept" in kept.err
    path.unlink()
    assert [nightjar("export", run_dir, "--html", path).code for _ in range(2)] == [0, 0]
    assert nightjar("export", run_dir).code == 2
    ended = nightjar("export", run_dir, "--html", tmp_path / "missing" / "run.html")
    assert (ended.code, "Cannot write" in ended.err) == (1, True)

"""Runs that are still being written, and the first page, in the web view."""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from nightjar.core.process_ids import process_host


@pytest.fixture
def view(live_view, run_writer):
    """A client of a view of a run in progress. No page shows a time or a rate that changes with the clock."""
    rollouts = [run_writer.rollout(0, 0, 1.0), run_writer.rollout(0, 1, 0.0)]
    failed = run_writer.attempt(0, 0, 1, error=run_writer.failure, finished_at=0.0)
    attempts = [failed, run_writer.attempt(0, 0, 2, finished_at=0.0)]
    return live_view(rollouts, attempts, started_at="2020-01-01T00:00:00Z")


def add(view, *rows, name="results.jsonl", end="\n"):
    """Adds lines to a file of the run; those that are text as they are."""
    with (view.folder / name).open("a") as file:
        file.write("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + end)


def test_a_run_in_progress_is_listed_and_only_added_lines_and_replaced_files_are_read(view, run_writer):
    told = view.get("/").text
    assert [word for word in ("In progress", "2 of 4", "0.5000", "attempts: 1") if word not in told] == []
    whole = json.dumps(run_writer.rollout(1, 0, 1.0))
    add(view, "damaged", whole[:20], end="")
    assert "2 of 4" in view.get("/live").text
    add(view, whole[20:], run_writer.failed(1, 1))
    words = view.words("/live/run")
    for said in ("Scored 3 of 4", "Failed 1 ", "429 Too Many Requests"):
        assert said in words
    add(view, run_writer.rollout(1, 1, 1.0))  # a repeated rollout counts once
    assert "Scored 4 of 4 Reward so far 0.7500 Failed 0 " in view.words("/live/run")
    new = view.folder / "new"
    new.write_text(json.dumps(run_writer.rollout(7, 0, 1.0)) + "\n")
    new.replace(view.folder / "results.jsonl")
    assert "1 of 4" in view.get("/live").text


def test_changes_are_sent_as_events(view, run_writer):
    looks = iter(range(4))

    def is_ending():
        look = next(looks)
        if look == 2:  # one event is sent, and nothing was new after it
            add(view, run_writer.rollout(1, 0, 1.0))
        return look == 3

    view.app.state.is_ending = is_ending
    told = view.get("/live/run", headers={"accept": "text/event-stream"})
    assert told.headers["content-type"].startswith("text/event-stream")
    assert [re.search(r"(\d) of 4", event)[0] for event in told.text.split("\n\n")[:-1]] == ["2 of 4", "3 of 4"]


def test_the_page_of_a_run_shows_results_once_it_is_published(view, run_writer):
    assert 'data-live="/live/run"' in view.get("/runs/run").text
    run_writer.write(view.folder, run_id="run", status="incomplete")
    assert "4 of 4" in view.get("/live").text
    assert "Incomplete" in view.get("/live/run").text
    assert "3 of 4" in view.get("/runs/run").text
    view.app.state.warehouse.publish(view.folder, tidies=False)
    assert view.get("/live/run").text.strip() == view.get("/live").text.strip() == ""
    assert "Numbers" in view.get("/runs/run").text


def test_a_new_run_is_found_by_its_address_at_once(view, run_writer, monkeypatch):
    view.get("/live")
    monkeypatch.setattr("nightjar.view.live._SEARCH_SECONDS", 1e9)
    run_writer.write(view.folder.parent / "new", run_id="new", status="running")
    assert "new" not in view.get("/live").text
    assert "3 of 4" in view.get("/runs/new").text


def test_samples_and_rollouts_are_shown_before_the_run_is_published(view, run_writer):
    said = [{"role": "assistant", "content": "4 < 5"}]
    add(view, run_writer.rollout(1, 1, 0.0, completion=said), run_writer.failed(2, 0))
    assert '<a href="/runs/run/2/0">2</a>' in view.get("/live/run").text
    assert view.links("/runs/run/samples") == ["/runs/run/0/1", "/runs/run/1/1", "/runs/run/2/0"]
    assert view.links("/runs/run/samples?show=failed") == ["/runs/run/2/0?show=failed"]
    told = view.get("/runs/run/1/1").text
    assert "4 &lt; 5" in told
    assert "This run is not published yet" in told
    assert run_writer.failure["message"] in view.get("/runs/run/2/0").text
    assert view.get("/runs/run/1/1?raw=1").json()["completion"] == said
    assert "Conversation" not in view.get("/runs/run/9/9").text
    assert "so far" not in view.get("/runs/other/samples").text


def test_a_page_can_be_written_while_its_run_grows(view, run_writer):
    run = view.app.state.live.find("run")
    shown = iter(run.latest)
    next(shown)
    add(view, run_writer.rollout(1, 0, 1.0))
    assert "3 of 4" in view.get("/live/run").text
    assert len(list(shown)) == 1


def test_a_folder_that_is_removed_between_two_looks_at_the_disk_is_no_error(view, monkeypatch):
    view.get("/live")
    metadata = view.folder / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"running"', '"completed"'))
    assert "run" in view.get("/live").text
    monkeypatch.setattr("nightjar.view.live._UPDATE_SECONDS", 1e9)
    monkeypatch.setattr("nightjar.view.live._SEARCH_SECONDS", 1e9)
    shutil.rmtree(view.folder)
    assert [view.get(page).status_code for page in ("/", "/live", "/runs/run")] == [200] * 3


def test_crashed_and_unpublished_runs_are_listed_until_they_are_published(view, run_writer):
    assert "not published" not in view.get("/").text
    (view.folder / ".lock").write_text(f"process 4194305 on {process_host()}")
    ended = run_writer.write(view.folder.parent / "ended", run_id="ended", status="completed")
    an_hour_ago = time.time() - 3600
    os.utime(ended / "metadata.json", (an_hour_ago, an_hour_ago))
    told = view.get("/").text
    assert ("In progress" in told, "2 runs not published" in told) == (False, True)
    page = view.get("/runs/run").text
    assert ("Crashed" in page, "running" in page) == (True, False)
    assert f"nightjar publish {view.folder.relative_to(Path.cwd())}" in page
    assert "3 of 4" in view.get("/runs/ended").text
    assert view.get("/runs/ended/0/1").status_code == 200
    view.app.state.warehouse.publish(ended, tidies=False)
    assert "1 run not published" in view.get("/").text


def test_runs_are_shown_in_groups_with_their_history(house, browse):
    for number, model in enumerate(["m1", "m2", "m1", "m1"]):
        told = {"model": model, "started_at": f"2026-11-0{number + 1}T00:00:00Z", "avg_reward": number / 4}
        told["sampling_args"] = {"temperature": 1.0 if number == 3 else 0.0}  # another configuration: another line
        house.publish_rows(f"r{number}", coverage=1.0, **told)  # charts leave out runs with few scored rollouts
    view = browse(house.warehouse)
    groups = re.compile(r'scope="rowgroup" class="group">(\S+) <small>(.*?)</small>|href="/runs/(r\d)"')
    found = [next(filter(None, each)) for each in groups.findall(view.get("/?group=model").text)]
    assert found == ["m1", "r3", "r2", "r0", "m2", "r1"]
    nights = groups.findall(view.get("/?group=night").text)
    assert [night for night, *_ in nights if night] == ["2026-11-04", "2026-11-03", "2026-11-02", "2026-11-01"]
    assert view.get("/").text.count('aria-label="Rewards of the last 2 runs: 0.000 to 0.500, lowest 0.000"') == 2


DAMAGED_LINES = (
    "[]", "5", "null", "{}", '{"example_id": 1}', '{"example_id": [1], "rollout_index": 0, "reward": 1}',
    '{"example_id": 0, "rollout_index": 9, "reward": "x"}', '{"example_id": 0, "rollout_index": 9, "error": "x"}',
    '{"example_id": 0, "rollout_index": 9, "error": {"error": 5, "message": [1]}, "finished_at": "x"}',
)  # fmt: skip
DAMAGED_METADATA = (
    {"rollouts": "x"}, {"rollouts": None}, {"env_id": None}, {"env_id": [1]}, {"model": {"a": 1}}, {"started_at": 5},
    {"started_at": "9999-12-31T23:59:59-14:00"}, {"finished_at": "x", "status": "completed"},
)  # fmt: skip


def test_damaged_lines_and_metadata_fail_no_page(view):
    paths = ("/", "/live", "/runs/run", "/live/run")
    for line in DAMAGED_LINES:
        for name in ("results.jsonl", "attempts.jsonl"):
            add(view, line, name=name)
        for path in paths:
            page = view.get(path)
            assert (page.status_code, "In progress" in page.text) == (200, True), (line, path)
    metadata = view.folder / "metadata.json"
    written = json.loads(metadata.read_text())
    for told in DAMAGED_METADATA:
        metadata.write_text(json.dumps({**written, **told}))
        for path in paths:
            assert view.get(path).status_code in {200, 404}, (told, path)

"""Rollouts of agents in the web view: commands, logs, changed files, artifacts, and steps in progress."""

import json
import os
import re

import pytest

from nightjar.core.process_ids import process_host
from nightjar.view import live
from nightjar.warehouse import Warehouse

SCRIPT = "<script>document.title = 'taken'</script>"
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"


def call(number, name, **arguments):
    return {"id": str(number), "name": name, "arguments": json.dumps(arguments)}


def result(number, content):
    return {"role": "tool", "tool_call_id": str(number), "content": content}


TALK = [
    {"role": "assistant", "content": "I run it.", "tool_calls": [call(1, "bash", command="make test", timeout=5)]},
    result(1, f"\x1b[32mok\x1b[0m\n{SCRIPT}"),
    {"role": "assistant", "content": None, "tool_calls": [call(2, "write_file", path="x.py", content="a\nb")]},
    result(2, "written"),
]
COLUMNS = {
    "agent_steps": [{"turn": 0, "tool": "bash", "seconds": 1.5, "exit_code": 2},
                    {"turn": 1, "tool": "write_file", "seconds": 0.25, "exit_code": None}],
    "agent_log": "started", "verifier_log": "\x1b[31m1 failed\x1b[0m", "verifier_seconds": 12.5,
    "changed_files": DIFF,
    "artifacts": [{"path": "out/<a>.html", "file": "artifacts/0-0/a.html", "bytes": 41}],
    "image_digest": "sha256:abc", "task_name": "org/task",
}  # fmt: skip


@pytest.fixture
def write(tmp_path, run_writer):
    """Writes a run of one rollout with columns of the state, and an artifact."""

    def write(folder=tmp_path / "agent", run_id="agent", status="completed", completion=TALK, steps=None, **columns):
        rollout = run_writer.rollout(0, 0, 1.0, completion=completion, **columns)
        counts = {"rollouts": 1, "scored": 1, "failed": 0, "num_examples": 1}
        told = {"run_id": run_id, "status": status, "state_columns": list(columns), **counts}
        attempt = run_writer.attempt(0, 0)
        attempt["state"]["trajectory"] = steps
        run_writer.write(folder, [rollout], steps and [attempt], **told)
        (folder / "artifacts" / "0-0").mkdir(parents=True)
        (folder / "artifacts" / "0-0" / "a.html").write_text(SCRIPT)
        return folder

    return write


@pytest.fixture
def publish(tmp_path, write, browse):
    """Gives a client of a warehouse with such a run."""

    def publish(**columns):
        warehouse = Warehouse(tmp_path / "warehouse")
        warehouse.publish(write(**columns), tidies=False)
        return browse(warehouse)

    return publish


def test_a_rollout_is_shown_as_in_a_terminal(publish):
    view = publish(**COLUMNS)
    told, words = view.get("/runs/agent/0/0").text, view.words("/runs/agent/0/0")
    assert '<span class="sign">$ </span><b>make test</b>' in told
    assert "1.5 s exit 2" in words
    assert "250 ms write_file x.py" in words
    assert '<span class="f2">ok\n</span>' in told
    assert "<script>document" not in told
    for text in ("Agent&#39;s output", "Verifier <small>12.5 s", "<ins>+new\n</ins>", "org/task", "sha256:abc"):
        assert text in told
    assert "verifier_log" not in words


def test_a_step_shows_the_time_and_the_tokens_of_its_request(publish):
    asked = {"finish_reason": "stop", "usage": {"prompt_tokens": 1234, "completion_tokens": 56}}
    step = {"prompt": 0, "completion": 0, "is_truncated": False, "reward": None, "extras": {}}
    steps = [{**step, "response": asked, "latency_ms": 2500.0}, {**step, "response": None}]
    words = publish(steps=steps, **COLUMNS).words("/runs/agent/0/0")
    assert "assistant 2.5 s · 1,234 in · 56 out Copy 2 I run it." in words
    assert words.count(" in · ") == 1


def test_a_rollout_without_columns_of_agents_has_only_its_coloured_output_in_a_terminal(publish):
    told = publish(other="x").get("/runs/agent/0/0").text
    assert "<code>bash</code>" in told
    assert told.count('class="terminal') == 1
    assert [text for text in ("Verifier", "Artifacts") if text in told] == []


def test_an_exported_page_has_the_terminal_and_no_link_to_a_server(write, tmp_path, nightjar):
    assert nightjar("export", write(**COLUMNS), "--html", tmp_path / "run.html").code == 0
    told = (tmp_path / "run.html").read_text()
    assert [
        text for text in (".f196 {", '<span class="f1">1 failed', "<ins>+new", "&lt;a&gt;.html") if text not in told
    ] == []
    assert "/artifacts/" not in told
    assert "not on this machine" not in told


@pytest.mark.parametrize(
    ("name", "odd"),
    [("agent_steps", "x"), ("agent_steps", [{"turn": "x"}]), ("agent_steps", [{"seconds": -1}]), ("agent_log", [1]),
     ("verifier_seconds", "soon"), ("artifacts", {"a": 1}), ("artifacts", [{"path": 1}]), ("changed_files", {"a": 1})],
)  # fmt: skip
def test_a_column_of_another_type_is_shown_as_it_is(publish, name, odd):
    told = publish(**{name: odd}).get("/runs/agent/0/0").text
    assert f"<dt>{name}</dt>" in told
    assert "<code>bash</code>" in told


@pytest.mark.parametrize("arguments", ["{", "5", "[1]", '{"command": 5}', "null", '{"path": [1]}', ""])
def test_odd_calls_fail_no_page(publish, arguments):
    talk = [
        {"role": "assistant", "tool_calls": [{"id": "1", "name": "bash", "arguments": arguments}, {"id": "2"}, 5]},
        result(1, [{"type": "text", "text": "shown"}, {"type": "image_url"}, 7]),
    ]
    assert "shown" in publish(completion=talk, task_name="t").words("/runs/agent/0/0")


def test_an_artifact_is_saved_and_never_shown(publish):
    view = publish(**COLUMNS)
    [link] = re.findall(r'href="([^"]*/artifacts/[^"]*)"', view.get("/runs/agent/0/0").text)
    given = view.get(link)
    assert given.text == SCRIPT
    assert given.headers["content-type"] == "application/octet-stream"
    assert given.headers["content-disposition"] == "attachment; filename*=utf-8''%3Ca%3E.html"
    assert given.headers["x-content-type-options"] == "nosniff"
    assert [view.get(f"/runs/agent/0/0/artifacts/{number}").status_code for number in (-1, 1)] == [404, 404]


@pytest.mark.parametrize(
    "file", ["../secret", "metadata.json", "artifacts/../metadata.json", "/etc/passwd", "artifacts/link", "artifacts",
             "artifacts/0-0", "artifacts/none", "artifacts/\0", "a" * 10_000, "artifacts/out/secret"],
)  # fmt: skip
def test_no_other_file_is_served(publish, tmp_path, file):
    (tmp_path / "secret").write_text("secret")
    view = publish(artifacts=[{"path": "x", "file": file, "bytes": 1}])
    (tmp_path / "agent/artifacts/link").symlink_to(tmp_path / "secret")
    (tmp_path / "agent/artifacts/out").symlink_to(tmp_path)
    assert "x 1 bytes, not on this machine" in view.words("/runs/agent/0/0")
    assert view.get("/runs/agent/0/0/artifacts/0").status_code == 404


def test_a_folder_that_has_another_run_now_serves_no_artifact(publish, tmp_path):
    view = publish(**COLUMNS)
    metadata = tmp_path / "agent" / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"run_id": "agent"', '"run_id": "other"'))
    assert view.get("/runs/agent/0/0/artifacts/0").status_code == 404


class TestProgress:
    @pytest.fixture
    def view(self, tmp_path, write, monkeypatch, browse):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(live, "_UPDATE_SECONDS", 0.0)
        monkeypatch.setattr(live, "_SEARCH_SECONDS", 0.0)
        folder = write(tmp_path / "outputs/evals/agent--gpt/run", "run", "running", **COLUMNS)
        (folder / ".lock").write_text(f"process {os.getpid()} on {process_host()}")
        client = browse(Warehouse(tmp_path / "warehouse"))
        client.folder = folder
        return client

    def tell(self, view, *events, key="1-0"):
        (view.folder / "live").mkdir(exist_ok=True)
        with (view.folder / "live" / f"{key}.jsonl").open("ab") as file:
            for event in events:
                file.write(event if isinstance(event, bytes) else json.dumps({"at": 1e9} | event).encode() + b"\n")

    def test_steps_are_shown_while_they_happen(self, view):
        assert view.get("/runs/run/1/0").status_code == 404
        self.tell(view, {"kind": "message", "text": SCRIPT}, {"kind": "command", "text": "make"})
        assert '<a href="/runs/run/1/0">1</a>' in view.get("/live/run").text
        page = view.get("/runs/run/1/0").text
        assert 'data-live="/live/run/1/0"' in page
        assert "<script>document" not in page
        assert "running since 01:46:40 UTC" in page
        self.tell(
            view,
            {"kind": "output", "text": "10 %\r"},
            {"kind": "output", "text": "20 %", "seconds": 2.5, "exit_code": 1},
        )
        self.tell(view, {"kind": "verifier", "text": "\x1b[32mgo"}, {"kind": "verifier", "text": "od\x1b[0m"})
        words = view.words("/live/run/1/0")
        assert "2.5 s exit 1 $ make 20 % Verifier good" in words

    def test_damaged_lines_are_skipped_and_a_torn_line_waits(self, view):
        self.tell(view, b"damaged\n", b"[]\n", b'{"at": "x"}\n', b"[" * 100_000 + b"\n", {"kind": "later"})
        self.tell(view, b'{"at": 1, "kind": "output", "text": "\xff\\ud800"}\n', b'{"at": 1, "kind": "output"')
        assert view.words("/live/run/1/0") == "In progress \ufffd? running since 00:00:01 UTC"
        self.tell(view, b', "text": "end"}\n')
        assert "end" in view.words("/live/run/1/0")

    def test_a_page_of_a_long_rollout_is_short(self, view):
        self.tell(view, *({"kind": "command", "text": f"step {number}"} for number in range(1_000)))
        self.tell(view, {"kind": "output", "text": "x" * 1_000_000})
        told = view.get("/live/run/1/0").text
        assert len(told) < 200_000
        assert "step 999" in told
        self.tell(view, {"kind": "output", "text": "x" * 5_000_000})
        assert view.get("/live/run/1/0").status_code == 200

    def test_the_page_becomes_that_of_the_result(self, view, run_writer):
        self.tell(view, {"kind": "command", "text": "make"})
        (view.folder / "live" / "1-0.jsonl").unlink()
        assert "No output yet" in view.get("/live/run/1/0").text
        with (view.folder / "results.jsonl").open("a") as file:
            file.write(json.dumps(run_writer.rollout(1, 0, 1.0)) + "\n")
        assert view.get("/live/run/1/0").text.strip() == ""
        assert "Conversation" in view.get("/runs/run/1/0").text

    def test_a_scored_rollout_is_no_longer_in_progress(self, view):
        self.tell(view, {"kind": "command", "text": "make"}, key="0-0")
        assert "Rollouts in progress" not in view.get("/live/run").text
        assert "Verifier" in view.get("/runs/run/0/0").text
        assert view.get("/runs/run/0/0/artifacts/0").text == SCRIPT

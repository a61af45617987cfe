"""Rollouts of agents in the web view: commands, logs, changed files, artifacts, and steps in progress."""

import json
import re

import pytest

SCRIPT = "<script>document.title = 'taken'</script>"
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old\n+new\n"


def call(number, name, **arguments):
    return {"id": str(number), "name": name, "arguments": json.dumps(arguments)}


def add_artifact(folder):
    (folder / "artifacts" / "0-0").mkdir(parents=True)
    (folder / "artifacts" / "0-0" / "a.html").write_text(SCRIPT)


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
ODD_COLUMNS = (
    ("agent_steps", "x"), ("agent_steps", [{"turn": "x"}]), ("agent_steps", [{"seconds": -1}]), ("agent_log", [1]),
    ("verifier_seconds", "soon"), ("artifacts", {"a": 1}), ("artifacts", [{"path": 1}]), ("changed_files", {"a": 1}),
)  # fmt: skip
ODD_ARGUMENTS = ("{", "5", "[1]", '{"command": 5}', "null", '{"path": [1]}', "")
OTHER_FILES = (
    "../secret", "metadata.json", "artifacts/../metadata.json", "/etc/passwd", "artifacts/link", "artifacts",
    "artifacts/0-0", "artifacts/none", "artifacts/\0", "a" * 10_000, "artifacts/out/secret",
)  # fmt: skip


@pytest.fixture(scope="module")
def view(shared_house, run_writer, browse):
    """A client of a view of the run "agent", and of "odd", which has a rollout for each oddity."""

    def publish(run_id, rollouts, attempts=None):
        rows = [
            run_writer.rollout(number, 0, 1.0, **{"completion": TALK, **rollout})
            for number, rollout in enumerate(rollouts)
        ]
        told = {"status": "completed", "state_columns": [*COLUMNS, "other"]}
        folder = shared_house.publish_rows(run_id, rows, attempts, **told)
        add_artifact(folder)
        return folder

    step = {"prompt": 0, "completion": 0, "is_truncated": False, "reward": None, "extras": {}}
    asked = {"finish_reason": "stop", "usage": {"prompt_tokens": 1234, "completion_tokens": 56}}
    attempt = run_writer.attempt(0, 0)
    attempt["state"]["trajectory"] = [{**step, "response": asked, "latency_ms": 2500.0}, {**step, "response": None}]
    publish("agent", [COLUMNS, {"other": "x"}], [attempt])
    calls = [[{"id": "1", "name": "bash", "arguments": arguments}, {"id": "2"}, 5] for arguments in ODD_ARGUMENTS]
    answer = result(1, [{"type": "text", "text": "shown"}, {"type": "image_url"}, 7])
    talks = [[{"role": "assistant", "tool_calls": each}, answer] for each in calls]
    folder = publish("odd", [
        *({name: value} for name, value in ODD_COLUMNS),
        *({"completion": talk, "task_name": "t"} for talk in talks),
        *({"artifacts": [{"path": "x", "file": file, "bytes": 1}]} for file in OTHER_FILES),
    ])  # fmt: skip
    (shared_house.folder / "secret").write_text("secret")
    (folder / "artifacts/link").symlink_to(shared_house.folder / "secret")
    (folder / "artifacts/out").symlink_to(shared_house.folder)
    return browse(shared_house.warehouse)


def test_a_rollout_is_shown_as_in_a_terminal_with_the_time_and_the_tokens_of_its_requests(view):
    told, words = view.get("/runs/agent/0/0").text, view.words("/runs/agent/0/0")
    assert '<span class="sign">$ </span><b>make test</b>' in told
    assert "1.5 s exit 2" in words
    assert "250 ms write_file x.py" in words
    assert '<span class="f2">ok\n</span>' in told
    assert "<script>document" not in told
    for text in ("Agent&#39;s output", "Verifier <small>12.5 s", "<ins>+new\n</ins>", "org/task", "sha256:abc"):
        assert text in told
    assert "verifier_log" not in words
    assert "assistant 2.5 s · 1,234 in · 56 out Copy 2 I run it." in words
    assert words.count(" in · ") == 1


def test_a_rollout_without_columns_of_agents_has_only_its_coloured_output_in_a_terminal(view):
    told = view.get("/runs/agent/1/0").text
    assert "<code>bash</code>" in told
    assert told.count('class="terminal') == 1
    assert [text for text in ("Verifier", "Artifacts") if text in told] == []


def test_an_exported_page_has_the_terminal_and_no_link_to_a_server(view, shared_house, tmp_path, nightjar):
    assert nightjar("export", shared_house.folder / "agent", "--html", tmp_path / "run.html").code == 0
    told = (tmp_path / "run.html").read_text()
    texts = (".f196 {", '<span class="f1">1 failed', "<ins>+new", "&lt;a&gt;.html")
    assert [text for text in texts if text not in told] == []
    assert "/artifacts/" not in told
    assert "not on this machine" not in told


def test_odd_columns_are_shown_as_they_are_and_odd_calls_fail_no_page(view):
    for number, (name, _) in enumerate(ODD_COLUMNS):
        told = view.get(f"/runs/odd/{number}/0").text
        assert f"<dt>{name}</dt>" in told
        assert "<code>bash</code>" in told
    for number in range(len(ODD_COLUMNS), len(ODD_COLUMNS) + len(ODD_ARGUMENTS)):
        assert "shown" in view.words(f"/runs/odd/{number}/0")


def test_no_other_file_is_served_than_artifacts(view):
    for number, file in enumerate(OTHER_FILES, len(ODD_COLUMNS) + len(ODD_ARGUMENTS)):
        assert "x 1 bytes, not on this machine" in view.words(f"/runs/odd/{number}/0"), file
        assert view.get(f"/runs/odd/{number}/0/artifacts/0").status_code == 404, file


def test_an_artifact_is_saved_and_never_shown_and_not_served_from_a_folder_that_has_another_run_now(view, shared_house):
    [link] = re.findall(r'href="([^"]*/artifacts/[^"]*)"', view.get("/runs/agent/0/0").text)
    given = view.get(link)
    assert given.text == SCRIPT
    assert given.headers["content-type"] == "application/octet-stream"
    assert given.headers["content-disposition"] == "attachment; filename*=utf-8''%3Ca%3E.html"
    assert given.headers["x-content-type-options"] == "nosniff"
    assert [view.get(f"/runs/agent/0/0/artifacts/{number}").status_code for number in (-1, 1)] == [404, 404]
    metadata = shared_house.folder / "agent" / "metadata.json"
    written = metadata.read_text()
    metadata.write_text(written.replace('"run_id": "agent"', '"run_id": "other"'))
    assert view.get("/runs/agent/0/0/artifacts/0").status_code == 404
    metadata.write_text(written)


@pytest.fixture
def growing(live_view, run_writer):
    """A client of a view of a run in progress, one rollout of which has ended; ``tell`` adds events of another."""
    view = live_view([run_writer.rollout(0, 0, 1.0, completion=TALK, **COLUMNS)], state_columns=list(COLUMNS))
    (view.folder / "live").mkdir()

    def tell(*events, key="1-0"):
        with (view.folder / "live" / f"{key}.jsonl").open("ab") as file:
            for event in events:
                file.write(event if isinstance(event, bytes) else json.dumps({"at": 1e9} | event).encode() + b"\n")

    view.tell = tell
    return view


def test_steps_are_shown_while_they_happen(growing):
    assert growing.get("/runs/run/1/0").status_code == 404
    growing.tell({"kind": "message", "text": SCRIPT}, {"kind": "command", "text": "make"})
    assert '<a href="/runs/run/1/0">1</a>' in growing.get("/live/run").text
    page = growing.get("/runs/run/1/0").text
    assert 'data-live="/live/run/1/0"' in page
    assert "<script>document" not in page
    assert "running since 01:46:40 UTC" in page
    ended = {"kind": "output", "text": "20 %", "seconds": 2.5, "exit_code": 1}
    growing.tell({"kind": "output", "text": "10 %\r"}, ended)
    growing.tell({"kind": "verifier", "text": "\x1b[32mgo"}, {"kind": "verifier", "text": "od\x1b[0m"})
    assert "2.5 s exit 1 $ make 20 % Verifier good" in growing.words("/live/run/1/0")


def test_damaged_lines_of_steps_are_skipped_and_a_torn_line_waits(growing):
    growing.tell(b"damaged\n", b"[]\n", b'{"at": "x"}\n', b"[" * 100_000 + b"\n", {"kind": "later"})
    growing.tell(b'{"at": 1, "kind": "output", "text": "\xff\\ud800"}\n', b'{"at": 1, "kind": "output"')
    assert growing.words("/live/run/1/0") == "In progress \ufffd? running since 00:00:01 UTC"
    growing.tell(b', "text": "end"}\n')
    assert "end" in growing.words("/live/run/1/0")


def test_a_page_of_a_long_rollout_is_short(growing):
    growing.tell(*({"kind": "command", "text": f"step {number}"} for number in range(1_000)))
    growing.tell({"kind": "output", "text": "x" * 1_000_000})
    told = growing.get("/live/run/1/0").text
    assert len(told) < 200_000
    assert "step 999" in told
    growing.tell({"kind": "output", "text": "x" * 5_000_000})
    assert growing.get("/live/run/1/0").status_code == 200


def test_a_rollout_in_progress_becomes_its_result(growing, run_writer):
    growing.tell({"kind": "command", "text": "make"})
    (growing.folder / "live" / "1-0.jsonl").unlink()
    assert "No output yet" in growing.get("/live/run/1/0").text
    with (growing.folder / "results.jsonl").open("a") as file:
        file.write(json.dumps(run_writer.rollout(1, 0, 1.0)) + "\n")
    assert growing.get("/live/run/1/0").text.strip() == ""
    assert "Conversation" in growing.get("/runs/run/1/0").text
    add_artifact(growing.folder)
    growing.tell({"kind": "command", "text": "make"}, key="0-0")
    assert "Rollouts in progress" not in growing.get("/live/run").text
    assert "Verifier" in growing.get("/runs/run/0/0").text
    assert growing.get("/runs/run/0/0/artifacts/0").text == SCRIPT

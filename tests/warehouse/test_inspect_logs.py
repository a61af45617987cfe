"""Logs of Inspect become runs. The logs in ``inspect_logs`` and their figures are Inspect's own (``make.py`` there)."""

import json
import re
import shutil
import signal
import struct
import zipfile
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from subprocess import PIPE
from urllib.request import urlopen
from zlib import crc32

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse

LOGS = Path(__file__).parent / "inspect_logs"
FIGURES = json.loads((LOGS / "figures.json").read_bytes())


@pytest.fixture
def read(tmp_path):
    """Converts the only log at a path, and reads it: metadata and rows."""
    from nightjar.importers import convert, find_results

    def read(path):
        [found] = find_results(LOGS / path)
        assert found.kind == "inspect"
        run_dir = convert(found, tmp_path / "scratch")
        rows = [json.loads(line) for line in (run_dir / "results.jsonl").read_bytes().splitlines()]
        return json.loads((run_dir / "metadata.json").read_bytes()), rows

    return read


@pytest.fixture
def repacked(tmp_path):
    """Writes a copy of a log, with other entries and another compression."""
    from backports.zstd import zipfile as zstd_zipfile

    def write(name, change=dict, compression=zstd_zipfile.ZIP_ZSTANDARD):
        with zstd_zipfile.ZipFile(LOGS / name) as archive:
            entries = {entry: archive.read(entry) for entry in archive.namelist()}
        path = tmp_path / name
        with zstd_zipfile.ZipFile(path, "w", compression) as archive:
            for entry, content in change(entries).items():
                archive.writestr(entry, content)
        return path

    return write


def imported(warehouse, *paths):
    from nightjar.importers import import_all

    return list(import_all(warehouse, paths))


def header(**changed):
    """Returns the change of a log's entries that gives its header these fields."""
    return lambda entries: entries | {"header.json": json.dumps(json.loads(entries["header.json"]) | changed)}


def flat(scores):
    """Returns the values of several scorers by the names that the metrics have."""
    pairs = ((name, value) for name, value in scores.items())
    several = {f"{name}_{key}": each for name, value in pairs if isinstance(value, dict) for key, each in value.items()}
    single = {name: value for name, value in scores.items() if not isinstance(value, dict)}
    return {name: value for name, value in (single | several).items() if value is not None}


@pytest.mark.parametrize("name", FIGURES)
def test_scores_means_errors_tokens_and_limits_are_those_of_inspect(read, name):
    metadata, rows = read(name)
    samples = {(str(sample["id"]), sample["epoch"]): sample for sample in FIGURES[name]["samples"]}
    failed = {place for place, sample in samples.items() if sample["error"] and not sample["scores"]}
    found = {(str(row["sample_id"]), row["rollout_index"] + 1): row for row in rows}
    expected = {place: {} if place in failed else flat(sample["scores"]) for place, sample in samples.items()}
    assert {place: row["metrics"] for place, row in found.items()} == expected
    assert metadata["failed"] == len(failed)
    assert metadata["truncated"] >= sum(bool(sample["limit"]) for sample in samples.values())
    messages = {place: len(row["prompt"]) + len(row["completion"] or ()) for place, row in found.items()}
    assert messages == {place: sample["messages"] for place, sample in samples.items()}
    usage = [metadata["usage"]["input_tokens"], metadata["usage"]["output_tokens"]]
    assert usage == FIGURES[name]["usage"]["mockllm/model"]
    first, *others = [score for score in FIGURES[name]["scores"] if score["reducer"] in {None, "mean"}]
    means = first["metrics"]
    assert metadata["avg_reward"] == pytest.approx(means.get("accuracy", means.get("mean")))
    assert metadata["stderr"] == pytest.approx(means["stderr"])
    for score in others:
        metric = score["name"] if score["name"] == score["scorer"] else f"{score['scorer']}_{score['name']}"
        values = [row["metrics"][metric] for row in rows if metric in row["metrics"]]
        computed = {"mean": mean(values), "accuracy": mean(values), "std": stdev(values)}
        computed |= {"stderr": stdev(values) / sqrt(len(values))}
        assert {key: pytest.approx(computed[key]) for key in score["metrics"]} == score["metrics"]
        assert metadata["avg_metrics"][metric] == pytest.approx(computed["mean"])


def test_epochs_are_rollouts_and_pass_at_k_is_that_of_inspect(read):
    metadata, rows = read("epochs.eval")
    reported = {score["reducer"]: score["metrics"]["accuracy"] for score in FIGURES["epochs.eval"]["scores"]}
    assert (metadata["num_examples"], metadata["rollouts_per_example"], len(rows)) == (5, 4, 20)
    assert metadata["pass_at_k"]["2"] == pytest.approx(reported["pass_at_2"])
    kept = {score["reducer"]: score["metrics"]["accuracy"] for score in metadata["original"]["scores"]}
    assert kept == reported
    assert [(row["example_id"], row["rollout_index"]) for row in rows] == [(e, r) for e in range(5) for r in range(4)]


def test_settings_without_secrets_messages_answers_and_tool_calls_are_as_nightjar_stores_them(read):
    metadata, _ = read("arithmetic.eval")
    expected = {
        "status": "completed", "env_id": "arithmetic", "env_version": "1.2.0", "model": "mockllm/model",
        "base_url": None, "env_args": {"difficulty": "easy"}, "tags": ["nightly", "sums"],
        "rollouts": 6, "pass_threshold": 1.0,
        "version_info": {"inspect_ai_version": "0.3.285", "env_commit": "0a1b2c3d-dirty"},
    }  # fmt: skip
    assert {name: metadata[name] for name in expected} == expected
    assert (metadata["sampling_args"]["temperature"], metadata["sampling_args"]["max_tokens"]) == (0.7, 64)
    assert metadata["original"]["metadata"] == {"owner": "evals"}
    assert metadata["original"]["origin"] == "https://example.com/evals.git"
    assert "sk-not-for-others" not in json.dumps(metadata)
    _, rows = read("arithmetic.eval")
    system, user = {"role": "system", "content": "Answer with a number."}, {"role": "user", "content": "What is 1 + 2?"}
    assert (rows[1]["prompt"], rows[1]["completion"]) == ([system, user], [{"role": "assistant", "content": "3"}])
    assert (rows[1]["answer"], rows[1]["info"]) == ("3", {"level": 1})
    assert rows[1]["scores"]["match"]["answer"] == "3"
    _, rows = read("choices.eval")
    assert rows[2]["info"] == {"choices": ["1", "2", "3"]}
    assert (rows[1]["answer"], rows[2]["answer"]) == ("A", ["A", "C"])  # several targets are one answer
    _, rows = read("tools.eval")
    call, result, end = rows[1]["completion"]
    assert [(each["name"], json.loads(each["arguments"])) for each in call["tool_calls"]] == [
        ("divide", {"x": 2, "y": 0})
    ]
    assert (result["role"], result["content"], result["name"]) == ("tool", "division by zero", "divide")
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert end["content"] == "The answer is division by zero"


def test_examples_in_the_prompt_images_attachments_and_reasoning(read):
    _, rows = read("conversations.json")
    assert [(message["role"], message["content"]) for message in rows[0]["prompt"]][1:] == [
        ("user", "1 + 1?"), ("assistant", "2"), ("user", "1 + 2?"),
    ]  # fmt: skip
    reply = {"role": "assistant", "content": "3", "reasoning_content": "One and two is three."}
    assert rows[0]["completion"] == [reply]
    text, image = rows[1]["prompt"][0]["content"]
    assert text == {"type": "text", "text": "What colour?"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")  # stored once, as an attachment
    assert rows[0]["model_usage"]["mockllm/judge"]["input_tokens"] == 40
    assert rows[0]["token_usage"] == {"input_tokens": 11, "output_tokens": 7}


def test_failed_unscored_and_limited_samples_count_as_in_inspect(read):
    metadata, rows = read("errors.eval")
    failed = rows[1]
    assert (metadata["status"], metadata["coverage"]) == ("incomplete", 5 / 6)
    assert (failed["reward"], failed["metrics"]) == (None, {})
    assert failed["error"]["error"] == "RuntimeError"
    assert "the model is gone" in failed["error"]["message"]
    assert "RuntimeError" in failed["error"]["traceback"]
    assert "sk-secret-value" not in json.dumps(failed)
    metadata, rows = read("errors_scored.eval")
    assert (rows[1]["reward"], rows[1]["error"], rows[1]["stop_condition"]) == (0.0, None, "error")
    assert rows[1]["sample_error"] == {
        "error": "RuntimeError", "message": "RuntimeError('the model is gone: api_key=[secret]')",
    }  # fmt: skip
    assert metadata["stop_conditions"] == {"stop": 5, "error": 1}
    _, rows = read("limits.eval")
    assert [(row["stop_condition"], row["is_truncated"]) for row in rows] == [
        ("max_tokens", True), ("message_limit_reached", True), ("message_limit_reached", True),
        ("max_total_completion_tokens_reached", True),
    ]  # fmt: skip
    metadata, rows = read("scorers.eval")
    assert [row["metrics"].get("sometimes") for row in rows] == [0.0, None, 1.0, None, 1.0, None]
    assert (metadata["failed"], rows[1]["scores"]["sometimes"]["reason"]) == (0, "grader_failed")


def test_values_of_scores_are_read_as_inspect_reads_them():
    from nightjar.importers.inspect_scores import number

    numbers = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "Yes": 1.0, "FALSE": 0.0, True: 1.0, 7: 7.0, "-0.5": -0.5}
    assert {value: number(value) for value in numbers} == numbers
    others = ["A", "nan", float("nan"), None, [1], {"a": 1}, 10**400]
    assert [number(value) for value in others] == [None] * len(others)


def test_long_values_in_a_json_log_are_read_in_several_pieces(read, tmp_path):
    log = json.loads((LOGS / "conversations.json").read_bytes())
    first, second = log["samples"]
    first["messages"][-1]["content"] = 'three \\ " é \u20ac ' * 200_000  # 5 MB; a piece has 1 MB
    second["scores"]["model_graded_qa"]["value"] = float("nan")
    log["samples"] = [first, second]
    for ensure_ascii in (True, False):
        (tmp_path / "long.json").write_text(json.dumps(log, ensure_ascii=ensure_ascii), encoding="utf-8")
        metadata, rows = read(tmp_path / "long.json")
        assert rows[0]["completion"][0]["content"] == first["messages"][-1]["content"]
        assert (rows[1]["reward"], "unreadable" in metadata["original"]) == (None, False)


def test_a_large_entry_of_several_zstd_frames_is_read_whole(repacked, read):
    from backports import zstd
    from backports.zstd import zipfile as zstd_zipfile

    name = "samples/sum-1_epoch_1.json"
    log = repacked("arithmetic.eval")
    with zstd_zipfile.ZipFile(log) as archive:
        content = archive.read(name)
    frames = zstd.compress(content[:100]) + zstd.compress(content[100:])
    log = repacked("arithmetic.eval", lambda entries: entries | {name: frames}, zipfile.ZIP_STORED)
    with zipfile.ZipFile(log) as archive:
        entry = archive.getinfo(name)
    stored, packed = (struct.pack("<LLL", crc32(data), len(frames), len(data)) for data in (frames, content))
    written = bytearray(log.read_bytes().replace(stored, packed))
    for header in (entry.header_offset + 8, written.rindex(name.encode()) - 46 + 10):
        written[header] = zstd_zipfile.ZIP_ZSTANDARD  # the method, in the local and in the central header
    log.write_bytes(written)
    metadata, rows = read(log)
    assert (metadata["scored"], rows[1]["completion"]) == (6, [{"role": "assistant", "content": "3"}])


class TestDamage:
    def test_a_damaged_entry_is_named_and_the_others_are_imported(self, repacked, nightjar, tmp_path):
        log = repacked("arithmetic.eval", lambda entries: entries | {"samples/sum-2_epoch_1.json": b'{"id": '})
        warehouse = tmp_path / "warehouse"
        for _ in range(2):
            ended = nightjar("warehouse", "import", log, "--warehouse", warehouse)
            assert ended.code == 1
            assert f"Left out: {log}, entry samples/sum-2_epoch_1.json is damaged" in ended.err
        [run] = Warehouse(warehouse).query("SELECT status, scored, rollouts FROM runs").rows
        assert run == ("incomplete", 5, 6)

    @pytest.mark.parametrize("method", ["ZIP_STORED", "ZIP_DEFLATED", "ZIP_ZSTANDARD"])
    def test_a_changed_byte_is_found_in_every_compression(self, repacked, read, method):
        from backports.zstd import zipfile as zstd_zipfile

        compression = getattr(zstd_zipfile, method)
        log = repacked("arithmetic.eval", compression=compression)
        assert read(log)[0]["scored"] == 6
        content = bytearray(log.read_bytes())
        with zstd_zipfile.ZipFile(log) as archive:
            entry = archive.getinfo("samples/sum-3_epoch_1.json")
        content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 0xFF
        log.write_bytes(content)
        metadata, rows = read(log)
        assert [row["sample_id"] for row in rows] == ["sum-0", "sum-1", "sum-2", "sum-4", "sum-5"]
        [place] = metadata["original"]["unreadable"]
        assert place.startswith(f"{log}, entry samples/sum-3_epoch_1.json is damaged")

    def test_an_incomplete_file_does_not_stop_the_others(self, nightjar, tmp_path):
        folder = shutil.copytree(LOGS, tmp_path / "logs", ignore=shutil.ignore_patterns("make.py", "figures.json"))
        whole = (folder / "tools.eval").read_bytes()
        (folder / "tools.eval").write_bytes(whole[: len(whole) // 2])
        (folder / "empty.eval").touch()
        ended = nightjar("warehouse", "import", folder, "--warehouse", tmp_path / "warehouse", "--json")
        assert ended.code == 1
        failed = {Path(one["path"]).name: one["error"] for one in ended.json if one["error"]}
        assert failed.keys() == {"tools.eval", "empty.eval"}
        assert all("is damaged or incomplete" in error for error in failed.values())
        assert len(ended.json) == len(FIGURES) + 1

    def test_a_json_log_that_ends_early_gives_the_samples_before_the_end(self, read, tmp_path):
        text = (LOGS / "conversations.json").read_text()
        log = tmp_path / "torn.json"
        log.write_text(text[: text.index('"crimson"')])
        metadata, rows = read(log)
        assert (metadata["status"], len(rows)) == ("incomplete", 1)
        [place] = metadata["original"]["unreadable"]
        line = int(re.search(r"torn\.json, line (\d+) is damaged", place)[1])
        assert text.splitlines()[line - 1 : line + 1] == ["    {", '      "id": 2,']

    def test_a_log_of_a_newer_format_and_what_is_no_log_are_refused(self, repacked, tmp_path):
        from nightjar.importers import convert, find_results

        [found] = imported(Warehouse(tmp_path / "warehouse"), repacked("arithmetic.eval", header(version=99)))
        assert "has version 99 of the log format of Inspect" in found.error
        with zipfile.ZipFile(tmp_path / "other.eval", "w") as archive:
            archive.writestr("readme.txt", "hello")
        [found] = find_results(tmp_path / "other.eval")
        with pytest.raises(WarehouseError, match=r"other\.eval is not a log of Inspect"):
            convert(found, tmp_path / "scratch")


def test_a_killed_log_is_a_crashed_run_and_other_statuses_are_kept(repacked, read):
    def killed(entries):
        start = {name: value for name, value in json.loads(entries["header.json"]).items() if name in STARTED}
        kept = {name: entries[name] for name in entries if name.endswith(("sum-0_epoch_1.json", "sum-1_epoch_1.json"))}
        return {"_journal/start.json": json.dumps(start)} | kept

    metadata, rows = read(repacked("arithmetic.eval", killed))
    assert (metadata["status"], metadata["rollouts"], metadata["scored"], len(rows)) == ("crashed", 6, 2, 2)
    assert [row["example_id"] for row in rows] == [0, 1]
    assert metadata["finished_at"] is None
    for status, expected in (("cancelled", "cancelled"), ("error", "failed")):
        metadata, _ = read(repacked("arithmetic.eval", header(status=status, error={"message": "stopped"})))
        assert (metadata["status"], metadata["error"]) == (expected, "stopped")


STARTED = {"version", "eval", "plan"}


class TestImporting:
    def test_importing_twice_changes_nothing_and_leaves_the_files_unchanged(self, tmp_path):
        folder = shutil.copytree(LOGS, tmp_path / "logs" / "deeply" / "nested")
        before = {path: path.read_bytes() for path in folder.iterdir()}
        warehouse = Warehouse(tmp_path / "warehouse")
        runs = "SELECT run_id, version, published_at FROM runs ORDER BY ALL"
        assert {one.novelty for one in imported(warehouse, tmp_path / "logs")} == {"new"}
        first = warehouse.query(runs).rows
        assert len(first) == len(FIGURES)
        assert {one.novelty for one in imported(warehouse, tmp_path / "logs")} == {"already there"}
        assert warehouse.query(runs).rows == first
        assert {path: path.read_bytes() for path in folder.iterdir()} == before

    def test_an_edited_log_updates_its_run_and_the_older_copy_does_not_come_back(self, repacked, tmp_path):
        def regraded(entries):
            name = "samples/sum-0_epoch_1.json"
            sample = json.loads(entries[name])
            sample["scores"]["match"]["value"] = "C"
            return entries | {name: json.dumps(sample)}

        edited, warehouse = repacked("arithmetic.eval", regraded), Warehouse(tmp_path / "warehouse")
        logs = [LOGS / "arithmetic.eval", edited]
        assert [one.novelty for one in imported(warehouse, *logs)] == ["new", "updated"]
        assert [one.novelty for one in imported(warehouse, *logs)] == ["already there", "already there"]
        assert warehouse.query("SELECT avg_reward FROM runs").rows == [(pytest.approx(5 / 6),)]

    @pytest.mark.parametrize("damaged_first", [True, False])
    def test_a_damaged_copy_never_replaces_its_log_and_the_log_repairs_the_run(self, repacked, tmp_path, damaged_first):
        copy = repacked("arithmetic.eval", lambda entries: entries | {"samples/sum-2_epoch_1.json": b'{"id": '})
        log, warehouse = LOGS / "arithmetic.eval", Warehouse(tmp_path / "warehouse")
        expected = {log: "updated", copy: "new"} if damaged_first else {log: "new", copy: "older than what is there"}
        for path in (copy, log) if damaged_first else (log, copy):
            [found] = imported(warehouse, path)
            assert (found.novelty, len(found.unreadable)) == (expected[path], int(path == copy))
        for path, novelty in ((copy, "older than what is there"), (log, "already there")):
            [found] = imported(warehouse, path)
            assert (found.path, found.novelty, len(found.unreadable)) == (path, novelty, int(path == copy))
        assert warehouse.query("SELECT status, scored FROM runs").rows == [("completed", 6)]

    def test_the_same_log_in_both_formats_is_one_run(self, repacked, tmp_path):
        from backports.zstd import zipfile as zstd_zipfile

        with zstd_zipfile.ZipFile(LOGS / "scorers.eval") as archive:
            log = json.loads(archive.read("header.json"))
            names = [name for name in archive.namelist() if name.startswith("samples/")]
            log["samples"] = [json.loads(archive.read(name)) for name in names]
        (tmp_path / "scorers.json").write_text(json.dumps(log, indent=2))
        warehouse = Warehouse(tmp_path / "warehouse")
        outcomes = imported(warehouse, LOGS / "scorers.eval", tmp_path / "scorers.json")
        assert sorted(one.novelty for one in outcomes) == ["already there", "new"]
        assert len({one.run_id for one in outcomes}) == 1

    def test_a_log_that_was_exported_beside_its_run_is_left_out(self, nightjar, write_run, tmp_path):
        from nightjar.importers import find_results

        write_run(tmp_path / "outputs", "0a1b2c3d4e5f")
        arguments = ("--warehouse", tmp_path / "warehouse")
        assert nightjar("warehouse", "import", tmp_path / "outputs", *arguments).code == 0
        assert nightjar("export", "0a1b2c3d4e5f", "--inspect-log", tmp_path / "outputs" / "logs", *arguments).code == 0
        assert len(list((tmp_path / "outputs" / "logs").glob("*.json"))) == 1
        assert [found.kind for found in find_results(tmp_path / "outputs")] == ["nightjar"]
        assert [found.kind for found in find_results(tmp_path / "outputs" / "logs")] == ["inspect"]

    def test_a_log_that_other_scorers_scored_is_a_run_of_its_own(self, repacked, read):
        def rescored(entries):
            evaluation = json.loads(entries["header.json"])["eval"]
            evaluation["scorers"].append({"name": "includes"})
            return header(eval=evaluation)(entries)

        assert read(repacked("arithmetic.eval", rescored))[0]["run_id"] != read("arithmetic.eval")[0]["run_id"]


@pytest.mark.slow
def test_view_shows_a_log_without_an_import(fork, tmp_path):
    log = LOGS / "scorers.eval"
    command = ("view", log, "--warehouse", tmp_path / "none", "--no-browser", "--port", 0)
    with fork.nightjar(*command, stdout=PIPE, stderr=PIPE) as server:
        line = server.stdout.readline()
        assert line.startswith("1 run, not imported, at ")
        with urlopen(re.search(r"http://\S+", line)[0]) as page:
            assert b"style_brevity" in page.read()
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert not (tmp_path / "none").exists()


def test_the_page_of_a_run_shows_what_inspect_reports(browse, tmp_path):
    warehouse = Warehouse(tmp_path / "warehouse")
    [run] = imported(warehouse, LOGS / "epochs.eval")
    words = browse(warehouse).words(f"/runs/{run.run_id}")
    assert "Reported by Inspect Score Epochs Metric Value match mean accuracy 0.6500" in words
    assert "match mode accuracy 0.6000" in words

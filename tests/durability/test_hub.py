"""Results on the Hugging Face Hub: pushed by its own library to a server that speaks its API."""

import io
import json

import pytest
import yaml
from hub_server import HubServer

from nightjar.model_server import Faults

pytestmark = pytest.mark.long

TOKEN = "hf_ThisIsTheTokenOfAnn"
SETTINGS = ("-n", 5, "-r", 2, "-m", "team/model")


@pytest.fixture
def hub(nightjar, fork, http_server):
    fork.prepare("huggingface_hub")
    server = HubServer(TOKEN, http_server)
    nightjar.env |= {"HF_ENDPOINT": server.url, "HF_TOKEN": TOKEN, "HF_HOME": str(nightjar.folder / "hf")}
    return server


def _rows(files):
    from pyarrow import parquet

    return parquet.read_table(io.BytesIO(files["data/results-00000-of-00001.parquet"])).to_pylist()


def test_a_run_is_pushed_with_a_card_and_private(nightjar, serve, hub):
    ended = nightjar.eval("arithmetic", *SETTINGS, "--save-to-hf-hub", server=serve()).ok()
    name = "ann/arithmetic_team_model_n5_r2"
    assert hub.repositories == {name: True}
    assert f"Hub:       {hub.url}/datasets/{name}" in ended.stdout
    files, run = hub.files[name], nightjar.run
    rows = _rows(files)
    for row, result in zip(rows, run.results, strict=True):
        for field in ("example_id", "rollout_index", "reward", "answer", "model", "attempts", "metrics"):
            assert row[field] == result[field]
        assert [(each["role"], each["content"]) for each in row["prompt"] + row["completion"]] == [
            (each["role"], each["content"]) for each in result["prompt"] + result["completion"]
        ]
    metadata = json.loads(files["metadata.json"])
    assert metadata["avg_reward"] == run.metadata["avg_reward"]
    assert json.loads(files["config.json"])["model"] == "team/model"
    front, _, card = files["README.md"].decode().removeprefix("---\n").partition("\n---\n")
    assert yaml.safe_load(front)["configs"][0]["data_files"][0]["path"] in files
    assert f"| average reward | {metadata['avg_reward']:.4f}" in card
    assert '"num_examples": 5' in card
    assert {column.strip() for line in card.partition("## Columns")[2].splitlines() if line.startswith("| ")
            for column in line.split("|")[1].split(",")} >= set(rows[0])  # fmt: skip
    written = [path for path in nightjar.folder.rglob("*") if path.is_file() and "hf" not in path.parts]
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]
    assert TOKEN.encode() not in b"".join(files.values())


def test_a_run_is_pushed_later_under_a_name_and_again(nightjar, serve, hub):
    failing = serve(faults=Faults(rate_malformed=0.3, seed=1))
    nightjar.eval("arithmetic", *SETTINGS, "--request-retries", 0, server=failing)
    assert hub.repositories == {}
    run_id = nightjar.run.metadata["run_id"]
    for _ in range(2):
        options = ("--hf-hub-dataset-name", "team/sums", "--public", "--json")
        ended = nightjar.start("eval", "push", run_id[:6], *options).wait().ok()
        assert json.loads(ended.stdout) == {"run_id": run_id, "url": f"{hub.url}/datasets/team/sums"}
    assert hub.repositories == {"team/sums": False}
    rows = _rows(hub.files["team/sums"])
    assert [row["error"] for row in rows] == [row["error"] and row["error"]["error"] for row in nightjar.run.results]
    assert any(row["error"] for row in rows)
    assert all((row["reward"] is None) == bool(row["error"]) for row in rows)


def test_a_hub_that_refuses_or_is_away_changes_the_exit_code_only(nightjar, serve, hub):
    hub.refusal = (403, "You may not write here")
    ended = nightjar.eval("arithmetic", *SETTINGS, "-H", server=serve())
    again = f"nightjar eval push {nightjar.run.path.relative_to(nightjar.folder)}"
    assert ("You may not" in ended.error, again in ended.error, TOKEN in ended.stderr + ended.stdout) == (
        True,
        True,
        False,
    )
    assert nightjar.run.metadata["status"] == "completed"
    assert nightjar.sql("SELECT status, scored FROM runs") == [("completed", 10)]
    other, name = "hf_AnotherTokenAltogether", "a name/with blanks"
    for refusal, words, options, variables in (
        ((500, "out of order"), "500", [], {}), (None, "Invalid username", [], {"HF_TOKEN": other}),
        (None, f"'{name}'", ["-D", name], {}),
        (None, "not on the Hugging Face Hub", [], {"HF_ENDPOINT": "http://127.0.0.1:9"}),
    ):  # fmt: skip
        hub.refusal = refusal
        ended = nightjar.start("eval", "push", nightjar.run, *options, **variables).wait()
        assert (ended.code, words in ended.errors[0]) == (1, True), ended.stderr
        assert not {part for part in (TOKEN, other) if part in ended.stderr + ended.stdout}


def test_a_block_is_refused_without_a_flow_before_anything_is_asked_and_a_rescored_run_is_not_pushed(
    nightjar, serve, hub
):
    server = serve()
    ended = nightjar.eval("arithmetic", *SETTINGS, "-H", "-D", "block:team", "--direct", server=server)
    assert (ended.code, hub.requests, server.stats().answered) == (1, [], 0)
    assert "hf_hub_dataset_name: only the flow 'evaluate' reads blocks" in ended.errors[0]
    assert nightjar.eval("arithmetic", *SETTINGS, "-H", server=server).code == 0
    count = len(hub.requests)
    assert nightjar.start("eval", "rescore", nightjar.run).wait().code == 0
    assert len(hub.requests) == count

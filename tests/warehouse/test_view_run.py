"""The page of a run in the web view."""

import re
import shutil

import pytest


@pytest.fixture
def view(house, monkeypatch, browse):
    """A client of a warehouse; ``publish`` adds a run to it."""
    monkeypatch.setenv("NIGHTJAR_HOME", str(house.folder / "home"))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4299/api")
    view = browse(house.warehouse)
    view.app.state.command_of = lambda config: ["nightjar", "eval", "run", config.env_id, "-m", config.model]
    view.publish = house.publish_rows
    return view


def test_failures_come_first_with_advice_and_then_failed_attempts_files_and_tags(view, run_writer, tmp_path):
    error = run_writer.failure | {"message": "<b>429</b>"}
    tries = [run_writer.attempt(0, 0, number, error=error if number < 13 else None) for number in range(1, 14)]
    told = {"error": "RunAbortedError: all requests fail", "flow_run_id": "f00d", "tags": ["a&b"]}
    view.publish("run", run_writer.rollouts, tries, **told)
    told = view.get("/runs/run").text
    assert told.index("Failures") < told.index("RunAbortedError: all requests fail") < told.index("Numbers")
    assert "Lower --max-concurrent" in told
    assert '<a href="/runs/run/1/1">Example 1</a>: 429 Too Many Requests' in told
    assert "http://127.0.0.1:4299/runs/flow-run/f00d" in told
    assert "12 attempts failed; the last 10 are shown" in told
    assert told.count("&lt;b&gt;429&lt;/b&gt;") == 10
    assert '<a href="/runs/run/0/0">0/0</a>' in told
    assert re.search(r"<dt>attempts.jsonl</dt><dd>[\d.]+ kB</dd>", told)
    shutil.rmtree(tmp_path / "run")
    assert "not on this machine" in view.get("/runs/run").text
    assert '<a href="/?tag=a%26b">a&amp;b</a>' in view.get("/").text
    assert 'name="tag" value="a&amp;b"' in view.get("/?tag=a%26b").text


def test_the_numbers_agree_with_the_statistics_and_a_republished_run_shows_its_new_numbers(view, run_writer):
    view.publish("run")
    told = view.get("/runs/run").text
    assert "3 of 4 rollouts, 2 examples" in told
    titles = [f"Reward {reward}: 1 rollout, 33.3%" for reward in ("0", "0.5", "1")]
    assert re.findall(r"<title>(.*)</title>", told)[1:] == titles
    assert "10.5 ms" in told
    told = {"published_at": "2026-11-22T02:00:00Z"}
    attempts = [run_writer.attempt(0, index) for index in (0, 1)]
    view.publish("again", [run_writer.rollout(0, 0, 1.0)], attempts[:1], **told)
    assert "1 of 4 rollouts" in view.get("/runs/again").text
    view.publish("again", [run_writer.rollout(0, index, 1.0) for index in (0, 1)], attempts, **told)
    assert "2 of 4 rollouts" in view.get("/runs/again").text


def test_differences_from_the_run_before_are_shown(view):
    view.publish("old", started_at="2026-11-01T00:00:00Z", sampling_args={"temperature": 1.0})
    view.publish("other", started_at="2026-11-02T00:00:00Z", model="other")
    view.publish("new", started_at="2026-11-03T00:00:00Z")
    told = view.get("/runs/new").text
    assert "the run before: {&#34;temperature&#34;:1.0}" in told
    assert "/compare?run=old&amp;run=new" in told
    assert "the run before" not in view.get("/runs/old").text


def test_the_command_that_repeats_or_rescores_a_run_is_shown_if_known(view):
    view.publish("run", config={"env_id": "gsm8k", "model": "a model"})
    view.publish("foreign", config={"harness": 1})
    assert "nightjar eval run gsm8k -m &#39;a model&#39;" in view.get("/runs/run").text
    assert "Run it again" not in view.get("/runs/foreign").text
    saved = {"env_id": "gsm8k", "model": "m", "env_args": {"n": 1}, "rescored_from": "old", "rubric": "strict.py:exact"}
    view.publish("rescored", config=saved, rescored_from="old")
    told = view.get("/runs/rescored").text
    assert 'rescored from <a href="/runs/old">old</a>' in told
    assert "nightjar eval rescore old --rubric strict.py:exact --env-args &#39;{&#34;n&#34;: 1}&#39;" in told
    assert "nightjar eval run" not in told
    assert "then rescore it" in told


def test_runs_with_little_metadata_are_shown(view):
    nothing = dict.fromkeys(("started_at", "time_ms", "avg_reward", "model", "avg_metrics", "usage", "env_args"))
    view.publish("empty", [], **nothing), view.publish("run", **nothing)
    assert view.get("/runs/empty").status_code == view.get("/runs/run").status_code == 200


def test_costs_are_shown_if_prices_are_known(view, tmp_path):
    view.publish("run", suite="nightly")
    pages = ("/", "/runs/run", "/history?env=gsm8k")
    assert [">Cost<" in view.get(page).text for page in pages] == [False, False, False]
    (tmp_path / "outputs/warehouse/prices.csv").write_text(
        "model,since,input,output\nopenai/gpt-4.1-mini,2025-01-01,1,2\n"
    )
    assert [">Cost<" in view.get(page).text for page in pages] == [True, True, True]


def test_the_beginning_of_an_id_redirects_to_its_run_if_there_is_one(view):
    view.publish("9aa7-x")
    view.publish("9aa8")
    told = view.get("/runs/9aa7", follow_redirects=False)
    assert (told.status_code, told.headers["location"]) == (303, "/runs/9aa7-x")
    several, none = "Several run ids begin with &#39;9aa&#39;: 9aa7-x, 9aa8.", "There is no run &#39;nobody&#39;"
    for run_id, words in (("9aa", several), ("nobody", none)):
        told = view.get(f"/runs/{run_id}")
        assert (told.status_code, words in told.text) == (404, True)

"""What models, environments, datasets and people may write: every page shows it as text, and none grows with it."""

import os
import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from nightjar.warehouse.storage.records import Night, NightEvaluation

pytestmark = pytest.mark.long

HOSTILE = (
    "'\"><script>alert(1)</script><svg onload=alert(1)>[a](javascript:alert(1))\u202e\x1b[31m\x9b2J\x00\u2028{{7*7}}"
)
RUN = "\u202eevil<b>\x1b"
PAGES = ("/", "/?group=environment", "/?group=model", "/?group=suite", "/runs/{run}", "/runs/{run}/samples",
         "/runs/{run}/samples?by=rollout", "/samples?run=other&run={run}", "/rollouts", "/?columns={text}",
         "/rollouts?q={text}&where={text}&env={text}&columns={text}",
         "/runs/{run}/samples?where=error", "/runs/{run}/0/0", "/runs/{run}/0/1", "/runs/{run}/0/0?beside=other",
         "/search?q=script", "/compare?run=other&run={run}&by=level", "/compare?run=other&run={run}&run=third",
         "/compare?run=other&run={run}&metric={text}", "/history", "/history?env={text}", "/nights",
         "/nights?suite={text}&night=2026-01-02", "/notes", "/notes?run={run}&example=0&index=0", "/sql?q=FROM+runs",
         "/sql?q=FROM+rollouts", "/sql?q=FROM+notes", "/sql?q={text}", "/?q={text}", "/runs/{text}",
         "/runs/{run}/samples?q={text}&where={text}", "/search?q={text}")  # fmt: skip


def hostile_rollout(run_writer, index, reward):
    text = {"role": "user", "content": HOSTILE}
    call = {"id": "c", "name": HOSTILE, "arguments": HOSTILE}
    image = {"type": "image_url", "image_url": {"url": f"data:image/svg+xml,{HOSTILE}"}}
    address = {"type": "image_url", "image_url": {"url": f"https://e.example/{HOSTILE}"}}
    script = {"type": "image_url", "image_url": {"url": "javascript:alert(1)"}}
    said = {"role": HOSTILE, "content": [image, address, script, {"type": "text", "text": f"```{HOSTILE}\n{HOSTILE}"}]}
    return run_writer.rollout(
        0, index, reward, prompt=[{"role": "system", "content": HOSTILE}, text],
        completion=[
            {"role": "assistant", "content": HOSTILE, "reasoning_content": HOSTILE, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": HOSTILE},
            said,
        ],
        answer=HOSTILE, task=HOSTILE, model=HOSTILE, info={"level": HOSTILE, HOSTILE: HOSTILE},
        metrics={"correct": reward, HOSTILE: 0.5}, stop_condition=HOSTILE, judge_response={HOSTILE: HOSTILE},
    )  # fmt: skip


@pytest.fixture(scope="module")
def view(shared_house, run_writer, browse):
    error = {**run_writer.failure, "message": HOSTILE, "error": HOSTILE, "error_chain_repr": HOSTILE}
    told = dict.fromkeys(("env_id", "model", "suite", "env_version", "base_url", "flow_run_id", "error"), HOSTILE)
    told |= {"tags": [HOSTILE], "env_args": {HOSTILE: HOSTILE}, "state_columns": ["judge_response"]}
    for run_id, reward in ((RUN, 1.0), ("other", 0.0), ("third", 0.5)):
        rollouts = [hostile_rollout(run_writer, 0, reward), run_writer.failed(0, 1, error=error, prompt=HOSTILE)]
        tries = [run_writer.attempt(0, 1, number, error=error) for number in (1, 2)]
        shared_house.publish_rows(
            run_id, rollouts, tries, place=shared_house.folder / f"run-{reward}", status="completed",
            config={"env_id": "gsm8k", "model": HOSTILE}, avg_metrics={"correct": reward, HOSTILE: 0.5}, **told,
        )  # fmt: skip
    evaluations = [NightEvaluation(HOSTILE, "missing", "gsm8k", HOSTILE)]
    shared_house.warehouse.write_night(Night(HOSTILE, "2026-01-02", "incomplete", HOSTILE, evaluations=evaluations))
    view = browse(shared_house.warehouse)
    noted = {"run": RUN, "example": "0", "index": "0", "mark": "interesting"}
    assert view.post("/notes", data={**noted, "comment": HOSTILE, "author": HOSTILE[:90]}).status_code == 200
    return view


class Elements(HTMLParser):
    """The parts of a page that could run code or lead to another site, and its texts."""

    def __init__(self, page):
        super().__init__()
        self.odd, self.text, self._is_field = [], "", False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self._is_field = tag in {"textarea", "template", "script"}  # what is sent back or copied is as it was
        for name, value in attributes:
            is_address = re.match(r"/(?!/)|#|data:(,|image/)|https://e\.example/|$", value or "")
            if name.startswith("on") or name == "style" or (name in {"href", "src", "action"} and not is_address):
                self.odd.append((tag, name, value))
            self.text += "" if name == "value" else value or ""
        is_foreign = tag == "script" and not re.fullmatch(r"/\w+\.js", dict(attributes).get("src") or "")
        self.odd += [tag] if tag in {"iframe", "object", "embed", "base"} or is_foreign else []

    def handle_data(self, data):
        self.text += "" if self._is_field else data


def faults(page):
    found = Elements(page)
    return found.odd + re.findall("[\x00\x1b\x9b\u202e]", found.text)


def test_hostile_text_is_escaped_on_every_page_and_sent_back(view):
    for path in PAGES:
        page = view.get(path.format(run=quote(RUN, safe=""), text=quote(HOSTILE, safe="")))
        assert page.status_code in {200, 400, 404}, page.text
        assert faults(page.text) == [], path
        if "/samples?q={text}" in path:
            assert f'name="q" value="{HOSTILE}"' in unescape(page.text)


def test_hostile_text_of_a_run_in_progress_is_escaped(view, run_writer, tmp_path, monkeypatch, browse):
    monkeypatch.chdir(tmp_path)
    error = {"error": HOSTILE, "error_chain_repr": HOSTILE, "message": HOSTILE}
    rows = [run_writer.rollout(0, 0), run_writer.failed(0, 1, error=error)]
    told = {"env_id": HOSTILE, "model": HOSTILE, "status": "running", "pid": os.getpid(), "finished_at": None}
    run_writer.write(tmp_path / "outputs/evals/env--m/live", rows, run_id="live<b>", **told)
    fresh = browse(view.app.state.warehouse)
    for path in ("/", "/live", "/runs/live%3Cb%3E", "/live/live%3Cb%3E"):
        page = fresh.get(path)
        assert (page.status_code, "live&lt;b&gt;" in page.text, faults(page.text)) == (200, True, []), path


def test_hostile_text_is_escaped_in_an_exported_page(view, shared_house, tmp_path, nightjar):
    command = ("export", RUN, "--warehouse", shared_house.warehouse.location)
    ended = nightjar(*command, "--html", tmp_path / "run.html")
    assert ended.code == 0, ended.err
    assert faults((tmp_path / "run.html").read_text()) == ["script"]  # its own, as test_hostile_texts.py checks
    assert nightjar(*command, "--inspect-log", tmp_path / "logs").code == 0


def test_megabytes_make_no_page_large(house, run_writer, browse):
    text = "\"<'& words " * 500_000
    error = {**run_writer.failure, "message": text, "traceback": text}
    said = [{"role": "user", "content": "x"}] * 50_000
    answered = {"completion": [{"role": "assistant", "content": text}], "answer": text, "info": {"a": text}}
    rows = [run_writer.rollout(0, 0, **answered), run_writer.rollout(1, 0, completion=said)]
    rows.append(run_writer.failed(2, 0, error=error))
    for run_id in ("a", "b"):
        house.publish_rows(run_id, rows, error=text, env_args={"a": text})
    view = browse(house.warehouse)
    for path in (
        "/", "/runs/a", "/runs/a/samples", "/runs/a/samples?q=words", "/runs/a/0/0", "/runs/a/1/0", "/runs/a/2/0",
        "/runs/a/0/0?beside=b", "/compare?run=a&run=b", "/search?q=words", "/sql?q=FROM+rollouts", "/sql?q=FROM+runs",
    ):  # fmt: skip
        page = view.get(path)
        assert page.status_code == 200 or "larger than 0.032 GB" in page.text, page.text[:1000]
        assert len(page.content) < 4_000_000, path
        assert ("<mark>words</mark>" in page.text) == path.startswith("/search"), path

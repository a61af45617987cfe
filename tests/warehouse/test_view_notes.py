"""Notes of users in the web view."""

import getpass
import re
from datetime import UTC, datetime, timedelta

import pytest

from nightjar.warehouse import Warehouse

HOSTILE = '"><script>alert(1)</script>\u202e\u2028\x1b[31m\n{"run_id":"x"}'
FIRST = {"run": "run", "example": "0", "index": "1", "mark": "wrong grade", "author": "Zoë"}


@pytest.fixture
def warehouse(tmp_path, run_writer):
    """A warehouse with a run of two examples and two rollouts each: rewards 1, 0, 0.5 and a failure."""
    warehouse = Warehouse(tmp_path / "warehouse")
    warehouse.publish(run_writer.write(tmp_path / "run", run_id="run", status="completed"), tidies=False)
    return warehouse


@pytest.fixture
def view(warehouse, browse):
    return browse(warehouse, follow_redirects=False)


def shown(view):
    """Returns the page of the rollout, and that of its notes alone."""
    return view.get("/runs/run/0/1").text + view.get("/notes?run=run&example=0&index=1").text


def test_a_note_is_kept_with_its_author_and_listed(view, warehouse):
    told = view.post("/notes", data={**FIRST, "comment": " It is 4. "})
    assert (told.status_code, told.headers["location"]) == (303, "/runs/run/0/1#notes")
    columns = "run_id, example_id, rollout_index, mark, comment, author, overruled_reward"
    row = ("run", 0, 1, "wrong grade", "It is 4.", "Zoë", None)
    assert warehouse.query(f"SELECT {columns} FROM notes").rows == [row]
    assert "It is 4." in shown(view)
    assert "It is 4." in view.get("/notes?mark=wrong+grade").text
    assert "It is 4." not in view.get("/notes?mark=interesting").text
    assert 'name="author" value="Zoë"' in shown(view)  # the cookie remembers


def test_an_overruled_reward_leaves_the_recorded_reward_unchanged(view, warehouse):
    before = warehouse.query("SELECT reward FROM rollouts ORDER BY ALL").rows
    view.post("/notes", data={**FIRST, "overruled_reward": "0.25"})
    view.post("/notes", data={**FIRST, "overruled_reward": "1"})  # the newest counts
    view.post("/notes", data={**FIRST, "example": "1", "overruled_reward": "0.5"})  # of a failed rollout
    assert warehouse.query("SELECT reward FROM rollouts ORDER BY ALL").rows == before
    assert warehouse.query("SELECT avg_reward FROM runs").rows == [(0.5,)]
    columns = "avg_reward, overruled_avg_reward, overruled, scored, overruled_scored"
    assert warehouse.query(f"SELECT {columns} FROM overruled_runs").rows == [(0.5, 0.75, 2, 3, 4)]
    assert "0.7500" in view.get("/notes").text


@pytest.mark.long
def test_notes_are_shown_on_every_page_of_their_run(view, warehouse, run_writer, tmp_path):
    other = [run_writer.rollout(0, 0, 1.0), run_writer.rollout(0, 1, 1.0), run_writer.rollout(1, 0, 1.0)]
    warehouse.publish(run_writer.write(tmp_path / "other", other, run_id="other", status="completed"), tidies=False)
    pages = ["/", "/runs/run", "/runs/run/samples", "/runs/run/0/0", "/compare?run=run&run=other"]
    assert not any(re.search(r"\d noted|verruled", view.words(page)) for page in pages)
    view.post("/notes", data={**FIRST, "overruled_reward": "1"})
    view.post("/notes", data={**FIRST, "example": "1", "mark": "interesting"})
    # Student's t of two examples is 12.706 (any table of it), and the standard error 0.25
    assert "0.5000 [0.0000, 1.0000] 75 % scored 2 noted, 1 overruled" in view.words("/")
    assert "With overruled rewards 0.8333 , with 1 of 3 rewards replaced as in the notes" in view.words("/runs/run")
    assert "rollout 1: wrong, noted noted" in view.words("/runs/run/samples?show=noted&where=example_id=0")
    assert "rollout 1: wrong, noted" in view.words("/runs/run/0/0")
    assert "In 1 of 2 pairs, notes overrule a reward" in view.words("/compare?run=run&run=other")
    warehouse.publish(run_writer.write(tmp_path / "third", other, run_id="third", status="completed"), tidies=False)
    assert "Notes overrule rewards of run" in view.words("/compare?run=third&run=run&run=other")
    assert "2 examples" in view.words("/runs/run/samples?show=noted")
    assert "0 examples" in view.words("/runs/other/samples?show=noted")


def test_a_note_on_a_repeated_rollout_is_outdated(view, warehouse, run_writer, tmp_path):
    view.post("/notes", data={**FIRST, "comment": "It is 4.", "overruled_reward": "1"})
    assert warehouse.query("SELECT is_outdated FROM notes").rows == [(False,)]
    later = (datetime.now(UTC) + timedelta(minutes=1)).timestamp()
    again = [run_writer.rollout(0, 0, 1.0), run_writer.rollout(0, 1, 0.0, attempts=2)]
    tries = [run_writer.attempt(0, 1, 1), run_writer.attempt(0, 1, 2, finished_at=later)]
    warehouse.publish(run_writer.write(tmp_path / "run", again, tries, run_id="run", status="completed"), tidies=False)
    assert warehouse.query("SELECT comment, is_outdated FROM notes").rows == [("It is 4.", True)]
    assert warehouse.query("SELECT count(*) FROM overruled_runs").rows == [(0,)]
    assert "1 noted " in view.words("/")
    assert "overruled" not in view.words("/") + view.words("/runs/run")
    for page in ("/notes", "/runs/run/0/1", "/notes?run=run&example=0&index=1"):
        assert "on an earlier attempt" in view.words(page)


def test_the_newest_note_counts_and_only_where_it_disagrees(view, warehouse):
    view.post("/notes", data={**FIRST, "overruled_reward": "1"})
    view.post("/notes", data={**FIRST, "author": "Ada", "overruled_reward": "0"})  # as it was recorded
    view.post("/notes", data={**FIRST, "example": "1", "index": "0", "overruled_reward": "1"})
    view.post("/notes", data={**FIRST, "example": "1", "index": "0", "author": "Ada", "overruled_reward": "0.25"})
    rows = warehouse.query("SELECT example_id, rollout_index, reward, overruled_reward FROM overruled_rollouts").rows
    assert rows == [(1, 0, 0.5, 0.25)]
    assert warehouse.query("SELECT overruled FROM overruled_runs").rows == [(1,)]
    assert "2 noted, 1 overruled" in view.words("/")


def test_a_note_can_be_withdrawn(view, warehouse):
    view.post("/notes", data={**FIRST, "comment": "No!", "overruled_reward": "1"})
    [note_id, _] = re.findall(r'name="note_id" value="(\w+)"', shown(view))
    assert view.post("/notes/withdraw", data={"note_id": note_id}).status_code == 303
    assert "No!" not in shown(view)
    assert warehouse.query("SELECT count(*) FROM notes").rows == [(0,)]
    assert warehouse.query("SELECT count(*) FROM overruled_runs").rows == [(0,)]
    assert view.post("/notes/withdraw", data={"note_id": "none"}).status_code == 404


def test_a_note_is_stored_unchanged_and_escaped(view, warehouse):
    view.post("/notes", data={**FIRST, "comment": HOSTILE, "author": HOSTILE})
    assert "<script>alert" not in shown(view) + view.get("/notes").text
    assert warehouse.query("SELECT comment, author FROM notes").rows == [(HOSTILE, HOSTILE)]
    assert view.get("/notes", headers={"cookie": "nightjar_author=%3Cscript%3E%ff"}).status_code == 200


@pytest.mark.long
@pytest.mark.parametrize(("changed", "status"), [
    ({"run": "other"}, 404), ({"index": "9"}, 404), ({"example": "first"}, 400), ({"mark": "right"}, 400),
    ({"overruled_reward": "high"}, 400), ({"overruled_reward": "nan"}, 400), ({"comment": "x" * 10_001}, 400),
    ({"comment": "x" * 200_000}, 413),
])  # fmt: skip
def test_an_invalid_note_is_refused(view, warehouse, changed, status):
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert view.post("/notes", data={**FIRST, **changed}, headers=own).status_code == status
    assert view.post("/notes", data=FIRST, headers={"origin": "https://evil.example"}).status_code == 403
    assert view.get("/notes").headers["referrer-policy"] == "same-origin"  # else a form of this server has no origin
    assert warehouse.query("SELECT count(*) FROM notes").rows == [(0,)]


def test_a_guest_must_give_a_name(view, warehouse, browse):
    unnamed = {**FIRST, "author": " "}
    guest = browse(warehouse, (), "secret", base_url="http://nightjar", follow_redirects=False)
    assert guest.get("/?token=secret").status_code == 303
    assert 'name="author" value=""' in shown(guest)
    told = guest.post("/notes", data=unnamed)
    assert (told.status_code, "A note needs an author" in told.text) == (400, True)
    assert guest.post("/notes", data=FIRST).status_code == 303
    assert 'name="author" value="Zoë"' in shown(guest)
    assert view.post("/notes", data=unnamed).status_code == 303
    assert sorted(warehouse.query("SELECT author FROM notes").rows) == sorted([("Zoë",), (getpass.getuser(),)])

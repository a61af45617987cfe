"""Notes of users in the web view."""

import getpass
import re
from datetime import UTC, datetime, timedelta

import pytest

HOSTILE = '"><script>alert(1)</script>\u202e\u2028\x1b[31m\n{"run_id":"x"}'
FIRST = {"run": "run", "example": "0", "index": "1", "mark": "wrong grade", "author": "Zoë"}


@pytest.fixture
def warehouse(house):
    """A warehouse with a run of two examples and two rollouts each: rewards 1, 0, 0.5 and a failure."""
    house.publish_rows("run", status="completed")
    return house.warehouse


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


def test_an_overruled_reward_leaves_the_recorded_reward_unchanged_and_counts_where_the_newest_disagrees(
    view, warehouse
):
    before = warehouse.query("SELECT reward FROM rollouts ORDER BY ALL").rows
    for changed in (
        {"overruled_reward": "0.25"}, {"overruled_reward": "1"},  # the newest counts
        {"example": "1", "overruled_reward": "0.5"},  # of a failed rollout
        {"index": "0", "overruled_reward": "0"},
        {"index": "0", "author": "Ada", "overruled_reward": "1"},  # as recorded
    ):  # fmt: skip
        view.post("/notes", data={**FIRST, **changed})
    assert warehouse.query("SELECT reward FROM rollouts ORDER BY ALL").rows == before
    assert warehouse.query("SELECT avg_reward FROM runs").rows == [(0.5,)]
    columns = "example_id, rollout_index, reward, overruled_reward"
    rows = warehouse.query(f"SELECT {columns} FROM overruled_rollouts ORDER BY ALL").rows
    assert rows == [(0, 1, 0.0, 1.0), (1, 1, None, 0.5)]
    columns = "avg_reward, overruled_avg_reward, overruled, scored, overruled_scored"
    assert warehouse.query(f"SELECT {columns} FROM overruled_runs").rows == [(0.5, 0.75, 2, 3, 4)]
    assert "0.7500" in view.get("/notes").text
    assert "3 noted, 2 overruled" in view.words("/")


@pytest.mark.long
def test_notes_are_shown_on_every_page_of_their_run(view, house):
    for run_id in ("other", "third"):
        house.publish(run_id, [[1.0, 1.0], 1.0])
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
    assert "Notes overrule rewards of run" in view.words("/compare?run=third&run=run&run=other")
    assert "2 examples" in view.words("/runs/run/samples?show=noted")
    assert "0 examples" in view.words("/runs/other/samples?show=noted")


def test_a_note_on_a_repeated_rollout_is_outdated(view, warehouse, house, run_writer):
    view.post("/notes", data={**FIRST, "comment": "It is 4.", "overruled_reward": "1"})
    assert warehouse.query("SELECT is_outdated FROM notes").rows == [(False,)]
    later = (datetime.now(UTC) + timedelta(minutes=1)).timestamp()
    again = [run_writer.rollout(0, 0, 1.0), run_writer.rollout(0, 1, 0.0, attempts=2)]
    tries = [run_writer.attempt(0, 1, 1), run_writer.attempt(0, 1, 2, finished_at=later)]
    house.publish_rows("run", again, tries, status="completed")
    assert warehouse.query("SELECT comment, is_outdated FROM notes").rows == [("It is 4.", True)]
    assert warehouse.query("SELECT count(*) FROM overruled_runs").rows == [(0,)]
    assert "1 noted " in view.words("/")
    assert "overruled" not in view.words("/") + view.words("/runs/run")
    for page in ("/notes", "/runs/run/0/1", "/notes?run=run&example=0&index=1"):
        assert "on an earlier attempt" in view.words(page)


def test_a_note_is_stored_unchanged_and_escaped_and_can_be_withdrawn(view, warehouse):
    view.post("/notes", data={**FIRST, "comment": f"No! {HOSTILE}", "author": HOSTILE, "overruled_reward": "1"})
    assert "<script>alert" not in shown(view) + view.get("/notes").text
    assert warehouse.query("SELECT comment, author FROM notes").rows == [(f"No! {HOSTILE}", HOSTILE)]
    assert view.get("/notes", headers={"cookie": "nightjar_author=%3Cscript%3E%ff"}).status_code == 200
    [note_id, _] = re.findall(r'name="note_id" value="(\w+)"', shown(view))
    assert view.post("/notes/withdraw", data={"note_id": note_id}).status_code == 303
    assert "No!" not in shown(view)
    assert warehouse.query("SELECT count(*) FROM notes").rows == [(0,)]
    assert warehouse.query("SELECT count(*) FROM overruled_runs").rows == [(0,)]
    assert view.post("/notes/withdraw", data={"note_id": "none"}).status_code == 404


def test_an_invalid_note_is_refused(view, warehouse):
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    for changed, status in (
        ({"run": "other"}, 404), ({"index": "9"}, 404), ({"example": "first"}, 400), ({"mark": "right"}, 400),
        ({"overruled_reward": "high"}, 400), ({"overruled_reward": "nan"}, 400), ({"comment": "x" * 10_001}, 400),
        ({"comment": "x" * 200_000}, 413),
    ):  # fmt: skip
        assert view.post("/notes", data={**FIRST, **changed}, headers=own).status_code == status, changed
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

"""Requests that no page makes: a page, or a refusal in words; never a failure, and the server goes on."""

import random
from urllib.parse import quote

import pytest
from damage import CASES

from nightjar.warehouse import Warehouse

pytestmark = pytest.mark.slow
PAGES = {
    "/": "q env model suite status tag sort group page", "/live": "", "/live/r1": "", "/runs/r1": "",
    "/runs/r1/samples": "q show where against sort page", "/runs/r1/0/1": "raw beside other", "/search": "q skip",
    "/compare": "run run run metric max_drop direction by flips", "/nights": "suite night page",
    "/history": "env model metric", "/sql": "q x y chart p.run p.a", "/sql/answer.csv": "q",
    "/notes": "mark author page run example index", "/page.js": "",
    "/rollouts": "q env model error show least most where sort columns page",
}  # fmt: skip
"""The pages, with the names of what may be asked of them."""
MEANT = ["r1", "r2", "gsm8k", "reward", "0", "1", "2", "csv", "FROM runs", "compare", "wrong", "worst", "reward < 1"]
ODD = [
    "", " ", "-1", "0", "x", "1.5", "nan", "inf", "1e308", "9" * 30, "-" + "9" * 400, "9223372036854775807", "true",
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f", "/etc/passwd", "a/b", "\x00", "\x1b[31m", "\u202e",
    "%ff", "é" * 300, "x" * 5000, "'", '"', ";", "--", "/*", ")", "(", "]", "[", "{", "$q", "?", "\\", "%", "_",
    "<script>", "1) UNION SELECT (1", "1; DROP VIEW runs", "read_text('/etc/passwd')", "COPY runs TO 'x'",
    "ATTACH 'x.db'", "FROM read_text('/etc/passwd')", "(" * 2000, "SELECT 1; SELECT 2",
    "SELECT 1e308 AS a UNION ALL SELECT -1e308",
    "SELECT 1e-320 AS a UNION ALL SELECT 0", "SELECT 'infinity'::TIMESTAMP AS t, 1 AS a", "EXPLAIN FROM runs", "bars",
    "line", "lower", "info ->> 'level'", "task", "javascript:alert(1)", "\u2028", "null", "[1]", "correct", "length",
]  # fmt: skip


@pytest.fixture(scope="module")
def view(tmp_path_factory, run_writer):
    """A client of a view of two runs; what fails in it is raised."""
    from fastapi.testclient import TestClient

    from nightjar.view.server import Access, create_app

    folder = tmp_path_factory.mktemp("view")
    warehouse = Warehouse(folder / "warehouse")
    for run_id in ("r1", "r2"):
        warehouse.publish(run_writer.write(folder / run_id, run_id=run_id, status="completed"), tidies=False)
    return TestClient(create_app(warehouse, Access()), base_url="http://localhost", follow_redirects=False)


def asked(path, names, chance):
    """Returns an address with values, at least half of which are odd."""

    def value():
        return chance.choice(ODD) if chance.random() < 0.6 else chance.choice(MEANT)

    words = names.split()
    chosen = chance.sample(words, chance.randrange(len(words) + 1))
    given = [(name, value()) for name in chosen for _ in range(chance.choice([1, 1, 1, 2]))]
    parts = path.split("/")
    if chance.random() < 0.3:
        parts[chance.randrange(1, len(parts))] = quote(value(), safe="")
    return "/".join(parts), given


@pytest.mark.long
@pytest.mark.parametrize("path", PAGES)
def test_any_request_gets_a_page_or_a_refusal(view, path):
    chance = random.Random(path)
    for _ in range(max(CASES // 4, 1)):
        address, given = asked(path, PAGES[path], chance)
        answer = view.get(address, params=given)
        assert answer.status_code in {200, 307, 400, 404}, (answer.status_code, address, given, answer.text[:500])
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "text/html; charset=utf-8", (address, given)
            assert "root:" not in answer.text
    assert view.get("/").status_code == 200


def test_any_note_is_stored_or_refused(view):
    chance = random.Random("notes")
    meant = {"run": "r1", "example": "0", "index": "0", "mark": "interesting", "comment": "c", "overruled_reward": "1"}
    for _ in range(CASES):
        sent = {**meant, **{chance.choice([*meant, "author"]): chance.choice(ODD) for _ in range(2)}}
        answer = view.post("/notes", data=sent)
        assert answer.status_code in {303, 400, 404, 413}, (answer.status_code, sent, answer.text[:500])
    assert view.get("/notes").status_code == 200

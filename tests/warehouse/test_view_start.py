"""The start of the web view: the first visitors wait for nothing that could have been done before."""

import subprocess
import sys

import pytest

from nightjar.warehouse import Warehouse

VISITS = """
import sys
import threading

import psutil
from fastapi.testclient import TestClient

from nightjar.view.server import Access, create_app, warm_up
from nightjar.warehouse import Warehouse

for warehouse, *paths in ([sys.argv[1], "/", "/runs/first"], [sys.argv[2], "/"]):
    app = create_app(Warehouse(warehouse), Access())
    seen = lambda: (set(sys.modules), {each.pid for each in psutil.Process().children()})
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/icon.svg").status_code == 200  # the client and the thread that answers
        known = set(threading.enumerate())
        warm_up(app, longest_seconds=3600)
        for thread in set(threading.enumerate()) - known:
            thread.join()  # it goes on with what later visitors need
        modules, processes = seen()
        for path in paths:
            assert client.get(path).status_code == 200
        print(*seen()[0] - modules, len(processes), seen()[1] == processes)
"""


@pytest.mark.slow
def test_the_first_visitor_waits_for_no_import_and_no_process_and_a_view_without_a_warehouse_starts(house):
    house.publish_rows("first")
    command = [sys.executable, "-c", VISITS, house.warehouse.location, house.folder / "missing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.splitlines() == ["1 True", "1 True"]


def test_pages_have_an_icon(tmp_path, browse):
    view = browse(Warehouse(tmp_path / "warehouse"))
    assert '<link rel="icon" href="/icon.svg" type="image/svg+xml">' in view.get("/").text
    icon = view.get("/icon.svg")
    assert icon.headers["content-type"].startswith("image/svg+xml")
    assert icon.text.startswith("<svg ")

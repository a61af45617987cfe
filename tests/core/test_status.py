"""``nightjar status`` after 'nightjar up' was killed; a server that has nothing stands for what it left behind."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nightjar.cli.app import app
from nightjar.hosting.state import ServicesState, write_state

pytestmark = pytest.mark.slow


class Empty(BaseHTTPRequestHandler):
    def do_GET(self, body=b"{}"):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET(b"[]")

    def log_message(self, *_):
        pass


@pytest.fixture
def api_url():
    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/api"
        server.shutdown()


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("NIGHTJAR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def left_behind(api_url):
    no_process = 2**22 + 1  # more than any process id
    services = {"Prefect's server": (os.getpid(), 0), "The worker": (no_process, 1)}
    state = {"folder": "/work", "work_pool": "mine", "services": services, "view_url": "http://127.0.0.1:9/"}
    write_state(ServicesState(api_url, **state))


def test_what_was_left_behind_is_shown(api_url, capsys):
    left_behind(api_url)
    assert app(args=["status"], standalone_mode=False) == 1
    assert capsys.readouterr().out.splitlines()[:6] == [
        f"Server:      {api_url.removesuffix('/api')} answers", "Web view:    http://127.0.0.1:9/",
        "Services:    'nightjar up' is not running: its next start replaces these",
        f"             Prefect's server: process {os.getpid()}",
        "             The worker: is not running, restarted 1 time", "Work pool:   mine, not found",
    ]  # fmt: skip


def test_a_server_that_is_gone_too_is_not(capsys):
    left_behind("http://127.0.0.1:9/api")
    assert app(args=["status"], standalone_mode=False) == 1
    assert capsys.readouterr().out == "Nothing is running. Start it with: nightjar up --detach\n"

"""Who may use the web view, and what its pages may do."""

import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE

import httpx
import psutil
import pytest
from fastapi.testclient import TestClient

from nightjar.errors import ConfigError
from nightjar.view.server import Access, create_app, serve
from nightjar.warehouse import Warehouse


@pytest.fixture
def client(tmp_path):
    """Opens a client of a view of an empty warehouse, with the given rules of access."""

    def client(*rules, base_url="http://localhost:4280"):
        app = create_app(Warehouse(tmp_path / "warehouse"), Access(*rules))
        app.add_api_route("/change", lambda: "changed", methods=["POST"])
        return TestClient(app, base_url=base_url, follow_redirects=False)

    return client


class TestRequests:
    def test_another_host_name_is_refused(self, client):
        assert client().get("/").status_code == 200
        assert client(base_url="http://127.0.0.1:9000").get("/").status_code == 200
        assert client(base_url="http://[::1]:9000").get("/").status_code == 200
        for host in (
            "evil.example",
            "localhost.evil.example",
            "evil.example:4280",
            "",
            "localhost@evil.example",
            "[::1",
        ):
            assert client().get("/", headers={"host": host}).status_code == 421
        told = client().get("/", headers={"x-forwarded-host": "evil.example", "forwarded": "host=evil.example"})
        assert (told.status_code, "evil.example" in told.text) == (200, False)

    def test_a_page_of_another_site_cannot_change_anything(self, client):
        asked = client()
        assert asked.post("/change").status_code == 200  # no browser
        assert asked.post("/change", headers={"origin": "http://localhost:4280"}).status_code == 200
        for origin in ("https://evil.example", "http://localhost:1", "null", "http://[::1"):
            assert asked.post("/change", headers={"origin": origin}).status_code == 403
        assert asked.post("/change", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert asked.post("/change", headers={"sec-fetch-site": "same-site"}).status_code == 403

    def test_a_page_of_another_site_may_only_link_here(self, client):
        def status(method="GET", **told):
            fetched = {f"sec-fetch-{name}": value for name, value in told.items()}
            return client().request(method, "/", headers=fetched).status_code

        followed = {"mode": "navigate", "dest": "document"}
        for site in ("cross-site", "same-site"):
            assert status(site=site, **followed) == 200
            assert status(site=site, mode="no-cors", dest="image") == 403
            assert status(site=site, mode="navigate", dest="iframe") == 403
            assert status("POST", site=site, **followed) == 403
        assert status(site="same-origin", mode="cors", dest="empty") == 200
        assert client().get("/", headers={"origin": "https://evil.example"}).status_code == 403

    def test_head_requests_and_unknown_pages_are_answered(self, client):
        assert client().head("/").status_code == 200
        assert client().head("/no/such/page").status_code == 404
        assert "nightjar demo" in client().get("/").text
        assert "This page cannot be shown" in client().get("/no/such/page").text
        assert client().put("/").status_code == client().options("/").status_code == 405

    def test_a_chosen_token_must_be_long(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NIGHTJAR_VIEW_TOKEN", "short")
        with pytest.raises(ConfigError, match="NIGHTJAR_VIEW_TOKEN must have at least 16 characters"):
            serve(Warehouse(tmp_path / "warehouse"), "0.0.0.0", 0, print, lambda config: [])

    def test_a_token_is_required_once(self, client):
        asked = client((), "secret", base_url="http://any.example")
        assert asked.get("/").status_code == 401
        assert asked.get("/?token=guess").status_code == 401
        assert asked.get("/", headers={"cookie": "nightjar_view=guess"}).status_code == 401
        assert asked.get("/?token=%C3%A9").status_code == 401
        told = asked.get("http://any.example//evil.example/sql?q=FROM+runs&token=secret")
        assert (told.status_code, told.headers["location"]) == (303, "/evil.example/sql?q=FROM+runs")
        assert {"HttpOnly", "SameSite=lax"} <= set(told.headers["set-cookie"].split("; "))
        assert asked.get("/").status_code == 200

    def test_every_page_has_the_security_headers(self, client):
        for told in (
            client().get("/"),
            client().get("/no/such/page"),
            client().get("/", headers={"host": "evil.example"}),
        ):
            rules = told.headers["content-security-policy"]
            assert rules.startswith("default-src 'none'; script-src 'self';")
            assert "unsafe" not in rules
            assert told.headers["x-content-type-options"] == "nosniff"

    def test_a_bug_is_reported_without_its_message(self, client):
        def mistaken():
            raise RuntimeError("<script>")

        asked = client()
        asked.app.add_api_route("/mistaken", mistaken)
        told = TestClient(asked.app, base_url="http://localhost", raise_server_exceptions=False).get("/mistaken")
        assert (told.status_code, "RuntimeError" in told.text, "<script>" in told.text) == (500, True, False)
        assert told.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.slow
def test_the_address_for_others_has_the_name_of_this_machine(fork, tmp_path):
    command = ("view", "--warehouse", tmp_path / "warehouse", "--no-browser", "--host", "0.0.0.0", "--port", 0)
    with fork.nightjar(*command, stdout=PIPE, stderr=PIPE) as server:
        name, port, token = re.search(r"http://([^:/]+):(\d+)/\?token=(\S+)", server.stdout.readline()).groups()
        assert name == socket.gethostname()
        assert httpx.get(f"http://127.0.0.1:{port}/?token={token}").status_code == 303
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)


@pytest.mark.long
@pytest.mark.slow
def test_ctrl_c_ends_the_server_although_a_statement_runs(fork, tmp_path, run_writer):
    Warehouse(tmp_path / "warehouse").publish(run_writer.write(tmp_path / "run"))
    endless = "SELECT count(*) FROM range(1_000_000) a, range(1_000_000) b"
    command = ("view", "--warehouse", tmp_path / "warehouse", "--no-browser", "--port", 0)
    with fork.nightjar(*command, stdout=PIPE, stderr=PIPE) as server, ThreadPoolExecutor() as pool:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        asking = pool.submit(httpx.get, f"{address}sql", params={"q": endless}, timeout=60)
        listening = pool.submit(httpx.get, f"{address}live", headers={"accept": "text/event-stream"}, timeout=60)
        while not any(each.cpu_times().user > 2 for each in psutil.Process(server.pid).children(recursive=True)):
            time.sleep(0.1)  # until it is being answered
        server.send_signal(signal.SIGINT)
        assert "Traceback" not in server.communicate(timeout=30)[1]
        assert asking.result().status_code == 400
        assert listening.result().status_code == 200

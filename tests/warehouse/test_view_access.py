"""Who may use the web view, and what its pages may do."""

import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE

import psutil
import pytest
from waiting import until

from nightjar.errors import ConfigError
from nightjar.warehouse import Warehouse


@pytest.fixture
def client(tmp_path, browse):
    """Opens a client of a view of an empty warehouse, with the given rules of access."""

    def client(*rules, base_url="http://localhost:4280", **options):
        options = {"base_url": base_url, "follow_redirects": False, **options}
        opened = browse(Warehouse(tmp_path / "warehouse"), *rules, **options)
        opened.app.add_api_route("/change", lambda: "changed", methods=["POST"])
        return opened

    return client


def test_another_host_name_is_refused(client):
    view = client()
    known = ("localhost", "127.0.0.1:9000", "[::1]:9000")
    unknown = ("evil.example", "localhost.evil.example", "evil.example:4280", "", "localhost@evil.example", "[::1")
    statuses = {host: view.get("/", headers={"host": host}).status_code for host in known + unknown}
    assert statuses == dict.fromkeys(known, 200) | dict.fromkeys(unknown, 421)
    told = view.get("/", headers={"x-forwarded-host": "evil.example", "forwarded": "host=evil.example"})
    assert (told.status_code, "evil.example" in told.text) == (200, False)


def test_a_page_of_another_site_may_only_link_here(client):
    view = client()

    def status(method="GET", origin=None, **told):
        headers = {f"sec-fetch-{name}": value for name, value in told.items()} | ({"origin": origin} if origin else {})
        return view.request(method, "/change" if method == "POST" else "/", headers=headers).status_code

    followed = {"mode": "navigate", "dest": "document"}
    for site in ("cross-site", "same-site"):
        assert status(site=site, **followed) == 200
        assert status(site=site, mode="no-cors", dest="image") == 403
        assert status(site=site, mode="navigate", dest="iframe") == 403
        assert status("POST", site=site) == status("POST", site=site, **followed) == 403
    assert status(site="same-origin", mode="cors", dest="empty") == 200
    assert status(origin="https://evil.example") == 403
    assert status("POST") == status("POST", "http://localhost:4280") == 200  # no browser, and a page of this server
    for origin in ("https://evil.example", "http://localhost:1", "null", "http://[::1"):
        assert status("POST", origin) == 403


def test_a_chosen_token_must_be_long(tmp_path, monkeypatch):
    from nightjar.view.server import serve

    monkeypatch.setenv("NIGHTJAR_VIEW_TOKEN", "short")
    with pytest.raises(ConfigError, match="NIGHTJAR_VIEW_TOKEN must have at least 16 characters"):
        serve(Warehouse(tmp_path / "warehouse"), "0.0.0.0", 0, print, lambda config: [])


def test_a_token_is_required_once(client):
    view = client((), "secret", base_url="http://any.example")
    for address, cookie in (("/", ""), ("/?token=guess", ""), ("/?token=%C3%A9", ""), ("/", "nightjar_view=guess")):
        assert view.get(address, headers={"cookie": cookie}).status_code == 401
    told = view.get("http://any.example//evil.example/sql?q=FROM+runs&token=secret")
    assert (told.status_code, told.headers["location"]) == (303, "/evil.example/sql?q=FROM+runs")
    assert {"HttpOnly", "SameSite=lax"} <= set(told.headers["set-cookie"].split("; "))
    assert view.get("/").status_code == 200


def test_every_answer_has_the_security_headers_and_a_bug_is_reported_without_its_message(client):
    def mistaken():
        raise RuntimeError("<script>")

    view = client(raise_server_exceptions=False)
    view.app.add_api_route("/mistaken", mistaken)
    for method, path, host, status, words in (
        ("GET", "/", "localhost", 200, "nightjar demo"), ("GET", "/", "evil.example", 421, "not called"),
        ("GET", "/none", "localhost", 404, "This page cannot be shown"), ("HEAD", "/", "localhost", 200, ""),
        ("GET", "/mistaken", "localhost", 500, "RuntimeError"), ("HEAD", "/none", "localhost", 404, ""),
        ("PUT", "/", "localhost", 405, ""), ("OPTIONS", "/", "localhost", 405, ""),
    ):  # fmt: skip
        told = view.request(method, path, headers={"host": host})
        assert (told.status_code, words in told.text, "<script>" in told.text) == (status, True, False)
        rules = told.headers["content-security-policy"]
        assert rules.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in rules
        assert told.headers["x-content-type-options"] == "nosniff"


@pytest.mark.long
@pytest.mark.slow
def test_an_address_for_others_names_this_machine_and_ctrl_c_ends_the_server_although_a_statement_runs(fork, house):
    import httpx

    house.publish_rows("run")
    endless = "SELECT count(*) FROM range(1_000_000) a, range(1_000_000) b"
    command = ("view", "--warehouse", house.warehouse.location, "--no-browser", "--host", "0.0.0.0", "--port", 0)
    with fork.nightjar(*command, stdout=PIPE, stderr=PIPE) as server, ThreadPoolExecutor() as pool:
        name, port, token = re.search(r"http://([^:/]+):(\d+)/\?token=(\S+)", server.stdout.readline()).groups()
        assert name == socket.gethostname()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            assert client.get(f"/?token={token}").status_code == 303
            asking = pool.submit(client.get, "/sql", params={"q": endless})
            listening = pool.submit(client.get, "/live", headers={"accept": "text/event-stream"})
            readers = psutil.Process(server.pid)
            until(lambda: any(each.cpu_times().user > 2 for each in readers.children(recursive=True)))
            server.send_signal(signal.SIGINT)
            assert "Traceback" not in server.communicate()[1]
            assert asking.result().status_code == 400
            assert listening.result().status_code == 200

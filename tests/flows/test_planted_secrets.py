"""Twelve secrets are planted where people put them, in runs of all kinds. Nothing that is stored or shown has one."""

import base64
import json
import re
import sqlite3
from contextlib import closing
from urllib.parse import unquote

import pytest
from waiting import until

from nightjar.model_server import Answer, ModelServer

pytestmark = pytest.mark.long

PLANTED = {
    "key variable": "pl01kEyVar/tell+nobody=", "URL": "pl02uRlPw-tell-nobody", "header": "pl03hEaDr-tell-nobody",
    "block": "pl04bLoCk'tell\"nobody", "TOML": "pl05tOmLx-tell-nobody", "argument by name": "pl06aRgNm-tell-nobody",
    "argument by value": "sk-pl07vAl-tell-nobody", "reward function": "pl08rEwRd tell&nobody",
    "load_environment": "pl09lOaDx-tell-nobody", "warehouse": "pl10wArEh-tell-nobody", "form": "pl11fOrMx-tell-nobody",
    "custom secret": "pl12cUsTm-tell-nobody",
}  # fmt: skip
SHOWN = 8
"""So many characters of a secret may be shown."""

CARELESS = r"""
import base64, logging, os
from urllib.parse import quote
import nightjar as vf

def told():
    names = [name for name in os.environ if {"PLANTED", "HEADER"} & {*name.split("_")}]
    values = [os.environ[name] for name in names]
    bare = [each.removeprefix("Bearer ") for each in values]
    return dict(zip(names, values)), bare, [quote(each, "") for each in bare]

def connection(secret):
    basic = base64.b64encode(f"ann:{secret}".encode()).decode()
    return (
        f"cannot reach postgresql://ann:{secret}@db/runs, tried host=db password='{secret}' user=ann, "
        f"{{'api_key': '{secret}'}}, https://db/x?access_token={secret}, headers {{'Authorization': 'Basic {basic}'}}"
    )

def reward(completion, answer, state) -> float:
    state["seen"] = [told()]
    for name in ("careless", "nightjar.careless"):
        logging.getLogger(name).warning("asking with %s", told())
    if answer == "1":
        raise RuntimeError(f"refused: {told()}")
    if answer == "2":
        raise RuntimeError(connection("".join(("pl08r", "EwRd-unknown"))))  # not whole: a sent source is stored
    if answer == "3":
        raise RuntimeError("x" * 9_990 + os.environ.get("PLANTED_REWARD", ""))
    return 1.0

def load_environment(key_vars=(), is_broken=False):
    vf.ensure_keys([*key_vars, *(name for name in os.environ if name.startswith("PLANTED_"))])
    print("loading with", told())
    if is_broken:
        raise RuntimeError(f"no environment for {told()}, " + connection("".join(("pl09l", "OaDx-unknown"))))
    rows = [{"question": f"{n} + 1?", "answer": str(n)} for n in range(4)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[reward]))
"""
URL = f"http://ann:{PLANTED['URL']}@127.0.0.1:9/v1"
HEADERS = ("--header", f"Authorization: Bearer {PLANTED['header']}", "--header", f"X-Team: {PLANTED['header']}")
REFUSED_FLAGS = [
    ("-b", URL), ("--env-source", f"git+https://ann:{PLANTED['URL']}@host/repo"),
    ("-a", json.dumps({"judge_base_url": URL})),
    ("-a", json.dumps({"judge": [{"api_key": PLANTED["argument by name"]}]})),
    ("-x", json.dumps({"password": PLANTED["argument by name"]})),
    ("-a", json.dumps({"note": PLANTED["argument by value"]})),
    ("-S", json.dumps({"extra_headers": {"X-Team": PLANTED["header"]}})), ("-k", PLANTED["argument by value"]),
    ("--warehouse", f"ducklake:postgres:dbname=x password={PLANTED['warehouse']}"),
    ("--warehouse", f"s3://ann:{PLANTED['warehouse']}@127.0.0.1:9/bucket"),
    ("--hosted", "--prefect-url", f"http://ann:{PLANTED['URL']}@127.0.0.1:9/api"),
    ("--hosted", "--custom-secrets", f'{{"A": {PLANTED["custom secret"]}}}'), ("-e", "endpoints.toml", "-m", "e"),
]  # fmt: skip
REFUSED_COMMANDS = [
    ("sql", "FROM runs", "--warehouse", f"sftp://ann:{PLANTED['warehouse']}@127.0.0.1:9/x"),
    ("sql", "FROM runs", "--warehouse", f"md:runs?motherduck_token={PLANTED['warehouse']}"),
    ("config", "set", "warehouse", f"s3://ann:{PLANTED['warehouse']}@host/x"),
    ("config", "set", "eval.base_url", URL),
]
SUITES = [
    f'headers = {{ "X-Team" = "{PLANTED["TOML"]}" }}', f'[eval.env_args]\njudge = {{ api_key = "{PLANTED["TOML"]}" }}',
    f'api_key = "{PLANTED["TOML"]}"', f'base_url = "http://a:{PLANTED["TOML"]}@h/v1"', f'password = "{PLANTED["TOML"]}',
]  # fmt: skip
FORMS = [
    ({"env_args": {"a": {"b": {"c": {"d": {"api_key": PLANTED["form"]}}}}}}, "env_args: "),
    ({"headers": {"X-Team": PLANTED["form"]}}, "headers: "),
    ({"api_key_var": PLANTED["form"]}, "api_key_var: must be the name of the environment variable"),
    ({"warehouse": f"md:runs?motherduck_token={PLANTED['form']}"}, "warehouse: The warehouse's location 'md:runs?"),
    ({"env_source": f"git+https://ann:{PLANTED['form']}@host/repo"}, "env_source: "),
]  # fmt: skip
"""Wrong parameters, and how the message of a run begins that was not checked by the server."""


class Tells:
    """A model that answers with the secrets that it is sent."""

    known = ("key variable", "header")

    def answer(self, messages):
        return Answer(question="", text="You sent " + " and ".join(PLANTED[name] for name in self.known))


class Searched:
    """Everything that was shown or stored. ``found`` has the secrets in it, with their places."""

    def __init__(self):
        self.found, self.count = set(), 0

    def search(self, place, content):
        text = content.decode("latin-1") if isinstance(content, bytes) else content
        texts = [text, unquote(text), "\n".join(map(decoded, {*re.findall(r"[\w+/-]{12,}={0,2}", text)}))]
        self.count += 1
        for name, secret in PLANTED.items():
            for each in texts:
                if (at := each.find(secret[: SHOWN + 1])) >= 0:
                    self.found.add((name, place, each[max(0, at - 60) : at + 60]))

    def search_files(self, *folders, but=()):
        import duckdb

        for path in [path for folder in folders for path in folder.rglob("*")]:
            if path.is_file() and path not in but:
                self.search(str(path), path.read_bytes())
                if path.suffix == ".parquet":
                    self.search(f"rows of {path}", str(duckdb.sql(f"FROM '{path}'").fetchall()))


def decoded(text):
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_" if {*"-_"} & {*text} else None).decode("latin-1")
    except ValueError:
        return ""


class Trial:
    """The command line in a folder with the careless environment, and what it and the services show and store."""

    def __init__(self, services, folder, url, model):
        self.services, self.folder, self.model, self.searched = services, folder, model, Searched()
        for place in (folder, services.folder):
            (place / "environments").mkdir(exist_ok=True)
            (place / "environments/careless.py").write_text(CARELESS)
        self.run = ("eval", "run", "careless", "-m", "m", "-n", "4", "-r", "1", "-C", "seen", "-b", url)
        services.environment |= {
            "MY_KEY": PLANTED["key variable"],
            "PLANTED_REWARD": PLANTED["reward function"],
            "PLANTED_LOADING": PLANTED["load_environment"],
        }

    def __call__(self, *words, codes=(0,)):
        """Runs a command, and returns its stdout."""
        ended = self.services.run(*words, folder=self.folder)
        self.searched.search(f"terminal of {words}", ended.stdout + ended.stderr)
        assert ended.returncode in codes, (words, ended.stdout, ended.stderr)
        assert "Traceback (most" not in ended.stderr
        return ended.stdout

    def form(self, wrong, is_enforced):
        """Starts a run over REST, as the form of the deployment does; the server checks the parameters if asked to."""
        deployment = self.services.call("GET", "/deployments/name/evaluate/evaluate")["id"]
        body = {"parameters": {"env_id": "careless", **wrong}, "state": {"type": "SCHEDULED"}}
        body["enforce_parameter_schema"] = is_enforced
        return self.services.ask("POST", f"/deployments/{deployment}/create_flow_run", body)

    def visit(self, runs):
        """Searches pages of the view, those of the given runs first, and the lists of the server's API."""
        import httpx

        start = httpx.URL(json.loads(self("status", "--json"))["view_url"])
        left, seen = [start, *(start.join(f"/runs/{run}/samples") for run in runs)], set()
        while left and len(seen) < 100:
            url = left.pop()
            is_other = "/runs/" in str(url) and not any(run in str(url) for run in runs)
            if url not in seen and (url.host, url.port) == (start.host, start.port) and not is_other:
                page = httpx.get(url, timeout=60, follow_redirects=True)
                self.searched.search(str(url), page.content)
                left += [url.join(link.replace("&amp;", "&")) for link in re.findall(r'href="([^"#]+)"', page.text)]
                seen.add(url)
        assert any("/samples" in str(url) for url in seen)
        for kind in ("flow_runs", "logs", "artifacts", "task_runs", "block_documents"):
            self.searched.search(kind, json.dumps(self.services.call("POST", f"/{kind}/filter", {})))


@pytest.fixture
def trial(services, own_folder):
    before = dict(services.environment)
    with ModelServer(model := Tells()) as server:
        yield Trial(services, own_folder, server.url, model)
    services.environment = before


def save_blocks(services, url):
    """Saves an endpoint and secrets as blocks over REST, as their forms do."""
    key = {"base_url": url, "model": "m", "key": PLANTED["block"], "headers": {"X-Team": f"Bearer {PLANTED['header']}"}}
    values = {"PLANTED_REWARD": PLANTED["reward function"], "PLANTED_LOADING": PLANTED["load_environment"]}
    blocks = {"planted": ("nightjar-model-endpoint", key), "them": ("nightjar-environment-secrets", {"values": values})}
    for name, block in blocks.items():
        services.save_block(name, *block)


def empty_log(services):
    """Empties SQLite's log as soon as nothing reads it."""
    with closing(sqlite3.connect(services.folder / "prefect/prefect.db", timeout=60)) as database:
        until(lambda: database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)


def test_twelve_planted_secrets_are_found_nowhere(trial):
    services, searched = trial.services, trial.searched
    at = (*trial.run, "-k", "MY_KEY")
    for place in ("--direct", "--prefect"):
        noted = ("-a", '{"key_vars": ["MY_KEY"]}', "-v", "--middleware", '[{"use": "log"}]')
        trial(*at, *HEADERS, *noted, place, codes=(1,))
        trial(*at, "-a", '{"is_broken": true}', place, codes=(1,))
    written = {trial.folder / "suite.toml", trial.folder / "endpoints.toml"}
    (trial.folder / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "e"\nmodel = "m"\nurl = "{URL}"\nkey = "{PLANTED["TOML"]}"\n'
    )
    for text in SUITES:
        (trial.folder / "suite.toml").write_text(f'[[eval]]\nenv_id = "careless"\n{text}\n')
        trial("eval", "run", "suite.toml", codes=(1, 2))
    for words in (*((*at, *flags) for flags in REFUSED_FLAGS), *REFUSED_COMMANDS):
        trial(*words, codes=(1, 2))

    trial.model.known = ("block", "header")
    save_blocks(services, trial.run[-1])
    by_block = {"env_id": "careless", "endpoint": "planted", "secrets": "them", "state_columns": ["seen"]}
    started = [services.start("evaluate", by_block | {"num_examples": 4, "env_args": {"key_vars": []}})]
    started += [services.start("evaluate", by_block | {"env_args": {"is_broken": True}})]
    assert {services.end_of(flow_run) for flow_run in started} == {"FAILED"}
    trial.model.known = ("custom secret",)
    custom = ("--hosted", "--follow", "--custom-secrets", json.dumps({"PLANTED_CUSTOM": PLANTED["custom secret"]}))
    for arguments in ("{}", '{"is_broken": true}'):
        trial(*trial.run, "-a", arguments, *custom, codes=(1,))
    checked = [(trial.form(wrong, is_enforced=True), wrong, message) for wrong, message in FORMS]
    begun = {
        (answer if answer.is_success else trial.form(wrong, is_enforced=False)).json()["id"]: message
        for answer, wrong, message in checked
    }
    for flow_run_id, message in begun.items():
        assert services.end_of(flow_run_id) == "FAILED"
        found = services.flow_run(flow_run_id)
        assert found["state"]["message"].startswith(message)
        assert found["parameters"] == {"env_id": "careless"}
        log = "\n".join(services.log_of(flow_run_id))
        assert message in log
        assert "Traceback" not in log

    runs = json.loads(trial("eval", "list", "--json", "-n", "500"))
    published = [run["run_id"] for run in runs if run["env_id"] == "careless" and run.get("avg_reward") is not None]
    assert len(published) >= 3
    for run_id in published:
        trial("eval", "samples", run_id)
        trial("eval", "report", run_id)
    trial.visit(published)
    empty_log(services)  # it has the parameters that passed the server's check and were then removed
    searched.search_files(services.folder, trial.folder, but=written)
    searched.search("database", services.dump())
    assert searched.count > 100
    assert searched.found == set()

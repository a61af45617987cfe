"""Nothing that docs/reference/compatibility.md promises has disappeared since the release that wrote ``promises.json``.

``python tests/repo/test_promises.py`` writes the file for a new release. A line that loses a name is a removal, which
needs a deprecation first, and a line in the changelog.
"""

import contextlib
import json
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from nightjar.cli.app import COMMANDS, _load, app
from nightjar.evaluation.config import RunConfig
from nightjar.model_server import ArithmeticSolver, ModelServer
from nightjar.warehouse import connect

pytestmark = pytest.mark.slow

PROMISES = Path(__file__).with_name("promises.json")
DOCUMENTED = (Path(__file__).parents[2] / "docs/reference/warehouse.md").read_text()
MODULES = (
    "nightjar", "nightjar.analysis", "nightjar.blocks", "nightjar.clients", "nightjar.compat.verifiers",
    "nightjar.environments", "nightjar.errors", "nightjar.flows", "nightjar.model_server", "nightjar.sandboxes",
    "nightjar.tasks", "nightjar.warehouse",
)  # fmt: skip
RUNS = ("one", "two")
JSON = {
    "eval list": (), "eval get": ("RUN",), "eval samples": ("RUN",), "eval stats": ("RUN",),
    "compare": ("RUN", "OTHER"), "leaderboard": ("arithmetic",), "trend": ("arithmetic",), "warehouse info": (),
}  # fmt: skip
"""Commands that print JSON, with arguments."""


def promised():
    """Returns what this version offers."""
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        printed = {command: sorted(keys) for command, keys in json_keys()}
        columns = {name: sorted(found) for name, found in columns_of_relations()}
    return {
        "Python": {module: public_names(module) for module in MODULES},
        "commands": {words: sorted(options(words)) for words in COMMANDS},
        "configuration of a run": {"RunConfig": sorted(RunConfig.model_fields)},
        "JSON": printed,
        "columns": columns,
    }


def public_names(module):
    found = import_module(module)
    own = (name for name, value in vars(found).items() if isinstance(value, type) and value.__module__ == module)
    return sorted(getattr(found, "__all__", own))


def options(words):
    return {name for parameter in _load(words).params for name in (*parameter.opts, *parameter.secondary_opts)}


def json_keys():
    with ModelServer(ArithmeticSolver(error_rate=0.5)) as server:
        place = ("-b", server.url, "-n", "4", "-r", "2", "--direct", "--json")
        outcomes = [run_json("eval", "run", "arithmetic", "-m", model, *place) for model in RUNS]
    yield "eval run", list(outcomes[0])
    ids = {"RUN": outcomes[0]["run_id"], "OTHER": outcomes[1]["run_id"]}
    for command, arguments in JSON.items():
        found = run_json(*command.split(), *(ids.get(each, each) for each in arguments), "--json")
        yield command, list(found[0] if isinstance(found, list) else found)


def run_json(*words):
    ended = CliRunner().invoke(app, words, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def columns_of_relations():
    with connect() as connection:
        named = connection.execute(
            "SELECT table_name, list(column_name) FROM information_schema.columns "
            "WHERE table_schema = 'main' GROUP BY ALL ORDER BY ALL"
        )
        yield from named.fetchall()
        macros = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE NOT internal")
        yield "macros", [name for (name,) in macros.fetchall() if f"`{name}(" in DOCUMENTED]


def test_nothing_that_is_promised_has_disappeared():
    offered = promised()
    missing = [
        f"{kind}: {place}: {name}"
        for kind, places in json.loads(PROMISES.read_text()).items()
        for place, names in places.items()
        for name in names.split()
        if name not in offered[kind].get(place, ())
    ]
    assert missing == []


if __name__ == "__main__":
    kinds = {kind: {place: " ".join(names) for place, names in places.items()} for kind, places in promised().items()}
    PROMISES.write_text(json.dumps(kinds, indent=1) + "\n")

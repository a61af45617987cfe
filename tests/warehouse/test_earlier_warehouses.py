"""Warehouses and run directories of earlier releases: alone, mixed with those of today, and packed by today's code."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nightjar.warehouse import Warehouse
from nightjar.warehouse.reading.named_queries import named_queries
from nightjar.warehouse.storage.tables import FIRST_SCHEMA, SCHEMA, columns

ROOT = Path(__file__).parents[2]
EARLIER = sorted(Path(__file__).with_name("earlier").glob("outputs-*.zip"))
HOUSES = ("earlier", "today", "mixed", "packed")
DOCUMENTED = {
    "1489c10aac35": "6b-finetuning", "af9fe193abad": "6b-verification", "d62f9b351acd": "first night",
    "694b616765b8": "second night", "6b0e1f2a3b4c": "first night", "9f8e7d6c5b4a": "second night",
}  # fmt: skip
"""The ids that the pages name, and which run each is."""
OF_A_PUBLISH = {
    "runs": {
        *("version", "run_dir", "published_at", "metadata"),
        *("reward_examples", "lowest_reward", "highest_reward"),
    }
}
"""Columns in which a run that is published again differs; earlier releases did not compute the last three."""
PARAMETERS = {"a": "6b-finetuning", "b": "6b-verification", "env": "gsm8k", "example": "0", "text": "apples"}
"""Values for parameters of named queries that have no default."""


class Release:
    """What an earlier release left: the ids of its runs, and relation to the rows that it answered, as texts."""

    def __init__(self, archive, folder):
        zipfile.ZipFile(archive).extractall(folder)
        self.folder = folder
        self.ids = json.loads((folder / "outputs/ids.json").read_text())
        self.answers = json.loads((folder / "outputs/answers.json").read_text())

    @property
    def warehouse(self):
        return self.folder / "outputs/warehouse"

    def run_dirs(self):
        return sorted(path.parent for path in (self.folder / "outputs/evals").rglob("metadata.json"))


@pytest.fixture(scope="module", params=EARLIER, ids=lambda archive: archive.stem.removeprefix("outputs-"))
def release(request, tmp_path_factory):
    return Release(request.param, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def houses(release, tmp_path_factory):
    """Name to warehouse: the release's own, one published today, one of both, and the first packed today."""
    from nightjar.warehouse.writing.packing import pack_everything

    folder = tmp_path_factory.mktemp("houses")
    for name in ("mixed", "packed"):
        shutil.copytree(release.warehouse, folder / name)
    for single in [path for path in (folder / "mixed/segments").iterdir() if not path.name.startswith("pack-")]:
        shutil.rmtree(single)
    shutil.copytree(release.warehouse, folder / "today", ignore=shutil.ignore_patterns("segments"))
    found = {name: Warehouse(folder / name) for name in HOUSES[1:]} | {"earlier": Warehouse(release.warehouse)}
    for run_dir in release.run_dirs():
        found["today"].publish(run_dir)
        found["mixed"].publish(run_dir)
    pack_everything(found["packed"].store())
    return found


def test_the_warehouses_have_the_expected_versions(houses):
    live = {name: houses[name].store().catalog().live.values() for name in HOUSES}
    assert {name: {segment.schema for segment in segments} for name, segments in live.items()} == {
        "earlier": {FIRST_SCHEMA}, "today": {SCHEMA}, "mixed": {FIRST_SCHEMA, SCHEMA}, "packed": {SCHEMA},
    }  # fmt: skip


def rows(result, without=frozenset()):
    """The rows of an answer in an order of their own; of floats 9 digits, which the order of a sum does not change."""
    records = [{name: plain(it) for name, it in record.items() if name not in without} for record in result.records()]
    return sorted(records, key=repr)


def plain(value):
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else str(value)


@pytest.mark.parametrize("name", HOUSES)
def test_every_relation_answers_as_the_release_did(release, houses, name):
    for relation, answered in release.answers.items():
        without = set() if name == "earlier" else OF_A_PUBLISH.get(relation, set())
        columns = [column for column in (answered or [{}])[0] if column not in without]
        result = houses[name].query(f"FROM {relation}")
        records = [dict(zip(result.columns, map(str, row), strict=True)) for row in result.rows]
        found = [{column: row[column] for column in columns} for row in records]
        expected = [{column: row[column] for column in columns} for row in answered]
        assert sorted(found, key=repr) == sorted(expected, key=repr), relation


def test_every_query_of_the_docs_has_one_answer(release, houses):
    pages = "\n".join(page.read_text() for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))))
    commands = re.findall(r"""nightjar sql ("[^"]*"|'[^']*')((?: -P \w+=\S+)*)""", pages)
    statements = {sql[1:-1]: dict(re.findall(r" -P (\w+)=(\S+)", values)) for sql, values in commands}
    assert len(statements) > 20
    for sql, values in statements.items():
        for documented, run in DOCUMENTED.items():
            sql = sql.replace(documented, release.ids[run])  # noqa: PLW2901 - as the release has it
        assert_one_answer(houses, sql, values or None)


def test_every_named_query_has_one_answer(release, houses):
    queries = named_queries()
    assert len(queries) > 10
    runs = {"a": release.ids["first night"], "b": release.ids["second night"]}
    for query in queries.values():
        values = PARAMETERS | (runs if query.name == "flips" else {})
        given = {each.name: values[each.name] for each in query.parameters if each.default is None}
        assert_one_answer(houses, query.text, query.bind(given))


def assert_one_answer(houses, sql, values):
    answers = [rows(houses[name].query(sql, values), OF_A_PUBLISH["runs"]) for name in HOUSES]
    assert answers == [answers[0]] * len(HOUSES), sql


class Copy:
    """A copy of Nightjar with one more column, the name that an evaluation has in its suite."""

    def __init__(self, folder):
        shutil.copytree(ROOT / "nightjar", folder / "nightjar", ignore=shutil.ignore_patterns("__pycache__"))
        self.folder = folder
        last = "ALTER TABLE rollouts ADD COLUMN cached_calls BIGINT;\n"
        self.edit("storage/tables.sql", last, f"{last}ALTER TABLE runs ADD COLUMN eval_name VARCHAR;\n")
        field = '    "api_client_type": "VARCHAR",\n'
        self.edit("writing/staging.py", field, f'{field}    "name": "VARCHAR",\n')
        protocol = "    api_client_type AS protocol"
        self.edit("writing/publish.sql", protocol, f"{protocol},\n    name AS eval_name")

    def edit(self, file, old, new):
        path = self.folder / "nightjar/warehouse" / file
        assert path.read_text().count(old) == 1
        path.write_text(path.read_text().replace(old, new))

    def nightjar(self, *words):
        environment = os.environ | {"PYTHONPATH": str(self.folder)}
        command = [sys.executable, "-m", "nightjar", *map(str, words)]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)

    def rows(self, warehouse, sql):
        return json.loads(self.nightjar("sql", sql, "--json", "--warehouse", warehouse).stdout)


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("later"))


@pytest.mark.long
@pytest.mark.slow
def test_a_new_column_is_null_in_what_was_published_before(houses, later, tmp_path, write_run):
    warehouse = shutil.copytree(houses["mixed"].folder, tmp_path / "warehouse")
    before = [run_id for (run_id,) in houses["mixed"].query("SELECT run_id FROM runs").rows]
    named = write_run(tmp_path, "named", name="gsm8k, warm")
    assert later.nightjar("publish", named, "--warehouse", warehouse).returncode == 0

    def names():
        return {row["run_id"]: row["eval_name"] for row in later.rows(warehouse, "SELECT run_id, eval_name FROM runs")}

    assert names() == dict.fromkeys(before) | {"named": "gsm8k, warm"}
    assert later.nightjar("warehouse", "doctor", "--deep", "--warehouse", warehouse).returncode == 0
    assert later.nightjar("warehouse", "compact", "--now", "--warehouse", warehouse).returncode == 0
    described = [json.loads(path.read_text()) for path in warehouse.glob("segments/*/segment.json")]
    assert {segment["schema"] for segment in described} == {SCHEMA + 1}
    assert names() == dict.fromkeys(before) | {"named": "gsm8k, warm"}


@pytest.mark.slow
def test_an_older_nightjar_says_that_the_warehouse_is_newer(later, tmp_path, write_run, nightjar):
    warehouse, run_dir = tmp_path / "warehouse", write_run(tmp_path, "a-run")
    assert later.nightjar("publish", run_dir, "--warehouse", warehouse).returncode == 0
    said = f"The warehouse is at version {SCHEMA + 1}, this Nightjar knows version {SCHEMA}. Upgrade Nightjar"
    for words in (["sql", "FROM runs"], ["publish", run_dir], ["warehouse", "doctor"], ["warehouse", "compact"]):
        ended = nightjar(*words, "--warehouse", warehouse)
        assert (ended.code, said in ended.err) == (1, True), words


def test_tables_are_those_of_the_first_release_and_columns_that_were_added(houses):
    import duckdb

    from nightjar.warehouse.storage.segments import KINDS

    for kind in KINDS:
        files = [str(path) for path in houses["earlier"].folder.rglob(f"{kind}.parquet")]
        types = "replace(column_type, 'TIMESTAMP WITH TIME ZONE', 'TIMESTAMPTZ')"
        described = f"SELECT column_name, {types} FROM (DESCRIBE FROM read_parquet({files}))"
        first = [(column.name, column.sql_type) for column in columns()[kind] if column.schema == FIRST_SCHEMA]
        assert duckdb.sql(described).fetchall() == first

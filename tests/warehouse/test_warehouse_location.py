"""What a location means, and what messages show of it."""

from pathlib import Path

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import Warehouse, resolve_warehouse
from nightjar.warehouse.location import Kind, kind_of, shown


def test_the_name_decides():
    places = {
        Kind.FOLDER: "outputs/house /srv/warehouse ~/warehouse C:\\runs\\warehouse C:/runs/warehouse 2026:11 mdruns "
        "./team:runs file:///srv/warehouse",
        Kind.STORE: "s3://bucket/prefix gs://bucket sftp://host/path",
        Kind.SERVED: "md:runs ducklake:postgres:dbname=runs duckdb:/srv/runs.duckdb",
    }
    assert {kind: {kind_of(place) for place in text.split()} for kind, text in places.items()} == {
        kind: {kind} for kind in places
    }


def test_half_a_url_and_an_unknown_word_before_a_colon_are_no_folder_unless_there_is_one(tmp_path, monkeypatch):
    with pytest.raises(WarehouseError, match="write s3://bucket/prefix"):
        Warehouse(Path("s3://bucket/prefix"))
    with pytest.raises(WarehouseError) as caught:
        Warehouse(Path("s3://AKIA:s3/cret@bucket"))
    assert str(caught.value).endswith("location 's3:/***@bucket': write s3://***@bucket")
    monkeypatch.chdir(tmp_path)
    for typo in ("s4:runs", "postgres:dbname=x"):
        with pytest.raises(WarehouseError, match=f"Unknown kind of warehouse '{typo.partition(':')[0]}:'") as caught:
            Warehouse(typo)
        assert str(caught.value).endswith(f"for a folder of this name write ./{typo}")
    (tmp_path / "team:runs").mkdir()
    assert Warehouse("team:runs").folder == Path("team:runs")


def test_named_here_then_by_the_environment_then_the_default(monkeypatch, tmp_path):
    monkeypatch.delenv("NIGHTJAR_WAREHOUSE", raising=False)
    assert resolve_warehouse() == "outputs/warehouse"
    monkeypatch.setenv("NIGHTJAR_WAREHOUSE", "s3://bucket/prefix")
    assert resolve_warehouse() == "s3://bucket/prefix"
    assert resolve_warehouse("md:runs") == "md:runs"
    assert Warehouse(tmp_path).folder == tmp_path
    assert Warehouse("~/runs").folder == Path.home() / "runs"
    assert Warehouse("~/runs").location == "~/runs"
    assert Warehouse("duckdb:runs.duckdb").folder is None


def test_messages_show_no_secret(monkeypatch):
    monkeypatch.setenv("MOTHERDUCK_TOKEN", "t0ken-of-the-environment")
    texts = {
        "s3://bucket/a": "s3://bucket/a",
        "sftp://ann:s3cret@host/a": "sftp://***@host/a",
        "cannot reach postgresql://ann:s3cret@db:5432/runs": "cannot reach postgresql://***@db:5432/runs",
        "https://ann:s3@cret@host/a": "https://***@host/a",
        "https://s3@cret@host/a": "https://***@host/a",
        "https://ann:s3'cret@host/a": "https://***@host/a",
        "s3://AKIA:s3/cr?et@bucket/a": "s3://***@bucket/a",
        "cannot open 's3:/AKIA:s3/cret@bucket'": "cannot open 's3:/***@bucket'",
        "s3://bucket/runs@2026 of ann@host": "s3://bucket/runs@2026 of ann@host",
        "md:runs?motherduck_token=s3cret&a=b": "md:runs?motherduck_token=***&a=***",
        "cannot read 'https://host/a?sv=2026&sig=s3%2Fcret'": "cannot read 'https://host/a?sv=***&sig=***'",
        "az://runs?sas=sv=2026&X-Amz-Credential=s3cret": "az://runs?sas=***&X-Amz-Credential=***",
        "{'key': 's3cret', 'name': 'runs'}": "{'key': ***, 'name': 'runs'}",
        "password='s3''cr\\'et' sig=s3cret": "password=*** sig=***",
        "host=db password='s3cret word' dbname=runs": "host=db password=*** dbname=runs",
        "aws_secret_access_key = s3cret": "aws_secret_access_key = ***",
        "signed by t0ken-of-the-environment": "signed by ***",
    }
    assert {text: shown(text) for text in texts} == texts

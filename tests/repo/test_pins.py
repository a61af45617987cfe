"""Upper bounds of dependencies that exist because of Prefect; a test fails when its bound is no longer needed."""

import json
import tomllib
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIRST_REFUSED = {"fastapi": "0.151.0", "sqlalchemy": "2.1.0"}
"""The first release of a package that Prefect 3.8 does not work with."""


def requirement(package, lines: list[str]):
    [found] = [each for line in lines if (each := Requirement(line)).name.lower() == package and not each.marker]
    return found


@pytest.mark.parametrize(("package", "refused"), FIRST_REFUSED.items())
def test_a_bound_is_ours_only_as_long_as_prefect_has_none(package, refused):
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert not requirement(package, ours).specifier.contains(refused)
    assert requirement(package, requires("prefect") or []).specifier.contains(refused), (
        f"Prefect {version('prefect')} itself excludes {package} {refused}: remove our bound, and require this Prefect"
    )


async def test_prefect_s_client_sends_a_limit_of_null_which_newer_releases_of_fastapi_refuse():
    import httpx
    from prefect.client.orchestration import PrefectClient

    sent = []

    def answer(request):
        if request.method == "GET":  # of a CSRF token, which not every server has
            return httpx.Response(404)
        sent.append(json.loads(request.content))
        return httpx.Response(200, json=[])

    settings = {"transport": httpx.MockTransport(answer)}
    async with PrefectClient("http://127.0.0.1:9/api", httpx_settings=settings) as client:
        await client.read_flow_runs()
    assert sent[-1]["limit"] is None, "Prefect's client sends no null: remove the bound of fastapi"


def test_prefect_3_9_needs_no_bound_of_ours():
    """With Prefect 3.9.1 and SQLAlchemy 2.1.9, a server schedules runs; with 3.8.8, none, and each pass is an error."""
    assert Version(version("prefect")) < Version("3.9"), (
        "Require prefect>=3.9, which has the bound of fastapi itself, and remove our bounds of fastapi and sqlalchemy"
    )

"""A field of the configuration is declared once: everything else that shows it follows.

``python tests/repo/test_configuration.py`` writes the table of docs/reference/configuration.md.
"""

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import typer
from pydantic import Field
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from nightjar.cli.eval.flags import FLAGS, flag_names, takes_flags
from nightjar.clients.providers import PROVIDERS
from nightjar.engine.runs import RunDirectory
from nightjar.engine.runs.identity import check_same
from nightjar.errors import ConfigError, ResumeMismatchError
from nightjar.evaluation.config import RunConfig, parse_run_config, takes_fields
from nightjar.evaluation.config.parameters import GROUPS, parameters, plain_type

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
TEXT = "Moons that the model is told of."


class WithMoons(RunConfig):
    moons: int = Field(1, ge=1)
    """Moons that the model is told of."""


def table(kind: type[RunConfig]) -> str:
    lines = ["| field | flag | type | default | what it is | fixed |", "| --- | --- | --- | --- | --- | --- |"]
    compared = kind(env_id="any").identity()
    for name, field in parameters(kind).items():
        flags = ", ".join(f"`{flag}`" for flag in flag_names(name, field))
        cells = [f"`{name}`", flags, type_of(field), default_of(field), field.description or ""]
        lines.append(f"| {' | '.join(cells)} | {'yes' if name in compared else ''} |")
    return "\n".join(lines)


def type_of(field: FieldInfo) -> str:
    plain = plain_type(field)
    if get_origin(plain) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(plain))
    return str((get_origin(plain) or plain).__name__)


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    default = field.get_default(call_default_factory=True)
    return "" if default is None or default in ([], {}) else f"`{default}`"


def written() -> str:
    return PAGE.read_text().partition("<!-- fields -->\n")[2].partition("\n<!-- /fields -->")[0]


@takes_fields(WithMoons)
async def body(config: RunConfig, resume: str = "") -> RunConfig:
    """Evaluates.

    Args:
        config: What to run.
        resume: A run directory.
    """
    return config


@pytest.fixture
def command():
    app, given = typer.Typer(), {}

    @app.command()
    @takes_flags(WithMoons)
    def run(fields: dict[str, Any], *, verbose: bool = False) -> None:
        given.update(fields)

    def command(*arguments: str) -> dict[str, Any]:
        ended = CliRunner().invoke(app, ["arithmetic", *arguments], env={"COLUMNS": "100"})
        assert ended.exit_code == 0, ended.output
        return given | {"output": ended.output}

    return command


def test_a_new_field_is_a_flag_with_help(command):
    assert "moons" not in command()
    assert command("--moons", "3")["moons"] == 3
    shown = re.sub(r"\s+", " ", command("--help")["output"])
    assert f"--moons <int> {TEXT} [default: 1]" in shown


async def test_a_new_field_is_in_the_form_of_the_flow_and_reaches_it():
    from prefect import flow

    schema = flow(body).parameters.properties["moons"]
    assert {name: schema[name] for name in ("type", "default", "minimum", "description")} == {
        "type": "integer", "default": 1, "minimum": 1, "description": TEXT,
    }  # fmt: skip
    assert (await body(env_id="arithmetic", moons="2", resume="")).moons == 2


def test_a_new_field_is_checked_and_compared_by_a_resume(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    with directory:
        saved = WithMoons(env_id="arithmetic", moons=2)
        extra = {"selected_examples": 0, "dataset_fingerprint": "", "env_version": None}
        directory.write_config({**saved.model_dump(mode="json"), **extra})
    with pytest.raises(ResumeMismatchError) as caught:
        check_same(directory, WithMoons(env_id="arithmetic", moons=3).identity(), [], None)
    assert caught.value.differences["moons"] == (2, 3)
    with pytest.raises(ConfigError, match=r"^moons: Input should be greater than or equal to 1 \(found 0\)$"):
        parse_run_config({"env_id": "arithmetic", "moons": 0}, WithMoons)


def test_the_documentation_lists_the_fields_and_would_list_a_new_one():
    assert written() == table(RunConfig), "python tests/repo/test_configuration.py writes them"
    assert f"| `moons` | `--moons` | int | `1` | {TEXT} | yes |" in table(WithMoons).splitlines()


def test_every_flag_belongs_to_one_field():
    assert FLAGS.keys() <= RunConfig.model_fields.keys()
    flags = [flag for name, field in parameters().items() for flag in flag_names(name, field)]
    assert len(flags) == len(set(flags))


@pytest.fixture(scope="module")
def evaluate():
    from nightjar.flows.evaluation import evaluate

    return evaluate


def test_the_form_has_every_field_and_where_a_run_goes_with_what_is_used_most_first(evaluate):
    shown = evaluate.parameters.properties
    others = {"allow_sandbox_access", "endpoint", "secrets", "resume", "where", "output_dir", "warehouse"}
    assert {*shown} == {*RunConfig.model_fields, *others}
    assert evaluate.parameters.required == ["env_id"]
    assert [schema["position"] for schema in shown.values()] == [*range(len(shown))]
    first = ["env_id", "model", "provider", "endpoint", "num_examples", "rollouts_per_example"]
    assert [*shown][: len(first)] == first == [schema["title"] for schema in shown.values()][: len(first)]
    titles = [schema["title"].split(": ") for schema in shown.values()][len(first) :]
    assert [*dict(titles)] == [*GROUPS.values()][1:]
    assert ["Environment", "secrets"] in titles
    assert ["Results", "warehouse"] in titles


def test_the_form_describes_every_parameter_offers_choices_and_asks_for_json_only_for_free_keys(evaluate):
    shown = evaluate.parameters.properties
    assert shown["provider"]["enum"] == [*PROVIDERS]
    assert shown["provider"]["default"] == "prime"
    assert "anthropic_messages" in shown["api_client_type"]["enum"]
    assert all(schema["description"] for schema in shown.values())
    kinds = {schema.get("type") for schema in shown.values()}
    assert kinds == {"string", "integer", "number", "boolean", "array", "object"}
    asked = {name for name, schema in shown.items() if schema["type"] == "object"}
    assert asked == {"sampling_args", "headers", "headers_from_state", "env_args", "extra_env_kwargs"}
    for name in ("num_examples", "rollouts_per_example", "base_url", "api_key_var", "api_client_type"):
        assert "default" not in shown[name]  # it is that of the environment or the provider


def test_a_field_that_may_be_none_is_left_out_of_the_form_or_sent_as_null(evaluate):
    from prefect.utilities.callables import get_call_parameters
    from prefect.utilities.schema_tools.validation import validate

    schema = evaluate.parameters.model_dump_for_openapi()
    empty = [name for name, field in parameters().items() if field.default is None]
    empty.remove("api_client_type")  # a drop-down is left out
    for given in ({"env_id": "a"}, {"env_id": "a", **dict.fromkeys(empty)}):
        assert not validate(given, schema)
        accepted = evaluate.validate_parameters(get_call_parameters(evaluate.fn, (), given))
        assert {name: accepted[name] for name in empty} == dict.fromkeys(empty)


def test_a_configuration_goes_through_the_flow_unchanged(evaluate):
    config = RunConfig(env_id="a", shuffle_seed=3, tags=["x"], sampling_args={"stop": ["\n"]}, suite="s")
    accepted = evaluate.validate_parameters(config.model_dump(mode="json"))
    assert parse_run_config({name: accepted[name] for name in RunConfig.model_fields}) == config


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().replace(f"<!-- fields -->\n{written()}", f"<!-- fields -->\n{table(RunConfig)}"))

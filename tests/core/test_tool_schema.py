"""From functions to tools. The schemas are written by hand, by the rules for strict schemas that OpenAI documents.

Verifiers 0.1.14 gives the same for the same functions, except where a comment says that it refuses them.
"""

import functools
import warnings
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from nightjar.environments import convert_func_to_tool_def
from nightjar.environments.tools.schema import NotStrictError, strict_schema
from nightjar.errors import ConfigError


def closed(title, /, **fields):
    named = {name: {"title": name.title(), **schema} for name, schema in fields.items()}
    required = {"required": list(fields), "additionalProperties": False}
    return {"type": "object", "title": title, "properties": named, **required}


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """Where it is."""

    x: int = Field(description="to the right")
    y: int = 0


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Node(BaseModel):
    below: "list[Node]" = []


class Row(TypedDict):
    name: str


@dataclass
class Options:
    depth: int = 1


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


def properties(func):
    """Returns the properties of a function's strict schema; all are required, and no others allowed."""
    tool = convert_func_to_tool_def(func)
    assert tool.strict is None
    assert tool.parameters["required"] == list(tool.parameters["properties"])
    assert (tool.parameters["type"], tool.parameters["additionalProperties"]) == ("object", False)
    return tool.parameters["properties"]


def only(func):
    (schema,) = properties(func).values()
    return {key: value for key, value in schema.items() if key != "title"}


POINT = closed("Point", x={"type": "integer", "description": "to the right"}, y={"type": "integer", "default": 0})
SCHEMAS = [
    (int, {"type": "integer"}), (float, {"type": "number"}), (bool, {"type": "boolean"}), (Any, {}),
    (None, {"type": "null"}), (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (Literal["c", "f"], {"enum": ["c", "f"], "type": "string"}), (Literal["c"], {"const": "c", "type": "string"}),
    (list, {"items": {}, "type": "array"}), (list[int], {"items": {"type": "integer"}, "type": "array"}),
    (set[str], {"items": {"type": "string"}, "type": "array", "uniqueItems": True}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    ),
    (Point, {"$ref": "#/$defs/Point"}), (list[Color], {"items": {"$ref": "#/$defs/Color"}, "type": "array"}),
    (Cat | Dog, {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}),
    (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
]  # fmt: skip


def test_name_description_and_parameters_of_a_tool():
    def weather(city: str, days: int = 1):
        """Looks up the weather.

        It is often right.

        Args:
            city: Where,
                with its country.
            days: How far ahead.

        Returns:
            A text.
        """

    assert convert_func_to_tool_def(weather).model_dump() == {
        "name": "weather", "description": "Looks up the weather.\n\nIt is often right.", "strict": None,
        "parameters": closed(
            "weather_args",
            city={"type": "string", "description": "Where,\nwith its country."},
            days={"type": "integer", "description": "How far ahead.", "default": 1},
        ),
    }  # fmt: skip


def test_types_of_a_required_parameter_also_of_a_discriminated_union():
    def tool(x): ...

    found = []
    for hint, _ in SCHEMAS:
        tool.__annotations__["x"] = hint
        found.append((hint, only(tool)))
    assert found == SCHEMAS

    def tool(x: Annotated[Cat | Dog, Field(discriminator="kind")]): ...

    found = only(tool)
    assert ("oneOf" in found, found["anyOf"]) == (False, [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}])


@pytest.mark.parametrize(
    ("hint", "definition"),
    [
        (Point, POINT | {"description": "Where it is."}), (Row, closed("Row", name={"type": "string"})),
        (Options, closed("Options", depth={"type": "integer", "default": 1})),
        (Color, {"type": "string", "title": "Color", "enum": ["red", "blue"]}),
        (Node, closed("Node", below={"type": "array", "default": [], "items": {"$ref": "#/$defs/Node"}})),
    ],
)  # fmt: skip
def test_custom_types_are_defined_once(hint, definition):
    def tool(x, y): ...

    tool.__annotations__.update(x=hint, y=list[hint])
    assert convert_func_to_tool_def(tool).parameters["$defs"] == {hint.__name__: definition}


def test_a_described_model_is_written_out_and_a_recursive_one_once():
    def paint(x: Color, y: Color): ...

    def walk(x: Node): ...

    paint.__doc__ = walk.__doc__ = "Does it.\n\nArgs:\n    x: The first."
    color = {"description": "The first.", "type": "string", "title": "Color", "enum": ["red", "blue"]}
    assert properties(paint) == {"x": color, "y": {"$ref": "#/$defs/Color"}}
    found = only(walk)
    assert (found["description"], found["properties"]["below"]["items"]) == ("The first.", {"$ref": "#/$defs/Node"})


def test_defaults_are_in_the_schema_but_none_and_those_that_json_cannot_express():
    def tool(a: int = 3, b: str | None = None, c: str | None = "c", d: Any = object()): ...  # noqa: B008

    text_or_nothing = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert properties(tool) == {
        "a": {"type": "integer", "title": "A", "default": 3}, "b": {"title": "B", **text_or_nothing},
        "c": {"title": "C", "default": "c", **text_or_nothing}, "d": {"title": "D"},
    }  # fmt: skip

    def tool(x: int = Field(3, description="how many", ge=0), y: Annotated[int, Field(default=4)] = 5): ...

    assert properties(tool) == {
        "x": {"type": "integer", "title": "X", "description": "how many", "minimum": 0, "default": 3},
        "y": {"type": "integer", "title": "Y", "default": 5},
    }


def test_parameters_with_stars_are_arrays_or_objects_and_may_have_any_name():
    def tool(first, *rest: str, last: bool = False):
        """Joins.

        Args:
            *rest: What to join.
        """

    assert properties(tool) == {
        "first": {"title": "First"},
        "rest": {"type": "array", "title": "Rest", "items": {"type": "string"}, "description": "What to join."},
        "last": {"type": "boolean", "title": "Last", "default": False},
    }

    def tool(x: int, **named: int): ...

    made = convert_func_to_tool_def(tool)
    named = {"type": "object", "title": "Named", "additionalProperties": {"type": "integer"}}
    assert (made.strict, made.parameters["properties"]["named"]) == (False, named)
    """The original refuses the first two, and warns of the next three."""
    names = ["_x", "model_config", "json", "schema", "copy", "self_", "field_0"]
    exec(f"def tool(a: int, {': int, '.join(names)}: int): ...", scope := {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [*properties(scope["tool"])] == ["a", *names]


def test_methods_callables_partials_and_decorated_functions_are_tools():
    class Shop:
        """Sells."""

        def buy(self, item: str):
            """Buys."""

        @classmethod
        def open(cls, hour: int): ...

        @staticmethod
        async def close(hour: int): ...

        def __call__(self, query: str): ...

    tools = [convert_func_to_tool_def(tool) for tool in (Shop().buy, Shop.open, Shop.close, Shop())]
    assert [(tool.name, tool.description, [*tool.parameters["properties"]]) for tool in tools] == [
        ("buy", "Buys.", ["item"]), ("open", "", ["hour"]), ("close", "", ["hour"]), ("Shop", "Sells.", ["query"]),
    ]  # fmt: skip
    """The original refuses partials."""

    def tool(x: int, y: int, z: int = 3):
        """Does it."""

    @functools.cache
    @functools.wraps(tool)
    def wrapper(*args, **kwargs): ...

    assert convert_func_to_tool_def(wrapper) == convert_func_to_tool_def(tool)
    part = convert_func_to_tool_def(functools.partial(tool, 1, z=4))
    assert (part.name, part.description) == ("tool", "Does it.")
    assert only(functools.partial(tool, 1, z=4)) == {"type": "integer"}


STYLES = {
    "google": "Args:\n    x (int): How often,\n        at most.\n\nRaises:\n    ValueError: sometimes.\n",
    "numpy": "Parameters\n----------\nx : int, optional\n    How often,\n    at most.\n\nReturns\n-------\nint\n",
    "sphinx": ":param x: How often,\n    at most.\n:type x: int\n:return: Nothing.\n",
}


def test_docstrings_of_every_style_say_the_same_and_annotations_the_rest():
    def tool(x: int): ...

    for style, gap in (("google", "\n\n"), ("google", "\n"), ("numpy", "\n\n"), ("sphinx", "\n\n")):
        tool.__doc__ = f"Does it.\n\nIn two paragraphs.{gap}{STYLES[style]}"
        assert convert_func_to_tool_def(tool).description == "Does it.\n\nIn two paragraphs.", style
        assert only(tool)["description"].split() == ["How", "often,", "at", "most."], style

    def tool(a: Annotated[int, "one"], b: Annotated[int, Field(description="two")], c: Annotated[int, "three"]): ...

    tool.__doc__ = "Counts.\n\nArgs:\n    c: drei"
    assert [schema["description"] for schema in properties(tool).values()] == ["one", "two", "drei"]

    def tool(): ...

    assert (convert_func_to_tool_def(tool).description, properties(tool)) == ("", {})


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (dict, {"type": "object", "additionalProperties": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[dict[str, Any]], {"type": "array", "items": {"type": "object", "additionalProperties": True}}),
        (Open, {"$ref": "#/$defs/Open"}),
        (Annotated[Point, Field(json_schema_extra={"minProperties": 1})], {"minProperties": 1}),
    ],
)
def test_free_keys_make_a_tool_that_is_not_strict(hint, schema):
    """The original refuses these, so that no environment can be made."""

    def tool(x, y: int = 1, z: str | None = None): ...

    tool.__annotations__["x"] = hint
    made = convert_func_to_tool_def(tool)
    assert (made.strict, made.parameters["required"]) == (False, ["x"])
    assert "additionalProperties" not in made.parameters
    assert schema.items() <= made.parameters["properties"]["x"].items()
    assert made.parameters["properties"]["z"]["default"] is None


def test_a_type_that_cannot_be_resolved_is_refused_and_a_schema_that_is_made_strict_not_changed_itself():
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"default": None}}}}}
    strict = strict_schema(schema)
    assert schema["properties"]["a"] == {"type": "object", "properties": {"b": {"default": None}}}
    assert strict["properties"]["a"] == {
        "type": "object", "properties": {"b": {}}, "required": ["b"], "additionalProperties": False,
    }  # fmt: skip
    with pytest.raises(NotStrictError, match="takes any keys"):
        strict_schema({"type": "object", "additionalProperties": {}})

    def tool(session: pytest.Config): ...

    with pytest.raises(ConfigError, match=r"Tool 'tool' .*session.* cannot be offered to a model: .*Config"):
        convert_func_to_tool_def(tool)
    tool.__annotations__["session"] = "Missing"
    with pytest.raises(ConfigError, match="'Missing' is not defined"):
        convert_func_to_tool_def(tool)

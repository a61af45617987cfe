"""The reference of HTTP: the routes of the model server, of served benchmarks and of the web view."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from markdown_text import code, docstring, table
from starlette.routing import BaseRoute

from nightjar.compat.nemo.serving.app import generate_app
from nightjar.model_server import Faults, FixedAnswer
from nightjar.model_server.model_server import Routes
from nightjar.model_server.protocols import ModelProtocol
from nightjar.view.server import _PAGES as PAGES


def page() -> str:
    return "\n\n".join(
        [
            "# HTTP",
            "After this page, you can send requests to the servers of Nightjar from your own programs.",
            "## The model server",
            "[`nightjar model-server`](commands/model-server.md) answers these requests.",
            table(("method", "path", "answer"), _model_server()),
            "## A served benchmark",
            "[`nightjar serve`](commands/serve.md) answers these requests.",
            *_described(generate_app(SimpleNamespace(name="benchmark")).routes),
            "## The web view",
            "[`nightjar view`](commands/view.md) answers these requests with pages. Their addresses can be shared.",
            *_described(route for module in PAGES for route in module.router.routes),
        ]
    )


def _model_server() -> Iterator[tuple[str, str, str]]:
    routes = Routes(FixedAnswer(""), Faults(), None, None, None, deque())
    for route in routes.application().router.routes():
        path = route.resource.canonical if route.resource else ""
        if route.method not in {"HEAD", "*"}:
            yield route.method, code(path), docstring(_purpose(route.handler))


def _purpose(handler: Callable[..., Any]) -> str:
    """Returns the first sentence about a handler; a protocol is described by its module."""
    if isinstance(handler, partial) and isinstance(handler.args[0], ModelProtocol):
        handler = sys.modules[handler.args[0].answer_body.__module__]  # type: ignore[assignment]
    return _first_sentence(inspect.getdoc(handler) or handler.__name__.replace("_", " ").capitalize())


def _first_sentence(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _described(found: Iterable[BaseRoute]) -> Iterator[str]:
    routes = [route for route in found if isinstance(route, APIRoute)]
    document = get_openapi(title="Nightjar", version="", routes=routes)
    rows = [
        (", ".join(sorted(route.methods)), code(route.path), docstring(_purpose(route.endpoint))) for route in routes
    ]
    yield table(("method", "path", "answer"), rows)
    for route in routes:
        parameters = document["paths"][route.path_format][min(route.methods).lower()].get("parameters", [])
        if asked := [each for each in parameters if each["in"] == "query"]:
            yield f"**Parameters of `{route.path}`**"
            yield table(("name", "type", "default"), [_parameter(each, document) for each in asked])


def _parameter(parameter: dict[str, Any], document: dict[str, Any]) -> tuple[str, str, str]:
    schema = parameter["schema"]
    kinds = [_kind(each, document) for each in schema.get("anyOf", [schema])]
    default = schema.get("default")
    shown = "" if default is None or default in ([], "") else code(str(default))
    return code(parameter["name"]), " or ".join(kind for kind in kinds if kind != "null"), shown


def _kind(schema: dict[str, Any], document: dict[str, Any]) -> str:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if choices := schema.get("enum"):
        return "one of " + ", ".join(code(str(choice)) for choice in choices)
    return f"list of {_kind(schema['items'], document)}" if schema["type"] == "array" else str(schema["type"])

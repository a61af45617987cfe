"""The queries that Nightjar ships, each a file in ``queries`` that is run by its name.

A file opens with comments: what it answers in a sentence, then more about it if need be, then its parameters, one a
line, as ``$name [type] [= default]: what it is``. The type is ``text`` (also where none stands), ``integer`` or
``number``; a parameter without a default is required; the default ``NULL`` stands for no value::

    -- The examples of an environment that models fail most.
    --
    -- $env: environment
    -- $model = NULL: only this model
    -- $limit integer = 20: rows
    SELECT ...

Values are bound to the statement, never written into it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from nightjar.errors import WarehouseError

_WORD = re.compile(r"\s*([A-Za-z][\w-]*)\s*;?\s*")
_PARAMETER = re.compile(
    r"\$(?P<name>[a-z_]+)(?: (?P<type>text|integer|number))?(?: = (?P<default>[^:]+))?: (?P<about>.+)"
)
_READERS: dict[str, Callable[[str], object]] = {"text": str, "integer": int, "number": float}


@dataclass(frozen=True)
class QueryParameter:
    """What a named query can be told.

    Attributes:
        name: without the ``$``.
        type: ``text``, ``integer`` or ``number``.
        default: as it is written; None where a value is required, ``NULL`` where it may be left out.
        about: what it is.
    """

    name: str
    type: str
    default: str | None
    about: str

    @property
    def usage(self) -> str:
        """Returns how it is given: ``env``, or in brackets what may be left out: ``[model]``, ``[limit=20]``."""
        if self.default is None:
            return self.name
        return f"[{self.name}]" if self.default == "NULL" else f"[{self.name}={self.default}]"

    def read(self, given: object) -> object:
        """Returns a value as the statement gets it; ``NULL`` and None are None.

        Raises:
            WarehouseError: the text is not of the parameter's type.
        """
        text = "NULL" if given is None else str(given)
        if text == "NULL":
            return None
        try:
            return _READERS[self.type](text)
        except ValueError:
            raise WarehouseError(f"Parameter {self.name!r} takes {_ARTICLES[self.type]}, found {text!r}.") from None


_ARTICLES = {"integer": "an integer", "number": "a number"}


@dataclass(frozen=True)
class NamedQuery:
    """A query that has a name, as its file describes it.

    Attributes:
        name: the name of the file.
        about: what it answers, in a sentence.
        parameters: what it can be told.
        text: the whole file.
    """

    name: str
    about: str
    parameters: tuple[QueryParameter, ...]
    text: str

    @property
    def usage(self) -> str:
        """Returns its parameters: ``env [model] [limit=20]``."""
        return " ".join(parameter.usage for parameter in self.parameters)

    def bind(self, given: Mapping[str, object]) -> dict[str, object]:
        """Returns a value for every parameter: what is given, else its default.

        Raises:
            WarehouseError: a parameter is missing, unknown, or of another type.
        """
        known = [parameter.name for parameter in self.parameters]
        if unknown := [name for name in given if name not in known]:
            raise WarehouseError(f"Query {self.name!r} has no parameter {unknown[0]!r}. {self._takes()}")
        required = [parameter.name for parameter in self.parameters if parameter.default is None]
        if missing := [name for name in required if name not in given]:
            raise WarehouseError(f"Query {self.name!r} needs a value for {missing[0]!r}. {self._takes()}")
        return {
            parameter.name: parameter.read(given.get(parameter.name, parameter.default))
            for parameter in self.parameters
        }

    def _takes(self) -> str:
        return f"It takes: {self.usage or 'no parameters'}"


@dataclass(frozen=True)
class Question:
    """A statement with the values of its parameters.

    Attributes:
        sql: the statement.
        parameters: values for ``$name``; None for a statement that takes none.
        name: of the query; None for a statement that somebody wrote.
    """

    sql: str
    parameters: dict[str, Any] | None = None
    name: str | None = None


def question(text: str, given: Mapping[str, object] | None = None) -> Question:
    """Returns what to ask the warehouse: a named query where the text is a single word, else the text itself.

    Args:
        text: the name of a query, or SQL.
        given: values for its parameters.

    Raises:
        WarehouseError: no query has this name, or its parameters do not fit.

    Example:
        >>> question("hardest", {"env": "gsm8k", "limit": "5"}).parameters
        {'env': 'gsm8k', 'model': None, 'limit': 5}
        >>> question("FROM runs").parameters is None
        True
    """
    word = _WORD.fullmatch(text)
    if word is None:
        return Question(text, dict(given) if given else None)
    query = find_query(word[1])
    return Question(query.text, query.bind(given or {}), query.name)


def is_name(text: str) -> bool:
    """Says whether a text is a single word, as the name of a query is and SQL is not.

    Example:
        >>> is_name("hardest"), is_name("FROM runs")
        (True, False)
    """
    return _WORD.fullmatch(text) is not None


def find_query(name: str) -> NamedQuery:
    """Returns the query of this name.

    Raises:
        WarehouseError: there is none.

    Example:
        >>> find_query("hardest").usage
        'env [model] [limit=20]'
    """
    queries = named_queries()
    if name in queries:
        return queries[name]
    if close := difflib.get_close_matches(name, queries, cutoff=0.5):
        raise WarehouseError(f"Unknown query {name!r}. Did you mean {' or '.join(map(repr, close))}?")
    raise WarehouseError(
        f'Unknown query {name!r}. Choose one of: {", ".join(queries)}. A table is read with "FROM {name}".'
    )


@cache
def named_queries() -> dict[str, NamedQuery]:
    """Returns every query by its name, in alphabetical order."""
    folder = resources.files("nightjar.warehouse") / "queries"
    files = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    queries = (parse_query(name.removesuffix(".sql"), files[name].read_text("utf-8")) for name in sorted(files))
    return {query.name: query for query in queries}


def parse_query(name: str, text: str) -> NamedQuery:
    r"""Reads what a file says about its query.

    Example:
        >>> parse_query("runs_of", "-- The runs of a model.\n--\n-- $model: its name\nFROM runs").usage
        'model'
    """
    comments = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        comments.append(line.removeprefix("--").strip())
    declared = (_PARAMETER.fullmatch(comment) for comment in comments if comment.startswith("$"))
    parameters = tuple(
        QueryParameter(match["name"], match["type"] or "text", match["default"], match["about"])
        for match in declared
        if match is not None
    )
    return NamedQuery(name, comments[0], parameters, text)

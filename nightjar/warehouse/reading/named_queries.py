"""The queries that Nightjar ships, each a file in ``queries`` that is run by its name.

A file opens with comments: what it answers in a sentence, then more about it if need be, then its parameters, one a
line, as ``$name [type] [= default]: what it is``. The type is ``text`` (also where none stands), ``integer`` (0 or
more), ``number``, or the name of something that the warehouse has: ``environment``, ``model`` or ``run``. A parameter
without a default is required; the default ``NULL`` stands for no value::

    -- The examples of an environment that models fail most.
    --
    -- $env environment: environment
    -- $model model = NULL: only this model
    -- $limit integer = 20: rows
    SELECT ...

The line ``Shown in full.`` among them is for texts that are there to be read: a terminal does not cut them.
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
    r"\$(?P<name>[a-z_]+)(?: (?P<type>text|integer|number|environment|model|run))?"
    r"(?: = (?P<default>[^:]+))?: (?P<about>.+)"
)
_SHOWN_IN_FULL = "Shown in full."


def _read_count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


_READERS: dict[str, Callable[[str], object]] = {"integer": _read_count, "number": float}
_EXPECTED = {"integer": "a whole number, 0 or more", "number": "a number"}


@dataclass(frozen=True)
class QueryParameter:
    """What a named query can be told.

    Attributes:
        name: without the ``$``.
        type: ``text``, ``integer``, ``number``, ``environment``, ``model`` or ``run``.
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
        """Returns a value as the statement gets it; ``NULL`` is None where it may be left out.

        Raises:
            WarehouseError: the text is not of the parameter's type.
        """
        if given is None or (self.default == "NULL" and given == "NULL"):
            return None
        try:
            return _READERS.get(self.type, str)(str(given))
        except ValueError:
            raise WarehouseError(
                f"Parameter {self.name!r} takes {_EXPECTED[self.type]}, found {str(given)!r}."
            ) from None


@dataclass(frozen=True)
class NamedQuery:
    """A query that has a name, as its file describes it.

    Attributes:
        name: the name of the file.
        about: what it answers, in a sentence.
        parameters: what it can be told.
        text: the whole file.
        is_full: its texts are there to be read, and are not cut on a terminal.
    """

    name: str
    about: str
    parameters: tuple[QueryParameter, ...]
    text: str
    is_full: bool = False

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
        if missing := [name for name in required if given.get(name) in {None, ""}]:
            names = " and ".join(map(repr, missing))
            raise WarehouseError(f"Query {self.name!r} needs a value for {names}. {self._takes()}")
        return {
            parameter.name: parameter.read(given.get(parameter.name, parameter.default))
            for parameter in self.parameters
        }

    def _takes(self) -> str:
        taken = ", ".join(f"{parameter.usage} ({parameter.about})" for parameter in self.parameters)
        return f"It takes: {taken or 'no parameters'}"


@dataclass(frozen=True)
class Question:
    """A statement with the values of its parameters.

    Attributes:
        sql: the statement.
        parameters: values for ``$name``; None for a statement that takes none.
        query: the query that was named; None for a statement that somebody wrote.
    """

    sql: str
    parameters: dict[str, Any] | None = None
    query: NamedQuery | None = None


def question(text: str, given: Mapping[str, object] | None = None) -> Question:
    """Returns what to ask the warehouse: a named query where the text is a single word, else the text itself.

    Args:
        text: the name of a query, or SQL.
        given: values for its parameters.

    Raises:
        WarehouseError: no query has this name, or the parameters do not fit.

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
    return Question(query.text, query.bind(given or {}), query)


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
    """
    queries = named_queries()
    if name in queries:
        return queries[name]
    close = difflib.get_close_matches(name.lower(), queries, n=2, cutoff=0.6)
    choices = f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Choose one of: {', '.join(queries)}."
    raise WarehouseError(f'Unknown query {name!r}. {choices} A table is read with "FROM {name}".')


@cache
def named_queries() -> dict[str, NamedQuery]:
    """Returns every query by its name, in alphabetical order."""
    folder = resources.files("nightjar.warehouse") / "queries"
    files = {file.name: file for file in folder.iterdir() if file.name.endswith(".sql")}
    queries = (parse_query(name.removesuffix(".sql"), files[name].read_text("utf-8")) for name in sorted(files))
    return {query.name: query for query in queries}


def parse_query(name: str, text: str) -> NamedQuery:
    """Reads what a file says about its query."""
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
    return NamedQuery(name, comments[0], parameters, text, is_full=_SHOWN_IN_FULL in comments)

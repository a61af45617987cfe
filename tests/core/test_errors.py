"""Errors: one tree, messages with names and remedies, and causes in a chain."""

import pickle

import pytest

from nightjar import errors
from nightjar.errors import (
    EmptyModelResponseError,
    EnvironmentImportError,
    EnvironmentLoadError,
    EnvironmentNotFoundError,
    EnvironmentVersionError,
    Error,
    InvalidModelResponseError,
    MissingKeyError,
    ModelError,
    NightjarError,
    ResumeMismatchError,
    error_chain,
    error_text,
)

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_a_nightjar_error_and_drawn_in_the_tree(kind):
    assert issubclass(kind, NightjarError)
    assert f" {kind.__name__} " in (errors.__doc__ or "").replace("\n", " ")


def test_environments_catch_the_errors_of_verifiers():
    assert EmptyModelResponseError.__mro__[1:4] == (InvalidModelResponseError, ModelError, Error)
    assert issubclass(MissingKeyError, ValueError)


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (MissingKeyError(["PRIME_API_KEY"]), ["'PRIME_API_KEY'", 'export PRIME_API_KEY="..."']),
        (MissingKeyError(["A", "B"]), ["'A', 'B'", 'export A="..." B="..."']),
        (EnvironmentNotFoundError("gms8k", ["arithmetic", "gsm8k"]), ["'gms8k'", "arithmetic, gsm8k"]),
        (
            EnvironmentVersionError("chess@2.0", "version 1.0 in ./environments"),
            ["'chess@2.0'", "version 1.0 in ./environments", "nightjar env install chess@2.0"],
        ),
        (
            EnvironmentImportError("chess", "No module named 'board'", "Install it: pip install board"),
            ["'chess'", "No module named 'board'. Install it: pip install board"],
        ),
        (EnvironmentImportError("chess", "No module named 'board'", ""), ["'chess'", "No module named 'board'"]),
        (EnvironmentLoadError("chess", "cannot be loaded"), ["'chess' cannot be loaded"]),
        (
            ResumeMismatchError("outputs/x", {"model": ("a", "b"), "num_examples": (10, 5)}),
            ["outputs/x", "model: saved 'a', asked for 'b'; num_examples: saved 10, asked for 5"],
        ),
        (ModelError("m"), ["m"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_message_has_the_names_and_survives_pickling(error, facts):
    assert [fact for fact in facts if fact not in str(error)] == []
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such move"), "no such move"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 10_000), "x" * 10_000),
        (ValueError("x" * 10_001), f"{'x' * 10_000}… (10001 characters)"),
    ],
    ids=["message", "class", "longest", "cut"],
)
def test_the_text_of_an_error_is_its_message_or_its_class(error, text):
    assert error_text(error) == text


class TestChain:
    def test_it_follows_causes_and_then_contexts(self):
        outer, middle, inner = ModelError("m"), ValueError("v"), KeyError("k")
        outer.__cause__, middle.__context__ = middle, inner
        assert list(error_chain(outer)) == [outer, middle, inner]

    def test_it_stops_at_from_none(self):
        outer = Error("e")
        outer.__context__, outer.__suppress_context__ = KeyError("k"), True
        assert list(error_chain(outer)) == [outer]

    def test_it_ends_where_it_closes_a_circle(self):
        one, two = ValueError("1"), ValueError("2")
        one.__cause__, two.__cause__ = two, one
        assert list(error_chain(one)) == [one, two]

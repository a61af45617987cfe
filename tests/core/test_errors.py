"""Errors: one tree, messages that say how to go on, and causes in a chain."""

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
    MissingKeyError,
    ModelError,
    NightjarError,
    ResumeMismatchError,
    error_chain,
    error_text,
)

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_a_nightjar_error(kind):
    assert issubclass(kind, NightjarError)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_drawn_in_the_tree(kind):
    assert f" {kind.__name__} " in (errors.__doc__ or "").replace("\n", " ")


def test_an_empty_answer_is_an_invalid_answer_is_a_model_error():
    assert [kind.__name__ for kind in EmptyModelResponseError.__mro__[:4]] == [
        "EmptyModelResponseError",
        "InvalidModelResponseError",
        "ModelError",
        "Error",
    ]


def test_a_missing_key_says_what_to_export():
    assert str(MissingKeyError(["PRIME_API_KEY"])) == (
        "Environment variable 'PRIME_API_KEY' not set. Set it with: export PRIME_API_KEY=\"...\""
    )


def test_several_missing_keys_are_all_named():
    assert str(MissingKeyError(["A", "B"])) == (
        "Environment variables 'A', 'B' not set. Set it with: export A=\"...\" B=\"...\""
    )


def test_a_missing_key_is_a_value_error_as_in_verifiers():
    assert issubclass(MissingKeyError, ValueError)


def test_an_unknown_environment_lists_what_is_there():
    message = str(EnvironmentNotFoundError("gms8k", ["arithmetic", "gsm8k"]))
    assert message.startswith("Environment 'gms8k' is not installed. Installed here: arithmetic, gsm8k.")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            EnvironmentVersionError("chess@2.0", "version 1.0 in ./environments"),
            (
                "Environment 'chess@2.0' was asked for, found version 1.0 in ./environments. "
                "Try: nightjar env install chess@2.0"
            ),
        ),
        (
            EnvironmentImportError("chess", "No module named 'board'", "Install it: pip install board"),
            "Environment 'chess' cannot be imported: No module named 'board'. Install it: pip install board",
        ),
        (
            EnvironmentImportError("chess", "No module named 'board'", ""),
            "Environment 'chess' cannot be imported: No module named 'board'",
        ),
        (EnvironmentLoadError("chess", "cannot be loaded"), "Environment 'chess' cannot be loaded"),
    ],
)
def test_an_environment_that_does_not_load_says_why(error, message):
    assert str(error) == message


def test_a_resume_mismatch_lists_every_field_with_both_values():
    error = ResumeMismatchError("outputs/x", {"model": ("a", "b"), "num_examples": (10, 5)})
    assert "model: saved 'a', asked for 'b'; num_examples: saved 10, asked for 5" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        MissingKeyError(["K"]),
        EnvironmentNotFoundError("e", ["a"]),
        EnvironmentVersionError("e@2", "version '1'"),
        EnvironmentImportError("e", "No module named 'm'", "pip install m"),
        EnvironmentLoadError("e", "cannot be loaded"),
        ResumeMismatchError("p", {"model": ("a", "b")}),
        ModelError("m"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such move"), "no such move"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 10_000), "x" * 10_000),
    ],
)
def test_the_text_of_an_error_is_what_it_says_or_its_class(error, text):
    assert error_text(error) == text


def test_the_text_of_a_long_error_is_cut():
    assert error_text(ValueError("x" * 10_001)) == f"{'x' * 10_000}… (10001 characters)"


class TestChain:
    def test_follows_causes(self):
        outer, middle, inner = ModelError("m"), ValueError("v"), KeyError("k")
        outer.__cause__, middle.__cause__ = middle, inner
        assert list(error_chain(outer)) == [outer, middle, inner]

    def test_follows_the_context_where_no_cause_is_given(self):
        outer, inner = ValueError("v"), KeyError("k")
        outer.__context__ = inner
        assert list(error_chain(outer)) == [outer, inner]

    def test_stops_at_from_none(self):
        outer = Error("e")
        outer.__context__, outer.__suppress_context__ = KeyError("k"), True
        assert list(error_chain(outer)) == [outer]

    def test_ends_where_it_closes_a_circle(self):
        one, two = ValueError("1"), ValueError("2")
        one.__cause__, two.__cause__ = two, one
        assert list(error_chain(one)) == [one, two]

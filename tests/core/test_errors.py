"""Errors: one tree, messages with names and remedies, and causes in a chain."""

import pickle
import re

from nightjar import errors
from nightjar.core.secrecy import error_text


def test_errors_are_one_tree_which_has_those_of_verifiers():
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert [name for name in classes if not issubclass(vars(errors)[name], errors.NightjarError)] == []
    assert classes - set(re.findall(r"\w+", errors.__doc__)) == set()
    kinds = (errors.InvalidModelResponseError, errors.ModelError, errors.Error)
    assert errors.EmptyModelResponseError.__mro__[1:4] == kinds
    for kind in ("MissingKey", "EnvironmentNotFound", "EnvironmentVersion", "EnvironmentImport"):
        assert issubclass(getattr(errors, f"{kind}Error"), ValueError)


def test_a_message_has_the_names_and_survives_pickling():
    for error, facts in (
        (errors.MissingKeyError(["PRIME_API_KEY"]), ["'PRIME_API_KEY'", 'export PRIME_API_KEY="..."']),
        (errors.MissingKeyError(["A", "B"]), ["'A', 'B'", 'export A="..." B="..."']),
        (errors.EnvironmentNotFoundError(["gms8k"], ["arithmetic", "gsm8k"]), ["'gms8k'", "arithmetic, gsm8k"]),
        (
            errors.EnvironmentVersionError("chess@2.0", "version 1.0 in ./environments"),
            ["'chess@2.0'", "version 1.0 in ./environments", "nightjar env install chess@2.0"],
        ),
        (
            errors.EnvironmentImportError("chess", "No module named 'board'", "Install it: pip install board"),
            ["'chess'", "No module named 'board'. Install it: pip install board"],
        ),
        (errors.EnvironmentImportError("chess", "No module named 'board'", ""), ["'chess'", "No module named 'board'"]),
        (errors.EnvironmentLoadError("chess", "cannot be loaded"), ["'chess' cannot be loaded"]),
        (
            errors.ResumeMismatchError("outputs/x", {"model": ("a", "b"), "num_examples": (10, 5)}),
            ["outputs/x", "model: saved 'a', asked for 'b'; num_examples: saved 10, asked for 5"],
        ),
        (errors.ModelError("m"), ["m"]),
    ):
        assert [fact for fact in facts if fact not in str(error)] == []
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_the_text_of_an_error_is_its_message_and_its_chain_follows_causes_and_contexts():
    messages = ["no such move", "x" * 10_000, "x" * 10_001]
    assert [error_text(ValueError(message)) for message in messages] == [
        "no such move", "x" * 10_000, f"{'x' * 10_000}… (10001 characters)",
    ]  # fmt: skip
    assert error_text(ValueError()) == "ValueError"
    outer, middle, inner = errors.ModelError("m"), ValueError("v"), KeyError("k")
    outer.__cause__, middle.__context__ = middle, inner
    assert list(errors.error_chain(outer)) == [outer, middle, inner]
    middle.__suppress_context__ = True
    assert list(errors.error_chain(outer)) == [outer, middle]
    middle.__cause__ = outer
    assert list(errors.error_chain(outer)) == [outer, middle]

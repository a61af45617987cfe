"""ErrorChain: an error and its causes as one value."""

from collections import Counter

import pytest

from nightjar.compat.verifiers.error_chains import ErrorChain, error_info, get_error_chain, get_vf_error_chain
from nightjar.errors import InfraError, SandboxError, ToolCallError


def caused(error, cause):
    error.__cause__ = cause
    return error


FAILED_TOOL = caused(ToolCallError("add"), caused(SandboxError("gone"), OSError("no space")))


def test_the_error_and_its_causes():
    assert [type(error) for error in ErrorChain(FAILED_TOOL).chain] == [ToolCallError, SandboxError, OSError]
    assert get_error_chain(None) == []


def test_up_to_the_first_that_is_of_another_kind():
    assert get_error_chain(FAILED_TOOL, SandboxError) == []
    assert get_vf_error_chain(FAILED_TOOL) == [FAILED_TOOL, FAILED_TOOL.__cause__]
    assert len(ErrorChain(FAILED_TOOL, get_vf_error_chain).chain) == 2


def test_text_and_representation():
    chain = ErrorChain(FAILED_TOOL)
    assert str(chain) == "ToolCallError -> SandboxError -> OSError"
    assert repr(chain) == "ToolCallError('add') -> SandboxError('gone') -> OSError('no space')"


@pytest.mark.parametrize(("kind", "is_there"), [(OSError, True), (InfraError, True), (KeyError, False)])
def test_which_kinds_are_in_it(kind, is_there):
    assert (kind in ErrorChain(FAILED_TOOL)) is is_there


def test_equal_are_those_of_the_same_classes():
    errors = [ValueError("a"), ValueError("b"), caused(ValueError("c"), KeyError("d")), TypeError("e")]
    counts = Counter(map(ErrorChain, errors))
    assert sorted(counts.values()) == [1, 1, 2]
    assert ErrorChain(errors[0]) != "ValueError"


def test_as_data():
    assert error_info(caused(ValueError("a"), KeyError("b"))) == {
        "error": "ValueError",
        "error_chain_repr": "ValueError('a') -> KeyError('b')",
        "error_chain_str": "ValueError -> KeyError",
    }

"""Environments written for verifiers give the same with Nightjar as they gave with verifiers 0.1.14.

What verifiers gave is in ``recorded/``, so that verifiers need not be installed; ``make side-by-side`` runs both.
"""

import json

import pytest
from answers import ScriptedModel
from cases import CASES
from comparing import compare, read_outcome
from differences import DIFFERENCES, unexpected
from side_by_side import HERE, RECORDED

pytestmark = pytest.mark.long

NAMES = [case.name for case in CASES]


def test_environments_give_what_they_gave_with_verifiers_but_for_the_listed_differences(nightjar_outcomes):
    read = {name: (read_outcome(RECORDED, name), read_outcome(nightjar_outcomes, name)) for name in NAMES}
    found = {name: [str(one) for one in unexpected(name, *outcomes)] for name, outcomes in read.items()}
    assert {name: differences for name, differences in found.items() if differences} == {}
    found = [(name, difference) for name, outcomes in read.items() for difference in compare(*outcomes)]
    assert [line for line in DIFFERENCES if not any(line.covers(name, one) for name, one in found)] == [], "needless"


def test_every_environment_is_evaluated_and_every_recording_used_and_says_how_it_was_made():
    modules = {path.stem for path in (HERE / "environments").glob("*.py")}
    assert {case.environment for case in CASES} == modules
    assert sorted(NAMES) == sorted(path.stem for path in RECORDED.glob("*.json"))
    for path in RECORDED.glob("*.json"):
        made_with = json.loads(path.read_text())["made_with"]
        assert made_with.items() > {"verifiers": "0.1.14", "command": "make side-by-side RECORD=1"}.items()


def test_the_scripted_model_does_what_the_question_says():
    for script, turn, text, calls in [
        ("Say: one\\ntwo\nSay: three", 0, "one\ntwo", []), ("Say: one\\ntwo\nSay: three", 1, "three", []),
        ("Say: one", 1, "That is all.", []), ("Count: 3", 0, "1 2 3", []),
        ('Say: So. | Call: add {"a": 1} | add {', 0, "So.", [("add", '{"a": 1}'), ("add", "{")]),
        ("What is 2 x 3?", 0, "2 * 3 = 6\nThe answer is \\boxed{6}.", []),
    ]:  # fmt: skip
        said = [{"role": "assistant", "content": "said"}] * turn
        answer = ScriptedModel().answer([{"role": "user", "content": script}, *said])
        assert (answer.text, [(call.name, call.arguments) for call in answer.tool_calls]) == (text, calls)


def test_a_difference_names_its_place_and_both_values():
    [found] = compare({"rows": {"0": {"reward": 1.0}}}, {"rows": {"0": {"reward": None}}})
    assert str(found) == "rows.0.reward: original 1.0, Nightjar None"

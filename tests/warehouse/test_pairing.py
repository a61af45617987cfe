"""Which examples of two runs are pairs: by content, by question and answer, and by position."""

import pytest

from nightjar import analysis
from nightjar.errors import ConfigError
from nightjar.warehouse import Warehouse

SYSTEM = {"role": "system", "content": "Reason briefly."}
TEMPLATE = "Solve the problem.\n\nProblem: {}\nAnswer:"
OTHER_PROGRAM = {"version_info": {"sdk_version": "0.3.0"}, "original": {"program": "nemo-evaluator"}}
QUESTIONS = ["Ann has 2 pens and buys 3. How many?", "Bob eats half  of 8 figs.\nHow many?", "What is 900 + 334?"]
ANSWERS = ["5", "4", "1,234"]


def asked(*content, before=()):
    return [*before, {"role": "user", "content": content[0] if len(content) == 1 else list(content)}]


@pytest.fixture
def run(tmp_path, run_writer):
    """Writes a run from prompts, answers and rewards. The content of examples is that of their prompt and answer."""

    def write(name, prompts, answers, rewards=None, *, mark="", **metadata):
        rows = [
            run_writer.rollout(
                number, 0, 1.0 if rewards is None else rewards[number],
                prompt=prompt, answer=answer, example_hash=f"{mark}{number}-{prompt}-{answer}",
                info={"source": mark}, completion=[{"role": "assistant", "content": f"{name} says {number}"}],
            )
            for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        ]  # fmt: skip
        told = {"run_id": name, "num_examples": len(rows), "rollouts": len(rows), "scored": len(rows), "failed": 0}
        return run_writer.write(tmp_path / name, rows, **told | metadata)

    return write


@pytest.fixture
def nightjar_run(run):
    def write(name="nightjar", questions=QUESTIONS, answers=ANSWERS, **told):
        return run(name, [asked(question, before=[SYSTEM]) for question in questions], answers, **told)

    return write


@pytest.fixture
def nemo_run(run):
    """Writes a run of another program, which puts each question into its own words."""

    def write(name="nemo", questions=QUESTIONS, answers=("5", "4", "1234"), template=TEMPLATE, **told):
        return run(name, [template.format(one) for one in questions], answers, mark="nemo", **OTHER_PROGRAM | told)

    return write


class TestAcrossPrograms:
    def test_pairs_have_the_same_question_and_answer_in_any_template_and_order(self, nightjar_run, nemo_run):
        from nightjar.reports.comparison import findings

        nemo = nemo_run(questions=QUESTIONS[::-1], answers=["1234", "4", "5"], rewards=[1.0, 1.0, 0.0])
        found = analysis.compare_runs(nightjar_run(rewards=[1.0, 0.0, 1.0]), nemo)
        assert (found.pairs, found.paired_by, found.unpaired) == (3, {"question": 3}, [])
        assert [(flip.example_id, flip.baseline, flip.candidate) for flip in found.broken] == [(2, 1.0, 0.0)]
        assert [(flip.example_id, flip.baseline, flip.candidate) for flip in found.fixed] == [(1, 0.0, 1.0)]
        assert findings(found)["Paired by"] == "3 by question and answer, because the rest of their content differs"

    @pytest.mark.parametrize(("prompt", "answer"), [
        (asked("What is 900 + 334?"), "900 + 334 = <<900+334=1234>>1234\n#### 1,234"),
        (asked({"type": "text", "text": "What is"}, {"type": "text", "text": "900 + 334?"}), "1234"),
        (asked("What is 900 + 334?", before=[*asked("1 + 1?"), {"role": "assistant", "content": "2"}]), "1234"),
        ("What is 900\n + 334?", " 1,234 "),
    ], ids=["a solution", "parts", "few-shot", "text"])  # fmt: skip
    def test_the_last_message_of_the_user_and_the_final_answer_count(self, run, prompt, answer):
        prompts = [prompt, asked("What is 900 + 335?")]
        other = run("other", prompts, [answer, "1235"], mark="other", **OTHER_PROGRAM)
        mine = run("mine", [asked("What is 900 + 334?")], ["1234"])
        found = analysis.compare_runs(mine, other)
        assert (found.pairs, found.paired_by) == (1, {"question": 1})

    def test_what_has_no_pair_is_reported_with_the_reason(self, nightjar_run, nemo_run):
        from nightjar.reports.comparison import comparison_record, comparison_report, findings

        more = ["Who wrote this?", "Only mine?"]
        mine = nightjar_run(questions=[*QUESTIONS, *more], answers=[*ANSWERS, "me", "yes"])
        nemo = nemo_run(questions=[*QUESTIONS, more[0], "Only theirs?"], answers=["5", "44", "1234", "you", "yes"])
        found = analysis.compare_runs(mine, nemo)
        assert (found.pairs, found.only_baseline, found.only_candidate) == (2, 3, 3)
        told = [(one.side, one.reason, one.count, list(one.first)) for one in found.unpaired]
        assert told == [
            ("baseline", "other answer", 2, [1, 3]), ("baseline", "other question", 1, [4]),
            ("candidate", "other answer", 2, [1, 3]), ("candidate", "other question", 1, [4]),
        ]  # fmt: skip
        said = "2 examples that only the baseline has (the candidate expects another answer: 1, 3)"
        assert said in findings(found)["Missing"]
        assert said in comparison_report(found)
        assert comparison_record(found)["unpaired"][1] == {
            "side": "baseline", "reason": "other question", "count": 1, "first": [4],
        }  # fmt: skip

    def test_equal_questions_and_answers_are_paired_in_order_with_a_warning(self, run, nemo_run, tmp_path):
        from nightjar.reports.comparison import findings

        twice = [QUESTIONS[0], QUESTIONS[1], QUESTIONS[0]]
        mine = run("mine", [asked(one) for one in twice], ["5", "4", "5"], [1.0, 1.0, 0.0])
        nemo = nemo_run(questions=[*twice, QUESTIONS[0]], answers=["5", "4", "5", "5"], rewards=[1.0, 0.0, 0.0, 0.0])
        found = analysis.compare_runs(mine, nemo)
        assert (found.pairs, found.paired_by) == (3, {"question": 1, "position": 2})
        assert [flip.example_id for flip in found.broken] == [1]
        assert "2 by position, because several examples have the same" in findings(found)["Paired by"]
        assert [(one.side, one.reason, list(one.first)) for one in found.unpaired] == [
            ("candidate", "other content", [3])
        ]
        policy = tmp_path / "policy.yaml"
        policy.write_text("version: 1\nmin_pairs: 2\nbenchmarks: {gsm8k: {max_drop: 1}}\n")
        [gated] = analysis.gate(policy, mine, nemo).benchmarks
        assert (gated.pairs, gated.paired_by) == (3, {"question": 1, "position": 2})
        assert "2 pairs are by position" in gated.reason

    def test_prompts_that_are_equal_are_compared_as_a_whole(self, run):
        """Otherwise, the runs would lose different words, because only one of them has the last two questions."""
        few = ["What is the capital of Peru?", "What is the capital of Chad?"]
        mine = run("mine", [asked(one) for one in few], ["Lima", "N'Djamena"])
        many = run("many", [asked(one) for one in [*few, "Who?"]], ["Lima", "N'Djamena", "I"], mark="m", env_id="other")
        assert analysis.compare_runs(mine, many).paired_by == {"question": 2}

    def test_a_prompt_that_is_unknown_has_no_pair(self, run, nightjar_run):
        nemo = run(
            "nemo", [None, *[asked(one) for one in QUESTIONS[1:]]], ["5", "4", "1234"], mark="n", **OTHER_PROGRAM
        )
        found = analysis.compare_runs(nightjar_run(), nemo)
        assert found.paired_by == {"question": 2}
        assert [(one.side, one.reason) for one in found.unpaired] == [
            ("baseline", "other question"), ("candidate", "no prompt"),
        ]  # fmt: skip

    def test_both_answers_are_shown_and_sql_pairs_them_too(self, nightjar_run, nemo_run, tmp_path):
        from nightjar.reports.comparison import comparison_page

        found = analysis.compare_all(nightjar_run(), nemo_run(rewards=[0.0, 1.0, 1.0]), excerpts=5)
        [excerpt] = found.found[0].excerpts.values()
        assert (excerpt.baseline, excerpt.candidate) == ("nightjar says 0", "nemo says 0")
        page = comparison_page(found)
        assert "nightjar says 0" in page
        assert "3 by question and answer" in page
        warehouse = Warehouse(tmp_path / "warehouse")
        for path in (nightjar_run(), nemo_run(rewards=[0.0, 1.0, 1.0])):
            warehouse.publish(path)
        found = warehouse.query("SELECT example_id, flip FROM flips('nightjar', 'nemo')").rows
        assert found == [(0, "broken")]


def test_within_an_environment_another_content_is_another_version_and_a_changed_answer_is_no_pair(nightjar_run):
    from nightjar.reports.comparison import findings

    before = nightjar_run("before", mark="old")
    with pytest.raises(ConfigError, match=r"the same questions and answers, with other system prompts"):
        analysis.compare_runs(before, nightjar_run("after", mark="new"))
    elsewhere = nightjar_run("elsewhere", mark="new", env_id="maths")
    assert analysis.compare_runs(before, elsewhere).paired_by == {"question": 3}
    found = analysis.compare_runs(before, nightjar_run("changed", mark="old", answers=["5", "4", "1,235"]))
    assert (found.pairs, found.paired_by) == (2, {"content": 2})
    told = [(one.side, one.reason) for one in found.unpaired]
    assert told == [("baseline", "other answer"), ("candidate", "other answer")]
    assert "Paired by" not in findings(found)

"""MGSM, MATH-500 and Math with Python: numbers of eleven languages, and answers that are the same mathematics."""

import pytest

from nightjar.benchmarks import math500, mgsm
from nightjar.errors import ConfigError, DatasetError

REPLIES = [
    ("bn", "উত্তর: ১২", "12"), ("bn", "উত্তরঃ ১২০০", "1200"),
    ("bn", "সুতরাং উত্তর হল ১,২০,০০০ টাকা।", "120000"), ("de", "3 + 7 = 10\nAntwort: 10", "10"),
    ("de", "**Antwort:** 10 Hefte", "10"), ("de", "**Antwort**\n18", "18"), ("de", "Die Antwort ist 18.", "18"),
    ("de", "Antwort: 18,00 €", "18.00"), ("de", "Antwort: 1.234", "1234"), ("de", "Antwort: 1'200", "1200"),
    ("de", "Antwort: 18\nIch hoffe, meine Antworten helfen.", "18"),
    ("de", "Letzte Zeile: „Antwort:“ und nur die Zahl.\n3 + 7 = 10\nAntwort: 10", "10"),
    ("de", "Um die Frage zu beantworten: 18", ""), ("de", "Answer: 18", ""), ("en", "Answer: 1,234", "1234"),
    ("en", "Answer: 1.234", "1.234"), ("en", "Answer: $12.00", "12.00"), ("en", "The answer is 1200.", "1200"),
    ("en", r"Answer: $\boxed{1{,}200}$", "1200"), ("es", "Respuesta: 1.234", "1234"),
    ("es", "Respuesta final: 1200", "1200"), ("fr", "Réponse : 1 234", "1234"),
    ("fr", "Réponse : 1\u202f234,50 €", "1234.50"), ("fr", "Re\u0301ponse : 18", "18"), ("ja", "答え: ５", "5"),
    ("ja", "答えは1200です", "1200"), ("ja", "答え：１，２００㎡", "1200"), ("ru", "Ответ: 7\nОтвет: 8", "8"),
    ("ru", "ОТВЕТ: 1 200 рублей", "1200"), ("sw", "Jibu: 2 + 3 = 5", "5"), ("sw", "Jibu ni: 1200", "1200"),
    ("te", "సమాధానం: ౧౨", "12"), ("th", "คำตอบ: ๑๒", "12"), ("th", "คําตอบคือ ๑,๒๐๐ บาท", "1200"),
    ("zh", "答案：5个", "5"), ("zh", "答案是 18", "18"), ("de", "10", "10"), ("de", "**1.200** €", "1200"),
    ("en", "It is 10", ""), ("en", "3 + 7 = 10", ""), ("de", "Antwort: keine", ""), ("en", "", ""),
]  # fmt: skip


def mgsm_environment(tmp_path, language, *row):
    (tmp_path / f"mgsm_{language}.tsv").write_text("\t".join(row) + "\n")
    return mgsm.load_environment(str(tmp_path), language)


def test_mgsm_takes_the_last_number_behind_the_languages_word_for_an_answer():
    assert [(language, reply, mgsm.extract_answer(reply, language)) for language, reply, _ in REPLIES] == REPLIES


def test_mgsm_reads_no_answer_in_what_is_thought_aloud(tmp_path, score):
    env = mgsm_environment(tmp_path, "de", "Wie viele?", "1,200")
    state = score(env, env.examples[0], "<think>Antwort: 5</think>Antwort: 1.200")
    assert (state["reward"], state["parsed_answer"]) == (1.0, "1200")
    assert score(env, env.examples[0], "<think>Antwort: 1.200</think>Keine")["reward"] == 0.0


def test_mgsm_counts_zeros_at_the_end(tmp_path, score):
    for answer, wrong in (("180", ["18"]), ("18", ["180", "0"])):
        env = mgsm_environment(tmp_path, "en", "How many?", answer)
        assert [score(env, env.examples[0], f"Answer: {number}")["reward"] for number in wrong] == [0.0] * len(wrong)


def test_mgsm_reference_numbers_are_right_and_blanks_are_not(data, all_right):
    def reply(example):
        return f"…\n{mgsm.LANGUAGES[example['info']['language']].answer}: {example['answer']}"

    all_right(mgsm.load_environment(str(data / "mgsm")), reply, 2_750)


def test_mgsm_takes_some_languages(data):
    examples = list(mgsm.load_environment(str(data / "mgsm"), "de, sw").examples)
    assert [example["info"] for example in (examples[0], examples[-1])] == [
        {"category": "de", "language": "de", "script": "latin", "problem": 1},
        {"category": "sw", "language": "sw", "script": "latin", "problem": 250},
    ]
    assert len(examples) == 500


def test_mgsm_has_an_error_for_an_unknown_language_or_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"no language 'xx'. Choose one of: bn, de, en"):
        mgsm.load_environment(languages=["xx"])
    with pytest.raises(DatasetError, match=r"a folder with files such as mgsm_de.tsv"):
        len(mgsm.load_environment(str(tmp_path / "none")).examples)


MATH = [
    (r"\frac{5}{6}", r"\boxed{\frac56}", r"\boxed{\frac{6}{5}}"),
    ("5", r"I get \boxed{4}, no: \boxed{5.0}", r"\boxed{5} or rather \boxed{6}"),
    (r"x \in [-2,7]", r"\boxed{[-2,7]}", r"\boxed{(-2,7)}"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \pi/2)}", r"\boxed{(\pi/2, 3)}"),
    (r"p - q", r"Answer: $p-q$", r"Answer: $q-p$"), (r"\sqrt{51}", r"\boxed{51^{1/2}}", r"\boxed{51}"),
    (r"\text{Evelyn}", r"\boxed{\text{Evelyn}}", r"\boxed{\text{Evan}}"), ("90^\\circ", r"\boxed{90}", r"\boxed{9}"),
    (r"11\sqrt2", r"\boxed{11\sqrt{2}}", r"\boxed{2\sqrt{11}}"), ("6 - 5i", r"\boxed{-5i+6}", r"\boxed{6+5i}"),
    ("1,2", r"\boxed{2, 1}", r"\boxed{12}"), (r"\$32,\!348", r"\boxed{32348}", r"\boxed{32,349}"),
    ("2x^3 + x", r"<think>\boxed{0}</think>\boxed{x(2x^2+1)}", r"\boxed{2x^3}"),
    ("90^\\circ", r"\boxed{90°}", r"\boxed{90°30}"), ("90", r"\boxed{90\degree}", r"\boxed{\pi/2}"),
    ("42", r"\boxed{ 42. }", r"\boxed{4.2}"), ("42", "The answer is 42.", "The answer is 24."),
    (r"\frac{5}{6}", r"\boxed{0.8\overline{3}}", r"\boxed{0.83}"),
    (r"0.\overline{36}", r"\boxed{\tfrac{4}{11}}", r"\boxed{0.36}"), ("5", r"\boxed{x = 5}", r"\boxed{x = 6}"),
    ("x = 5", r"\boxed{5}", r"\boxed{-5}"), ("5", r"\boxed{5\text{ cm}}", r"\boxed{6\text{ cm}}"),
    (r"5\text{ cm}^2", r"\boxed{5}", r"\boxed{25}"), ("1200", r"\boxed{1{,}200}", r"\boxed{1.2}"),
    ("1200", r"\boxed{1\,200}", r"\boxed{1,2,0,0}"), (r"\$18", r"\boxed{18 dollars}", r"\boxed{81}"),
    ("18", r"\boxed{\$18.00}", r"\boxed{18.50}"), (r"10\%", r"\boxed{10}", r"\boxed{1}"),
    ("10", r"\boxed{10\%}", r"\boxed{100\%}"), (r"\text{(C)}", r"\boxed{C}", r"\boxed{B}"),
    ("C", r"\boxed{\textbf{(C)}}", r"\boxed{\textbf{(D)}}"), (r"\{1,2\}", r"\boxed{\{2,1\}}", r"\boxed{(1,2)}"),
    ("(1,2)", r"\boxed{(1, 2)}", r"\boxed{\{1,2\}}"), ("(1,2)", r"\boxed{\left(1,2\right)}", r"\boxed{[1,2]}"),
    (r"(-\infty,2)\cup(3,\infty)", r"\boxed{(-∞,2) \cup (3,∞)}", r"\boxed{(-\infty,2)}"),
    (
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        r"\boxed{\begin{bmatrix} 1 \\ 2 \end{bmatrix}}",
        r"\boxed{\begin{pmatrix}1&2\end{pmatrix}}",
    ),
    (r"\sqrt{10}", r"\boxed{√10}", r"\boxed{√1}"), ("1111_2", r"\boxed{1111_{2}}", r"\boxed{1111_3}"),
    ("1,2", r"\boxed{x=1 \text{ or } x=2}", r"\boxed{1}"), (r"\text{even}", r"\boxed{even}", r"\boxed{odd}"),
]  # fmt: skip


@pytest.mark.long
def test_math500_takes_the_same_mathematics(rows_file, rewards):
    rows = ({"problem": "?", "answer": answer, "subject": "Algebra", "level": 5} for answer, *_ in MATH)
    env = math500.load_environment(rows_file(*rows))
    examples = list(env.examples)
    assert examples[0]["info"] == {"category": "Algebra", "level": "5"}
    cases = [
        (example, reply, reward)
        for example, (answer, right, wrong) in zip(examples, MATH, strict=True)
        for reply, reward in ((right, 1.0), (f"\\boxed{{{answer}}}", 1.0), (wrong, 0.0), ("", 0.0))
    ]
    found = rewards(env, [(example, reply) for example, reply, _ in cases])
    assert [case for case, reward in zip(cases, found, strict=True) if case[2] != reward] == []


def test_math_python_takes_the_last_box_of_a_solution_as_its_answer(rows_file):
    row = {"problem": "?", "solution": r"Not \boxed{1}. So \boxed{\frac{1}{2}}.", "type": "Algebra"}
    from nightjar.benchmarks import math_python

    env = math_python.load_environment(rows_file(row))
    [example] = env.examples
    assert (example["answer"], [tool.name for tool in env.tool_defs]) == (r"\frac{1}{2}", ["python"])
    assert "numpy sympy scipy" in example["prompt"][0]["content"]

"""DROP: 9,535 questions about passages that need adding, counting, sorting and comparing.

Dua et al., 2019, "DROP: A Reading Comprehension Benchmark Requiring Discrete Reasoning Over Paragraphs"; data: CC BY-SA
4.0. Run and example::

    nightjar eval run drop -m gpt-4.1-mini -p openai -n 1000 --shuffle
    nightjar eval stats RUN --cluster passage          (questions about one passage resemble each other)

    passage:       The Owls kicked 3 goals in the first half and 2 in the second.
    question:      How many goals did the Owls kick?
    answers_spans: {"spans": ["5"], "types": ["number"]}

Scoring is as published: the reward is the best F1 of the reply's words against any correct answer, or 0 if the correct
answer has numbers and the reply has none of these numbers. `exact_match` is a metric.

The hub's list of spans joins the spans of all annotators. A number or a date is an answer by itself. Spans form one
answer if two annotators named at least two of them (Ann, Bob, Bob, Ann). Otherwise (Ann, Bob) each span is a correct
answer, and so are all spans together. If an answer has several spans, each is compared with the best fitting span of
the reply, and the mean is over the larger number of spans, as in AllenNLP's program.

Differences from the authors' program: signs of currency and percent are removed before a number is read, so `50.6%` is
50.6, not 506; curly quotation marks are punctuation; a reply without words is wrong, even if the answer is an article.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from nightjar.environments import SingleTurnEnv
from nightjar.environments.data import BenchmarkData
from nightjar.environments.parsers import AfterThinkParser, Parser
from nightjar.environments.rubrics import Rubric
from nightjar.environments.scorers.texts import stated_lines
from nightjar.errors import DatasetError

DATA = BenchmarkData("ucinlp/drop", 9_535, "CC BY-SA 4.0", (), split="validation", nested={"answers_spans": dict})
PROMPT = """{passage}

{question}

Reason step by step over the passage. Then write a last line that says "Answer:" and the answer alone: a number, \
a date, or words of the passage or the question; several of them with commas between."""

_ARTICLES = frozenset({"a", "an", "the"})
_AROUND = string.punctuation + string.whitespace + "€£‘’“”´"
_ITEM = re.compile(r"(?m)^[^\S\n]*(?:[-*•]|\d{1,2}[.)])[^\S\n]+")
_COMMA = r"|,(?!\d{3}(?!\d))"
_SEPARATORS = [re.compile(separator) for separator in (r"[\n;]", r"[\n;]" + _COMMA, r"[\n;&]|\band\b" + _COMMA)]
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")
_PUNCTUATION = str.maketrans("", "", string.punctuation + "‘’“”´")
_QUESTION = re.compile(r"\s*Passage:\s*(?P<passage>.*?)\s*Question:\s*(?P<question>.*?)\s*(?:Answer:\s*)?", re.DOTALL)


def load_environment(dataset: str | None = None, system_prompt: str | None = None) -> SingleTurnEnv:
    """Loads DROP from the hub, or from a file with the same columns or with ``context`` and ``ref_text``."""
    parser = AfterThinkParser(lambda text: "\n".join(stated_lines(text)))
    return SingleTurnEnv(
        eval_dataset=lambda: DATA.examples(to_example, dataset),
        system_prompt=system_prompt,
        rubric=Rubric(funcs=[f1, exact_match], weights=[1.0, 0.0], parser=parser),
    )


def to_example(row: dict[str, Any]) -> dict[str, Any]:
    if row.keys() >= {"passage", "question", "answers_spans"}:
        spans = row["answers_spans"]
        passage, question = row["passage"], row["question"]
        types = spans.get("types") or ()
        answers, kind = answers_of(_texts(spans.get("spans")), types), next(iter(types), None)
    elif row.keys() >= {"context", "ref_text"}:
        asked = _QUESTION.fullmatch(row["context"])
        passage, question = asked.group("passage", "question") if asked else (row["context"], "")
        answers, kind = [[text] for text in row["ref_text"].split("|") if text.strip()], None
    else:
        raise DatasetError(f"a row of DROP must have passage, question and answers_spans; found {sorted(row)}")
    if not answers:
        raise DatasetError("it has no answer")
    about = row.get("section_id", passage[:80])
    return {
        "question": PROMPT.format(passage=passage, question=question),
        "answer": "; ".join(answers[0]),
        "info": {"answers": answers, "category": kind, "passage": about},
    }


def _texts(spans: Any) -> list[str]:
    if not isinstance(spans, list) or not all(isinstance(span, str) for span in spans):
        raise DatasetError(f"the spans of 'answers_spans' must be a list of texts; found {spans!r}")
    return spans


def answers_of(spans: Sequence[str], types: Sequence[str] = ()) -> list[list[str]]:
    """Returns the answers in the hub's list of all annotators' spans. Each answer is a list of spans.

    Example:
        >>> answers_of(["Ann", "Bob", "Bob", "Ann"]), answers_of(["3", "4"], ["number", "number"])
        ([['Ann', 'Bob'], ['Bob', 'Ann']], [['3'], ['4']])
        >>> answers_of(["Ann", "Bob"])
        [['Ann'], ['Bob'], ['Ann', 'Bob']]
    """
    given = _by_annotator(spans, types)
    bags = [{" ".join(words(span)) for span in answer} for answer in given]
    found = []
    for place, answer in enumerate(given):
        is_shared = any(len(bags[place] & bag) > 1 for other, bag in enumerate(bags) if other != place)
        found += [answer] if is_shared or len(answer) == 1 else [*([span] for span in answer), answer]
    return [answer for place, answer in enumerate(found) if answer not in found[:place]]


def _by_annotator(spans: Sequence[str], types: Sequence[str]) -> list[list[str]]:
    """Splits the list around numbers and dates, and where an annotator would name a span twice."""
    answers: list[list[str]] = []
    before = None
    for span, kind in zip_longest(spans, types, fillvalue="span"):
        if before == kind == "span" and not _is_named(span, answers[-1]):
            answers[-1].append(span)
        else:
            answers.append([span])
        before = kind
    return answers


def _is_named(span: str, answer: list[str]) -> bool:
    bag = set(words(span))
    return any(bag <= other or other <= bag for other in (set(words(named)) for named in answer))


def f1(completion: Any, info: dict[str, Any], parser: Parser) -> float:
    """The overlap of the reply's words with the nearest correct answer, from 0 to 1."""
    given = parser.parse_answer(completion) or ""
    return max((aligned(said, right) for said, right in _compared(given, info["answers"])), default=0.0)


def exact_match(completion: Any, info: dict[str, Any], parser: Parser) -> float:
    """1.0 if the reply's words equal the words of a correct answer, with spans in any order, else 0.0."""
    given = parser.parse_answer(completion) or ""
    return float(any(any(said) and sorted(said) == sorted(right) for said, right in _compared(given, info["answers"])))


def _compared(given: str, answers: list[list[str]]) -> list[tuple[list[list[str]], list[list[str]]]]:
    """Returns each reading of the reply as spans, paired with each correct answer, as words."""
    one, several = [[given.partition("\n")[0]]], spans_of(given)
    pairs = [(said, right) for right in answers for said in (one if len(right) == 1 else [*one, *several])]
    return [([words(span) for span in said], [words(span) for span in right]) for said, right in pairs]


def spans_of(given: str) -> list[list[str]]:
    """Returns the ways to split a reply into spans.

    Example:
        >>> spans_of("Rock and Roll, Jazz")
        [['Rock and Roll, Jazz'], ['Rock and Roll', 'Jazz'], ['Rock', 'Roll', 'Jazz']]
    """
    plain = _ITEM.sub("", given)
    texts = dict.fromkeys([plain.partition("\n")[0], plain])
    cut = ([span.strip() for span in separator.split(text)] for separator in _SEPARATORS for text in texts)
    found = [[span for span in spans if span] for spans in cut]
    return [spans for place, spans in enumerate(found) if spans not in found[:place]]


def aligned(said: list[list[str]], right: list[list[str]]) -> float:
    """Returns the mean overlap of spans in their best assignment; 0.0 for spans without a partner."""
    scores = [[overlap(span, wanted) for span in said] for wanted in right]
    if min(len(said), len(right)) == 1:
        best = max(max(row) for row in scores)
    else:
        from scipy.optimize import linear_sum_assignment

        best = sum(
            scores[row][column] for row, column in zip(*linear_sum_assignment(scores, maximize=True), strict=True)
        )
    return round(best / max(len(said), len(right)), 2)


def words(text: str) -> list[str]:
    """Returns the words of an answer: numbers normalised, lower case, without punctuation and articles.

    Example:
        >>> words("The 1,200-yard run."), words("$5")
        (['1200.0', 'yard', 'run'], ['5.0'])
    """
    plain = (_plain(word) for word in re.split(r"[ -]", text.lower()))
    return [part for word in plain for part in word.split() if part not in _ARTICLES]


def _plain(word: str) -> str:
    bare = word.lstrip(_AROUND.replace(".", "")).rstrip(_AROUND)
    plain = bare.replace(",", "") if _NUMBER.fullmatch(bare) else word.translate(_PUNCTUATION)
    return str(float(plain)) if _NUMBER.fullmatch(plain) else plain


def overlap(given: list[str], wanted: list[str]) -> float:
    """Returns the harmonic mean of precision and recall of the distinct words, as the authors do.

    It is 0.0 if the correct answer has numbers and the given answer has none of them.
    """
    said, right = set(given), set(wanted)
    numbers = {word for word in right if _NUMBER.fullmatch(word)}
    common = said & right
    if not common or (numbers and not numbers & said):
        return 0.0
    return 2 * len(common) / (len(said) + len(right))

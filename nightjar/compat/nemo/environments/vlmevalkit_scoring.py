"""VLMEvalKit's scoring without a judge: multiple choice, yes or no, short answers.

Comparisons of short answers, and the datasets that use them:

==================== ====================================================================== ================
``vqa_score``        agreement with people's answers; three equal answers make it correct   TextVQA, VizWiz
``relaxed_accuracy`` a number that is off by at most 5 %, or the same text                  ChartQA
``accuracy``         the same text                                                          OCRVQA, GQA
``anls``             the share of the text that is the same, if at least half               DocVQA, InfoVQA
``contains``         the answer contains the reference                                      OCRBench
``exact``            the same text, ignoring case, articles, punctuation, number words      all others
==================== ====================================================================== ================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from nightjar.environments.scorers.texts import stated_letter

Measure = Callable[[str, Sequence[str]], float]

_BETWEEN_WORDS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_LAST_WORDS = 4
_SENTENCE = 3
_REFUSALS = (
    "Sorry, I can't help with images of people yet.", "I can't process this file.",
    "I'm sorry, but without the image provided", "Cannot determine the answer",
)  # fmt: skip
_PUNCTUATION = r"[;/\[\]\"{}()=+\\_\-><@`,?!]"
_ARTICLES = frozenset({"a", "an", "the"})
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {"none": "0"} | {word: str(number) for number, word in enumerate(_WORDS)}
_PEOPLE = 3
_RELAXED = 0.05
_HALF = 0.5


def chosen_option(answer: str, choices: Mapping[str, str]) -> str | None:
    """Returns the letter of the option that an answer chooses; None if it is not clear.

    As in VLMEvalKit, it is the only option letter near the end, otherwise the only option whose text is in the answer.
    Otherwise, it is the stated letter (see ``stated_letter``) or the only letter anywhere.
    """
    if any(refusal in answer for refusal in _REFUSALS):
        return None
    words = answer.translate(_BETWEEN_WORDS).split()
    letters = [letter for letter in choices if letter in words]
    is_article = letters == ["A"] and len(words) > _SENTENCE
    if len(letters) == 1 and not is_article and words.index(letters[0]) >= len(words) - _LAST_WORDS:
        return letters[0]
    lower = answer.lower()
    if len(lower) <= 2 * sum(map(len, choices.values())):
        meant = [letter for letter, text in choices.items() if text.lower() in lower]
        if len(meant) == 1:
            return meant[0]
    return stated_letter(answer, "".join(choices)) or (letters[0] if len(letters) == 1 and not is_article else None)


def yes_or_no(answer: str) -> str | None:
    """Returns ``yes`` or ``no`` if the answer contains only one of them as a word.

    Example:
        >>> yes_or_no("Yes, it is."), yes_or_no("yes and no"), yes_or_no("I know")
        ('yes', None, None)
    """
    words = set(_without_punctuation(answer.lower()).split())
    found = words & {"yes", "no"}
    return found.pop() if len(found) == 1 else None


def vqa_score(answer: str, references: Sequence[str]) -> float:
    """Returns the mean over references of the agreement with the other references; three equal references give 1."""
    plain, people = plain_answer(answer), [plain_answer(each) for each in references]
    agreed = [people[:n].count(plain) + people[n + 1 :].count(plain) for n in range(len(people))]
    return sum(min(1.0, count / _PEOPLE) for count in agreed) / len(people)


def relaxed_accuracy(answer: str, references: Sequence[str]) -> float:
    """Returns 1.0 for a number that is off by at most 5 %, or for the same text; otherwise 0.0.

    Example:
        >>> relaxed_accuracy("10.4", ["10"]), relaxed_accuracy("12%", ["0.1"]), relaxed_accuracy("Paris", ["paris"])
        (1.0, 0.0, 1.0)
    """
    return float(any(_is_near(answer.strip(), reference) for reference in references))


def accuracy(answer: str, references: Sequence[str]) -> float:
    return float(answer.strip().lower() in {reference.strip().lower() for reference in references})


def anls(answer: str, references: Sequence[str]) -> float:
    """Returns 1 minus the normalized edit distance to the nearest reference; 0 if the result is below 0.5.

    Example:
        >>> anls("Nightjar", ["nightjars", "owl"]), anls("owl", ["nightjar"])
        (0.8888888888888888, 0.0)
    """
    likeness = max(1.0 - _distance(answer, reference) for reference in references)
    return likeness if likeness >= _HALF else 0.0


def contains(answer: str, references: Sequence[str]) -> float:
    text = answer.lower().strip().replace("\n", " ")
    return float(any(reference.lower().strip().replace("\n", " ") in text for reference in references))


def exact(answer: str, references: Sequence[str]) -> float:
    """Returns 1.0 for the same text, ignoring case, articles, punctuation and number words; otherwise 0.0."""
    plain = plain_answer(answer)
    return float(bool(plain) and plain in {plain_answer(reference) for reference in references})


MEASURES: dict[str, Measure] = {
    measure.__name__: measure for measure in (vqa_score, relaxed_accuracy, accuracy, anls, contains, exact)
}

_OF_DATASETS = {
    "TextVQA": "vqa_score", "VizWiz": "vqa_score", "ChartQA": "relaxed_accuracy", "OCRVQA": "accuracy",
    "GQA": "accuracy", "DocVQA": "anls", "InfoVQA": "anls", "OCRBench": "contains",
}  # fmt: skip


def measure_of(dataset_name: str) -> str:
    return next((measure for part, measure in _OF_DATASETS.items() if part in dataset_name), "exact")


def plain_answer(text: str) -> str:
    bare = _without_punctuation(" ".join(text.lower().split())).replace("'", "")
    return " ".join(_NUMBERS.get(word, word) for word in bare.split() if word not in _ARTICLES)


def _without_punctuation(text: str) -> str:
    """Returns a text without punctuation. A sign between words becomes a blank; a comma in a number is only removed."""
    text = re.sub(r"(?<=\d),(?=\d)", "", text)
    text = re.sub(rf"(?<=\S){_PUNCTUATION}(?=\S)", " ", text)
    return re.sub(r"\.(?!\d)", "", re.sub(_PUNCTUATION, "", text))


def _is_near(answer: str, reference: str) -> bool:
    given, wanted = _number(answer), _number(reference)
    if given is None or not wanted:
        return answer.lower() == reference.lower()
    return abs(given - wanted) / abs(wanted) <= _RELAXED


def _number(text: str) -> float | None:
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


def _distance(first: str, second: str) -> float:
    one, other = (" ".join(text.lower().split()) for text in (first, second))
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        here = [row]
        for column, wanted in enumerate(other):
            here.append(min(before[column] + (letter != wanted), before[column + 1] + 1, here[-1] + 1))
        before = here
    return before[-1] / max(len(one), len(other), 1)

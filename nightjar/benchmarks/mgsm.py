"""MGSM: 250 grade school math problems in each of eleven languages.

Shi et al., 2022, "Language Models are Multilingual Chain-of-Thought Reasoners"; data: CC BY-SA 4.0. Run and example::

    nightjar eval run mgsm -m gpt-4.1-mini -p openai -n -1 -a '{"languages": "de sw"}'
    nightjar eval stats RUN --by language        (or --by script: latin, non_latin)
    nightjar eval stats RUN --cluster problem    (a problem is as hard in one language as in another)

    question: Ana hat 3 Hefte und kauft 7 dazu. Wie viele Hefte hat sie jetzt?
    answer:   10

The prompt asks for a reply in the question's language. The last number after that language's word for "answer" is
scored. The word may be in any case, with or without a colon; the authors' program requires the word's own case and a
colon. As in the authors' program, a reply without the word is wrong, unless it is only a number. Digits of any script
count, and so do the language's thousands separators: `1.234` in German, `1 234` in French.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nightjar.core.rollout.state import State
from nightjar.environments import SingleTurnEnv
from nightjar.environments.data import BenchmarkData, read_rows
from nightjar.environments.data.benchmark_data import examples_of
from nightjar.environments.parsers import AfterThinkParser, Parser
from nightjar.environments.rubrics import Rubric
from nightjar.environments.scorers.numbers import plain_text, read_numbers, same_number
from nightjar.errors import ConfigError, DatasetError


class Language(NamedTuple):
    answer: str
    instruction: str


LANGUAGES = {
    "bn": Language("উত্তর", "নিচের অঙ্কটি ধাপে ধাপে সমাধান করো। শেষ লাইনে লেখো “উত্তর:” আর তার পরে শুধু সংখ্যাটি।"),
    "de": Language(
        "Antwort", "Löse die Aufgabe Schritt für Schritt. Schreibe in die letzte Zeile „Antwort:“ und nur die Zahl."
    ),
    "en": Language("Answer", 'Solve the problem step by step. In the last line write "Answer:" and the number alone.'),
    "es": Language(
        "Respuesta", "Resuelve el problema paso a paso. En la última línea escribe «Respuesta:» y solo el número."
    ),
    "fr": Language(
        "Réponse", "Résous le problème étape par étape. À la dernière ligne, écris « Réponse : » et le nombre seul."
    ),
    "ja": Language("答え", "次の問題を順を追って解いてください。最後の行に「答え:」と数字だけを書いてください。"),
    "ru": Language("Ответ", "Реши задачу по шагам. В последней строке напиши «Ответ:» и только число."),
    "sw": Language(
        "Jibu", "Tatua tatizo hili hatua kwa hatua. Kwenye mstari wa mwisho andika “Jibu:” na nambari pekee."
    ),
    "te": Language("సమాధానం", "ఈ లెక్కను దశలవారీగా సాధించండి. చివరి వరుసలో “సమాధానం:” అని, తర్వాత సంఖ్య మాత్రమే రాయండి."),
    "th": Language("คำตอบ", "แก้โจทย์ต่อไปนี้ทีละขั้น บรรทัดสุดท้ายให้เขียนว่า “คำตอบ:” ตามด้วยตัวเลขเท่านั้น"),
    "zh": Language("答案", "请一步一步解答下面的题目，最后一行写“答案：”，后面只写数字。"),
}
LATIN = frozenset({"de", "en", "es", "fr", "sw"})
DATA = BenchmarkData(
    "juletxara/mgsm", 250 * len(LANGUAGES), "CC BY-SA 4.0", ("question", "answer_number"), tuple(LANGUAGES)
)

HAVE_DECIMAL_COMMA = frozenset({"de", "es", "fr", "ru"})


def load_environment(
    dataset: str | None = None, languages: str | Sequence[str] = tuple(LANGUAGES), system_prompt: str | None = None
) -> SingleTurnEnv:
    """Loads MGSM from the hub, or from a folder with the authors' files ``mgsm_de.tsv`` and so on.

    ``languages`` are codes, as a list or a text; all eleven by default.
    """
    codes = languages.replace(",", " ").split() if isinstance(languages, str) else list(languages)
    if unknown := [code for code in codes if code not in LANGUAGES]:
        raise ConfigError(f"MGSM has no language {unknown[0]!r}. Choose one of: {', '.join(LANGUAGES)}")
    return SingleTurnEnv(
        eval_dataset=lambda: examples_of(
            load_rows(dataset, codes), to_example, dataset or DATA.repository, DATA.columns
        ),
        system_prompt=system_prompt,
        rubric=Rubric(funcs=[correct_answer], parser=AfterThinkParser()),
    )


def load_rows(dataset: str | None, codes: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the problems by language. A problem has the same number ``problem`` in all languages."""
    numbered = [(code, enumerate(_rows_of(code, dataset), start=1)) for code in codes]
    return [{**row, "language": code, "problem": number} for code, rows in numbered for number, row in rows]


def _rows_of(code: str, dataset: str | None) -> list[dict[str, Any]]:
    if dataset is None:
        return replace(DATA, configs=(code,)).rows()
    if not Path(dataset).is_dir():
        raise DatasetError(f"MGSM expects a folder with files such as mgsm_de.tsv, found {dataset!r}")
    return read_rows(Path(dataset, f"mgsm_{code}.tsv"), columns=("question", "answer_number"))


def to_example(row: dict[str, Any]) -> dict[str, Any]:
    code = row["language"]
    script = "latin" if code in LATIN else "non_latin"
    return {
        "question": f"{LANGUAGES[code].instruction}\n\n{row['question']}",
        "answer": str(row["answer_number"]).replace(",", ""),
        "info": {"category": code, "language": code, "script": script, "problem": row["problem"]},
    }


def extract_answer(text: str, language: str) -> str:
    r"""Returns the last number after the language's word for the answer, or the only number of a reply without words.

    Example:
        >>> extract_answer("3 + 7 = 10\n**Antwort:** 10 Hefte", "de"), extract_answer("উত্তরঃ ১২", "bn")
        ('10', '12')
        >>> extract_answer("So 10", "en"), extract_answer("**10**", "en")
        ('', '10')
    """
    plain = plain_text(text)
    found = _word(language).search(plain)
    numbers = list(read_numbers(plain[found.end() if found else 0 :], language in HAVE_DECIMAL_COMMA))
    is_alone = len(numbers) == 1 and not any(map(str.isalpha, plain))
    return f"{numbers[-1]:f}" if numbers and (found or is_alone) else ""


def _word(language: str) -> re.Pattern[str]:
    """Returns a pattern of the word. A capitalised word must not match inside another, such as "beantworten"."""
    word = plain_text(LANGUAGES[language].answer)
    return re.compile(word if word == word.lower() else rf"(?i)(?<![^\W\d_]){word}")


def correct_answer(completion: Any, answer: str, info: dict[str, Any], state: State, parser: Parser) -> float:
    """1.0 if the number is correct, else 0.0. The number is recorded as ``parsed_answer``."""
    found = extract_answer(parser.parse_answer(completion) or "", info["language"])
    state["parsed_answer"] = found
    return float(same_number(found, answer))

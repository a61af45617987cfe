"""Wordle: find a word of five letters in six guesses.

TextArena's game, from verifiers' `wordle`. Needs the extra `textarena`, and NLTK's words, which are downloaded on first
use. Run and example of a turn::

    nightjar eval run wordle -m gpt-4.1-mini -p openai -n 20 -r 3

    model:  <guess>[crane]</guess>
    game:   C R A N E
            X Y G X X          (green: right place; yellow: another place; X: not in the word)

If the model finds the word, the reward is 1 plus 1 / (number of guesses). Otherwise, it is 0.2 for each green and 0.1
for each yellow letter of the last guess. In both cases, the format adds at most 0.2.
"""

from __future__ import annotations

from typing import Any

from nightjar.core.messages import content_text
from nightjar.core.rollout.state import RewardFunc
from nightjar.environments import TextArenaEnv
from nightjar.environments.games.nltk_data import NltkData
from nightjar.environments.parsers import AfterThinkXMLParser
from nightjar.environments.rubrics import Rubric

DATA = NltkData()
SYSTEM_PROMPT = """You play Wordle. In each turn think about what the answers so far leave open, then make one guess:

<guess>[your word]</guess>"""


def load_environment(
    num_train_examples: int = 2000,
    num_eval_examples: int = 20,
    system_prompt: str | None = SYSTEM_PROMPT,
    seed: int = 0,
) -> TextArenaEnv:
    """Loads games, each with its own word; ``seed`` selects the words."""
    parser = AfterThinkXMLParser(["guess"], answer_field="guess")
    funcs: list[RewardFunc] = [found, partly_found, speed, kept_format]
    return TextArenaEnv(
        "Wordle-v0",
        num_train_examples=num_train_examples,
        num_eval_examples=num_eval_examples,
        system_prompt=system_prompt,
        parser=parser,
        rubric=Rubric(funcs=funcs, weights=[1.0, 1.0, 1.0, 0.2], parser=parser),
        feedback_fn=last_feedback,
        reference_reply=lambda example: f"<guess>[{example['answer']}]</guess>",
        seed=seed,
    )


def last_feedback(observation: str) -> str:
    latest = observation.rpartition("[GAME]")[2].strip()
    return latest.partition("Feedback:")[2].strip() or latest


def found(completion: Any, answer: str, parser: AfterThinkXMLParser) -> float:
    """1.0 if the last guess is the word, else 0.0."""
    return float(str(parser.parse_answer(completion) or "").strip().lower() == f"[{answer.lower()}]")


def partly_found(completion: Any, answer: str, parser: AfterThinkXMLParser) -> float:
    """0.2 for each green and 0.1 for each yellow letter of the last guess; 0.0 if the word was found."""
    told = [content_text(message["content"]) for message in parser.get_user_messages(completion)]
    marks = next((marks for text in reversed(told) if (marks := _marks(text))), "")
    return 0.0 if found(completion, answer, parser) else 0.2 * marks.count("G") + 0.1 * marks.count("Y")


def speed(completion: Any, answer: str, parser: AfterThinkXMLParser) -> float:
    """One divided by the number of guesses if the word was found, else 0.0."""
    guesses = len(parser.get_assistant_messages(completion))
    return found(completion, answer, parser) / guesses if guesses else 0.0


def kept_format(completion: Any, parser: AfterThinkXMLParser) -> float:
    """How well the replies follow the format, from 0 to 1; 0.0 without a guess."""
    return float(parser.get_format_reward_func()(completion)) if parser.parse_answer(completion) else 0.0


def _marks(text: str) -> str:
    """Returns the game's line of marks without blanks; empty if there is no such line."""
    lines = ("".join(line.split()) for line in text.splitlines())
    return next((line for line in reversed(list(lines)) if len(line) == 5 and set(line) <= set("GYX")), "")  # noqa: PLR2004

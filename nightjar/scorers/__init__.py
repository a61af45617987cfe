"""Pure matchers: from what was said and what is right to whether they are the same."""

from nightjar.scorers.choices import stated_letter
from nightjar.scorers.json_texts import extract_json
from nightjar.scorers.numbers import (
    equated_number,
    last_number,
    plain_text,
    read_number,
    read_numbers,
    same_number,
    stated_number,
)
from nightjar.scorers.texts import stated_answer, stated_lines

__all__ = [
    "equated_number",
    "extract_json",
    "last_number",
    "plain_text",
    "read_number",
    "read_numbers",
    "same_number",
    "stated_answer",
    "stated_letter",
    "stated_lines",
    "stated_number",
]

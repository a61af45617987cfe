"""Pure functions that find an answer in a text and compare it with the reference."""

from nightjar.environments.scorers.numbers import (
    equated_number,
    last_number,
    plain_text,
    read_number,
    read_numbers,
    same_number,
    stated_number,
)
from nightjar.environments.scorers.texts import extract_json, stated_answer, stated_letter, stated_lines

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

"""Parsers: from a completion to the answer in it."""

from nightjar.parsers.extract import extract_boxed_answer, extract_hash_answer
from nightjar.parsers.parser import Parser

__all__ = ["Parser", "extract_boxed_answer", "extract_hash_answer"]

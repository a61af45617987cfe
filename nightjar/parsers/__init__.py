"""Parsers: from a completion to the answer in it."""

from nightjar.parsers.extract import extract_boxed_answer, extract_hash_answer, strip_non_numeric
from nightjar.parsers.parser import Parser
from nightjar.parsers.think_parsers import (
    AfterThinkParser,
    AfterThinkXMLParser,
    MaybeThinkParser,
    ThinkParser,
    without_thoughts,
)
from nightjar.parsers.xml_parser import XMLParser

__all__ = [
    "AfterThinkParser",
    "AfterThinkXMLParser",
    "MaybeThinkParser",
    "Parser",
    "ThinkParser",
    "XMLParser",
    "extract_boxed_answer",
    "extract_hash_answer",
    "strip_non_numeric",
    "without_thoughts",
]

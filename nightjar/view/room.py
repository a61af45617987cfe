"""``Room``: the remaining space for a conversation, which bounds the size of its page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from markupsafe import escape

LONGEST_TEXT, LEAST_TEXT = 200_000, 4_000
"""Limits in characters of a message: the most that are shown, and the number shown however long the conversation is."""
LONGEST_CONVERSATION = 2_000_000
"""The limit for all texts, in characters of HTML. Images may have twice as many, and so may JSON that is read."""
MOST_RENDERED = 400_000
"""The limit in characters for the texts of a conversation that are shown as Markdown. Further texts are plain."""
_ELEMENT = 150
_Item = TypeVar("_Item")


class Room:
    def __init__(self, messages: int = 1) -> None:
        self._longest = min(LONGEST_TEXT, max(LEAST_TEXT, LONGEST_CONVERSATION // max(1, messages)))
        self._texts = LONGEST_CONVERSATION
        self._rendered = MOST_RENDERED
        self._images = self._json = 2 * LONGEST_CONVERSATION

    @property
    def is_full(self) -> bool:
        return self._texts <= 0

    def for_each(self, found: Iterable[_Item]) -> Iterator[_Item]:
        for item in found:
            if self.is_full:
                return
            self._texts -= _ELEMENT
            yield item

    def beginning(self, text: str) -> str:
        shown = text[: max(0, min(self._longest, self._texts))]
        self._texts -= len(escape(shown))
        return shown

    def reserve(self, characters: int) -> None:
        """Reserves room for the tags around a text."""
        self._texts -= characters

    def renders(self, text: str) -> bool:
        """Returns whether there is room for the text as Markdown, and reserves the room."""
        self._rendered -= len(text)
        return self._rendered >= 0

    def has_for_image(self, url: str) -> bool:
        """Returns whether there is room for the image, and reserves the room."""
        self._images -= len(url)
        return self._images >= 0

    def has_for_json(self, text: str) -> bool:
        """Returns whether the text may be read as JSON, which takes time, and reserves the room."""
        self._json -= len(text)
        return self._json >= 0

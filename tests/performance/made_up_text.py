"""Text of made-up words, as unevenly frequent as real ones: zstd makes it 2.9 times smaller, as it does GSM8K."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

SEED = 4

_VOCABULARY = 20_000
_POOL_WORDS = 5_000_000
"""Much more than a compressor looks back on, so that a piece that is cut from it again costs as much as a new one."""
_STOP = 2
"""Separators from this one on end a sentence."""
_LONGEST = 15_000


@cache
def text() -> Text:
    """Returns the text of this process; making it takes some seconds."""
    return Text()


class Text:
    """A long text, escaped as in JSON, from which pieces are cut.

    Attributes:
        rare_word: a word that is in one of some hundreds of pieces of 1,000 characters.
    """

    def __init__(self) -> None:
        random = np.random.default_rng(SEED)
        words = np.array(list(_words(random)), dtype=object)
        endings = random.choice(4, _POOL_WORDS, p=[0.87, 0.05, 0.065, 0.015])
        separated = [words + separator for separator in (b" ", b", ", b". ", b".\\n")]
        ranks = _zipf(random, _POOL_WORDS)
        tokens = np.stack(separated)[endings, ranks]
        self.rare_word: str = words[_VOCABULARY * 3 // 4].decode()
        self._pool = b"".join(tokens.tolist())
        begins = np.cumsum([0, *map(len, tokens)])[:-1]
        self._ends = begins + [len(word) for word in words[ranks]]
        starts = begins[1:][endings[:-1] >= _STOP]
        self._starts = starts[: np.searchsorted(starts, len(self._pool) - 2 * _LONGEST)]

    def pieces(self, random: np.random.Generator, count: int, length: int) -> list[bytes]:
        """Returns pieces that begin with a sentence, of a length that varies around the mean by half of it."""
        starts = random.choice(self._starts, count)
        lengths = random.gamma(4, length / 4, count).clip(1, _LONGEST).astype(int)
        ends = self._ends[np.searchsorted(self._ends, starts + lengths)]
        return [self._pool[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def piece(self, random: np.random.Generator, length: int) -> str:
        return self.pieces(random, 1, length)[0].decode().replace("\\n", "\n") if length else ""


def _words(random: np.random.Generator) -> Iterator[bytes]:
    """Yields distinct words, the frequent ones short, and some numbers among them."""
    onsets = [*"bcdfghjlmnprstvw", "st", "tr", "pl", "gr", "sh", "ch", "th", "br"]
    rhymes = [*"aeiou", "an", "en", "in", "or", "er", "al", "is", "ou", "ea", "at", "ing", "ent", "ion"]
    seen: set[str] = set()
    while len(seen) < _VOCABULARY:
        syllables = random.integers(1, 2 + (len(seen) > 80) + (len(seen) > 400) + (len(seen) > 4_000))
        word = "".join(str(part) for _ in range(syllables) for part in (random.choice(onsets), random.choice(rhymes)))
        word = str(random.integers(0, 3_000)) if random.random() < 0.05 else word
        if word not in seen:
            seen.add(word)
            yield word.encode()


def _zipf(random: np.random.Generator, count: int) -> np.ndarray:
    """Draws ranks of words, with frequencies by the law of Zipf and Mandelbrot."""
    weights = 1 / (np.arange(_VOCABULARY) + 2.7) ** 1.13
    return np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count)).clip(0, _VOCABULARY - 1)

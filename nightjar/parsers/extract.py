r"""Ways to find a final answer in free text: ``\boxed{}``, ``####``."""

from __future__ import annotations

_BOXED = "\\boxed{"


def extract_boxed_answer(text: str, strict: bool = False) -> str:
    r"""Returns the content of the last ``\boxed{...}``, braces balanced.

    Args:
        text: what the model wrote.
        strict: return ``""`` where there is no closed box; the text itself otherwise.

    Example:
        >>> extract_boxed_answer(r"so \boxed{\frac{1}{2}}")
        '\\frac{1}{2}'
    """
    start = text.rfind(_BOXED)
    if start >= 0:
        content = text[start + len(_BOXED) :]
        depth = 1
        for position, character in enumerate(content):
            depth += {"{": 1, "}": -1}.get(character, 0)
            if depth == 0:
                return content[:position]
    return "" if strict else text


def extract_hash_answer(text: str) -> str | None:
    """Returns what stands after the last ``####`` (GSM8K's format), or None where there is none.

    Example:
        >>> extract_hash_answer("6 * 7 = 42 #### 42")
        '42'
    """
    _, marker, answer = text.rpartition("####")
    return answer.strip() if marker else None

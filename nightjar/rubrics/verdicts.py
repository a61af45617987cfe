"""What a judge decided, where its reply says so plainly; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nightjar.errors import JudgeVerdictError
from nightjar.parsers import without_thoughts

_MARKUP = re.compile(r"[*`’']|\\boxed|(?<=\s)-+(?=\s)")
_CLAUSE = re.compile(r"([^.,:;!?\n(){}\[\]/—–\"“”]+)(\??)")
_LEAD = (  # what may stand before a verdict in its clause: no "not"
    r"(?:(?i:so|and|or|therefore|thus|hence|overall|maybe|perhaps|rather|i|would|will|say|choose|give|graded?|the"
    r"|this|that|it|is|was|be|as|my|final|models|answer|response|reply|verdict|letter|option|choice|question)\b\s*)*"
    r"(?:an? )?"
)
_REASON = r"(?:\s+(?:because|since|as|given)\b.*)?"
_TAKES_BACK = re.compile(r"(?i)(?:but|except|however|although|though|if|had|unless|partly|only)\b")
_DOUBT = re.compile(r"(?i)no|not|wait|unsure|hm+")


def the_verdict(reply: str, verdicts: Mapping[str, str], what: str = "verdict") -> str:
    """Returns the one verdict that a judge's reply begins or ends with.

    Args:
        reply: what the judge said; thoughts before ``</think>`` are no part of it.
        verdicts: what it may say, in small letters, and what that means.
        what: such a verdict is called, for the message.

    Raises:
        JudgeVerdictError: a clause at its beginning or end has to be a verdict and nothing else, but for a reason; none
            may be asked, taken back, or be another one.

    Example:
        >>> grades = {"a": "right", "right": "right", "b": "wrong", "not right": "wrong"}
        >>> the_verdict("A: it is right.", grades), the_verdict("The right answer is 5. So it is not right.", grades)
        ('right', 'wrong')
    """
    names = "|".join(sorted(map(re.escape, verdicts), key=len, reverse=True))
    verdict = re.compile(rf"{_LEAD}(?i:({names})){_REASON}")
    plain = _MARKUP.sub(lambda found: ";" if "-" in found[0] else "", without_thoughts(reply).replace("_", " "))
    clauses = [(clause.strip(), mark) for clause, mark in _CLAUSE.findall(plain) if clause.strip()]
    found = [verdict.fullmatch(clause) for clause, _ in clauses]
    is_asked = any(said and mark for said, (_, mark) in zip(found, clauses, strict=True))
    is_taken_back = any(said and _TAKES_BACK.match(after) for said, (after, _) in zip(found, clauses[1:], strict=False))
    is_doubted = is_asked or is_taken_back or any(_DOUBT.fullmatch(clause) for clause, _ in clauses)
    is_said = not is_doubted and any(found[:1] + found[-1:])
    return the_only({verdicts[said[1].lower()] for said in found if said} if is_said else set(), what, reply)


def the_only(found: set[str], what: str, reply: str) -> str:
    """Returns the one verdict that was found in a judge's reply.

    Args:
        found: the verdicts.
        what: such a verdict is called, for the message.
        reply: all that the judge said, for the message.

    Raises:
        JudgeVerdictError: there is none, or more than one.
    """
    if len(found) != 1:
        raise JudgeVerdictError(f"The judge gave {'more than one' if found else 'no'} {what}: {reply[:200]!r}")
    return next(iter(found))

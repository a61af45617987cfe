"""``XMLParser``: answers written between tags, ``<answer>42</answer>``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from nightjar.messages import Messages
from nightjar.parsers.parser import Parser


class XMLParser(Parser):
    """Takes fields out of a text in which each stands between tags of its name.

    Args:
        fields: names of tags, in the order in which they are expected. A tuple names alternatives: any of them is read,
            the first is written.
        answer_field: the field that ``parse_answer`` returns.
        extract_fn: kept as an attribute and, as in verifiers, not applied to fields.

    Raises:
        ValueError: two fields have one name, or a tuple is empty.
        TypeError: a field is neither a text nor a tuple of texts.

    Example:
        >>> parser = XMLParser(["reasoning", ("code", "answer")])
        >>> parser.parse("<reasoning>2 + 2</reasoning><answer> 4 </answer>").answer
        '4'
        >>> print(parser.format(reasoning="2 + 2", code="4"))
        <reasoning>
        2 + 2
        </reasoning>
        <code>
        4
        </code>
    """

    def __init__(
        self,
        fields: Sequence[str | tuple[str, ...]],
        answer_field: str = "answer",
        extract_fn: Callable[[str], Any] = lambda text: text,
    ) -> None:
        super().__init__(extract_fn=extract_fn)
        self.answer_field = answer_field
        self._fields = [_alternatives(field) for field in fields]
        names = self.get_fields()
        if duplicates := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"Duplicate field name: {duplicates[0]}")
        if "think" in names:
            self.logger.warning(
                "The field 'think' is never found where the server or the chat template takes a model's thoughts out, "
                "as with Qwen3 and DeepSeek-R1"
            )

    def parse(self, text: str, strip: bool = True, last: bool = False) -> Any:  # noqa: ARG002 - see the docstring
        """Returns an object with an attribute for every tag; None where the text does not have it.

        Args:
            text: what the model wrote.
            strip: accepted for compatibility; space around a field's content is never part of it.
            last: take the last of several fields of one name, not the first.
        """
        return SimpleNamespace(**{tag: _content(text, tag, last) for tags in self._fields for tag in tags})

    def parse_answer(self, completion: Messages | str) -> Any:
        """Returns the answer field: the last in a text, or the first in the newest message that has one."""
        if isinstance(completion, str):
            return getattr(self.parse(completion, last=True), self.answer_field, None)
        parsed = (self.parse(text) for text in reversed(self.said_texts(completion)))
        answers = (getattr(fields, self.answer_field, None) for fields in parsed)
        return next((answer for answer in answers if answer is not None), None)

    def get_format_str(self) -> str:
        """Returns a description of the format, for prompts."""
        names = [tags[0] if len(tags) == 1 else f"[ {' | '.join(tags)} ]" for tags in self._fields]
        return "\n".join(f"<{name}>\n...\n</{name}>" for name in names)

    def get_format_reward_func(self) -> Callable[..., float]:
        """Returns a reward function for the format, the mean over the model's messages.

        A message earns 0.4 times the share of fields of which a tag is there, if any field can be read; 0.2 where
        it starts with the first field; 0.2 where it ends with the last; and 0.2 in any case.
        """
        return self.mean_over_messages(self._format_score)

    def _format_score(self, text: str) -> float:
        if not self._fields:
            return 0.2
        bare = text.strip()
        is_readable = any(_content(text, tag) is not None for tags in self._fields for tag in tags)
        present = sum(any(f"<{tag}>" in text or f"</{tag}>" in text for tag in tags) for tags in self._fields)
        starts = any(bare.startswith(f"<{tag}>") for tag in self._fields[0])
        ends = any(bare.endswith(f"</{tag}>") for tag in self._fields[-1])
        return 0.4 * is_readable * (present / len(self._fields)) + 0.2 + 0.2 * starts + 0.2 * ends

    def get_fields(self) -> list[str]:
        """Returns the names of the fields, of alternatives the first."""
        return [tags[0] for tags in self._fields]

    def format(self, **kwargs: Any) -> str:
        """Writes fields as the model should.

        Raises:
            ValueError: a field has no value.
        """
        return "\n".join(f"<{tags[0]}>\n{_value(tags, kwargs)}\n</{tags[0]}>" for tags in self._fields)


def _alternatives(field: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(field, str):
        return (field,)
    if not isinstance(field, tuple) or not all(isinstance(name, str) for name in field):
        raise TypeError(f"A field must be a string or a tuple of strings, found {field!r}")
    if not field:
        raise ValueError("Field tuple cannot be empty.")
    return field


def _value(tags: Sequence[str], values: dict[str, Any]) -> Any:
    given = next((values[tag] for tag in tags if tag in values), None)
    if given is None:
        raise ValueError(f"Missing value for field {tags[0]!r} (allowed: {list(tags)})")
    return given


def _content(text: str, tag: str, last: bool = False) -> str | None:
    """Returns what stands between the first tags, or the last; in time that grows with the text's length only."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    content, position = None, 0
    while (start := text.find(opening, position)) >= 0 and (end := text.find(closing, start + len(opening))) >= 0:
        content, position = text[start + len(opening) : end].strip(), end + len(closing)
        if not last:
            break
    return content

"""``Sample`` is a row of lm-eval's samples: what was asked, what the model said, and the scores of one filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nightjar.errors import WarehouseError
from nightjar.importers.reading import Line, is_measure
from nightjar.importers.rollouts import parsed

_FEWEST_CHOICES = 2
_LARGEST_ID = (1 << 63) - 1
_WEIGHTED = ("perplexity", "bits_per_byte")
_PARTS = ("loglikelihood", "weight")
_FIELDS = frozenset(
    {
        "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash",
        "prompt_hash", "target_hash",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A row.

    ``filter`` is empty in rows of old versions. ``requests`` has the arguments of each request: the context and, for a
    log-likelihood, the continuation. ``responses`` has the responses to each request, and ``filtered`` what the filter
    made of them.
    """

    doc_id: int
    filter: str
    doc: Any
    target: Any
    requests: Sequence[Sequence[Any]]
    responses: Sequence[Sequence[Any]]
    filtered: Any
    metrics: Mapping[str, float]

    @classmethod
    def read(cls, line: Line, known: Sequence[str]) -> Sample:
        """Reads a row; raises ``WarehouseError`` for other objects.

        ``known`` are the metrics of the task, for versions whose rows do not name their metrics.
        """
        row = line.content
        doc_id, named, requests = row.get("doc_id"), row.get("metrics"), _requests(row.get("arguments"))
        if not isinstance(doc_id, int) or not 0 <= doc_id <= _LARGEST_ID or not requests:
            raise WarehouseError(f"{line.place} is not a sample of lm-eval: it has no doc_id or no arguments")
        told = named if isinstance(named, list) else known
        if wrong := [name for name in told if isinstance(row.get(name), str)]:
            raise WarehouseError(f"{line.place} is not a sample of lm-eval: its {wrong[0]} is not a number")
        names = told or [name for name in row if name not in _FIELDS]
        return cls(
            doc_id=doc_id,
            filter=str(row.get("filter") or ""),
            doc=row.get("doc"),
            target=row.get("target"),
            requests=requests,
            responses=[one if isinstance(one, list) else [one] for one in _listed(row.get("resps"))],
            filtered=row.get("filtered_resps"),
            metrics=_measured({name: row.get(name) for name in names}),
        )

    def scores_only(self) -> Sample:
        """Returns a copy without texts, except for the filtered responses."""
        return replace(self, doc=None, target=None, requests=(), responses=())

    @property
    def is_generated(self) -> bool:
        """Whether the model wrote a response; otherwise it rated texts."""
        return len(self.requests[0]) > 1 and isinstance(self.requests[0][1], dict)

    def choices(self) -> list[dict[str, Any]]:
        """Returns the choices with their log-likelihoods; none if the task does not choose.

        Requests with another context, for ``acc_mutual_info``, are left out.
        """
        if self.is_generated or len(self.requests) < _FEWEST_CHOICES:
            return []
        rated = zip(self.requests, self.responses, strict=False)
        own = [(request, said[0]) for request, said in rated if said and request[0] == self.requests[0][0]]
        return [
            {"text": str(request[1]).strip(), "loglikelihood": _number(said[0])}
            for request, said in own
            if len(request) > 1 and isinstance(said, list) and said
        ]

    def answer(self) -> Any:
        """Returns the target; in a multiple choice, the text of the right choice instead of its number."""
        choices = self.choices()
        number = _number(self.target)
        is_index = choices and number is not None and number.is_integer() and 0 <= number < len(choices)
        return choices[int(number or 0)]["text"] if is_index else self.target

    def completion(self) -> list[dict[str, Any]] | None:
        """Returns the first response or the likeliest choice; None if the model rated a single text."""
        choices = [one for one in self.choices() if one["loglikelihood"] is not None]
        if choices:
            return [{"role": "assistant", "content": max(choices, key=lambda one: one["loglikelihood"])["text"]}]
        said = self.responses[0][0] if self.is_generated and self.responses and self.responses[0] else None
        return None if said is None else [{"role": "assistant", "content": str(said)}]

    def columns(self) -> dict[str, Any]:
        """Returns the state columns: the choices, and all responses if there are several to a request."""
        choices, is_repeated = self.choices(), any(len(said) > 1 for said in self.responses)
        return {**({"choices": choices} if choices else {}), **({"resps": self.responses} if is_repeated else {})}

    def prompt(self, shots_end: str) -> Any:
        """Returns the messages of a chat, or the text.

        If ``shots_end`` is not empty, it ends the examples of a few-shot prompt: a text is then divided into two
        messages, of which the last asks the question of the document.
        """
        context = self.requests[0][0]
        chat = parsed(context[0]) if isinstance(context, list) and context else parsed(context)
        if isinstance(chat, list):
            return chat
        text = str(context[0]) if isinstance(context, list) and context else str(context)
        end = _start_of_question(text, self.doc, shots_end) if shots_end else 0
        parts = [text[:end], text[end:]] if end else [text]
        return [{"role": "user", "content": part} for part in parts]


def _requests(arguments: Any) -> list[list[Any]]:
    """Returns the arguments of each request, from ``{"gen_args_0": {"arg_0": …}}`` or, in old versions, from lists."""
    if isinstance(arguments, dict):
        arguments = [list(one.values()) for one in arguments.values() if isinstance(one, dict)]
    return [one for one in _listed(arguments) if isinstance(one, list) and one]


def _start_of_question(text: str, doc: Any, shots_end: str) -> int:
    """Returns where the question starts: after the last end of an example before the longest text of the document."""
    there = [one for one in _texts(doc) if one and one in text]
    at = text.rfind(max(there, key=len)) if there else len(text)
    end = text.rfind(shots_end, 0, at)
    return 0 if end < 0 else end + len(shots_end)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _measured(scores: Mapping[str, Any]) -> dict[str, float]:
    """Returns the scores that are numbers, and the two parts of perplexities; other scores are left out."""
    found = {}
    for name, score in scores.items():
        is_pair = isinstance(score, list) and len(score) == len(_PARTS) and all(map(is_measure, score))
        if is_measure(score):
            found[name] = float(score)
        elif is_pair and name.endswith(_WEIGHTED):
            found |= {f"{name}.{part}": float(value) for part, value in zip(_PARTS, score, strict=True)}
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None

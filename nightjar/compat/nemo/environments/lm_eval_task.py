"""Creates the requests for documents of lm-eval's tasks, and scores answers with lm-eval's own code."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from nightjar.core.extras import require_extra
from nightjar.core.messages import TextLogprobs
from nightjar.core.rollout.state import SamplingArgs
from nightjar.errors import ConfigError, DatasetError, UnsupportedTaskTypeError

GENERATED, CHOSEN, ROLLING = "generate_until", "multiple_choice", "loglikelihood_rolling"
_FEWSHOT_SEED = 1234
_MOST_TOKENS = 256
_SHOWN = 8
_COMPILED = 1024
Key: TypeAlias = tuple[str, str]
"""A metric and a filter."""
RAW = "raw"
"""The key in the details of a rollout for the values of metrics that are not means."""
LIKELIHOOD, PER_BYTE = "log_likelihood", "log_likelihood_per_byte"
_PREFERRED = (
    "exact_match", "acc", "em", "score", "bleu", "rouge1", "prompt_level_strict_acc", "prompt_level_loose_acc",
)  # fmt: skip
_WITHOUT_MEAN = {"loglikelihood": LIKELIHOOD, "loglikelihood_rolling": PER_BYTE}
Likelihood: TypeAlias = tuple[float, bool]
"""The natural logarithm of a probability, and whether each token was the most probable one."""
_KEPT = ("extra_body", "extra_headers", "timeout")
_NONE = (
    "The endpoint returns no log-probabilities of a prompt (a completion with 'echo' and 'logprobs'), which this task "
    "of lm-eval needs"
)


@dataclass(frozen=True)
class Problem:
    """The prompt for a document, as text and chat, or the ``requests``: texts whose probabilities are the answer."""

    text: str
    messages: Sequence[dict[str, Any]]
    requests: Sequence[LikelihoodRequest]


class LMEvalTask:
    """A task of lm-eval; ``kind`` is its type of request, such as ``generate_until`` or ``multiple_choice``."""

    def __init__(
        self, name: str, num_fewshot: int | None, limit: float | None, include_path: str | None,
        metric: str | None, begin: str,
    ) -> None:  # fmt: skip
        self.name = name
        self._task = task = _loaded(name, include_path)
        self.kind: str = task.OUTPUT_TYPE
        _refuse(name, task)
        self._shots = _shots(task, num_fewshot)
        task.set_config(key="num_fewshot", value=self._shots)
        task.set_fewshot_seed(seed=_FEWSHOT_SEED)
        self._begin = begin
        self._docs = task.eval_docs
        self._size = len(self._docs) if limit is None else _limited(limit, len(self._docs))
        self._made: list[Problem] = []
        self._making = Lock()
        self.metrics = TaskMetrics(task, metric)

    def __len__(self) -> int:
        return self._size

    @property
    def sampling_args(self) -> SamplingArgs:
        """lm-eval's settings of the task; the default limit is 256 tokens."""
        if self.kind != GENERATED:
            return {}
        own = dict(self._task.config.generation_kwargs or {})
        own.pop("do_sample", None)
        until = own.pop("until", None) or []
        tokens = {name: own.pop(name) for name in ("max_gen_toks", "max_tokens") if name in own}
        stop = {"stop": [until] if isinstance(until, str) else list(until)} if until else {}
        return {"temperature": 0, "max_tokens": [_MOST_TOKENS, *tokens.values()][-1], **stop, **own}

    def problem(self, number: int) -> Problem:
        """Returns the requests for a document. Creates all earlier requests first: examples are drawn in order."""
        if not 0 <= number < self._size:
            raise IndexError(f"idx={number} out of range [0, {self._size})")
        with self._making:
            while len(self._made) <= number:
                self._made.append(self._problem(len(self._made)))
            return self._made[number]

    def target(self, number: int) -> str:
        task, doc = self._task, self._docs[number]
        target = task.doc_to_target(doc)
        if isinstance(target, int) and task.config.doc_to_choice is not None:
            return str(task.doc_to_choice(doc)[target])
        return str(target)

    def columns(self, number: int) -> dict[str, Any]:
        doc = self._docs[number]
        return {n: v for n, v in doc.items() if isinstance(v, str | int | float)} if isinstance(doc, Mapping) else {}

    def score(self, number: int, answers: Sequence[Any]) -> tuple[dict[str, Any], Any]:
        doc, task = self._docs[number], self._task
        make = import_lm_eval("lm_eval.api.instance").Instance
        given = [
            make(
                request_type=self.kind, doc=doc, arguments=(), idx=place, metadata=(self.name, number, 1), resps=[each]
            )
            for place, each in enumerate(answers)
        ]
        for each in task._filters:  # noqa: SLF001 - apply_filters() filters all documents at once
            each.apply(given)
        values: dict[Key, Any] = {}
        for filter_name in self.metrics.filters:
            found = task.process_results(doc, [each.filtered_resps[filter_name] for each in given])
            values |= {(metric, filter_name): value for metric, value in found.items()}
        details = self.metrics.details(values)
        if self.metrics.reward not in details:
            details = {self.metrics.reward: self._likelihood(number, answers[0]), **details}
        if self.kind == CHOSEN:
            choices = task.doc_to_choice(doc)
            return details, choices[max(range(len(choices)), key=lambda place: answers[place][0])]
        return details, given[0].filtered_resps[self.metrics.filter_of_reward]

    def _likelihood(self, number: int, answer: Any) -> float:
        """Returns the reward of a task whose metrics are not means: the log-probability of the text or of each byte."""
        if self.metrics.reward != PER_BYTE:
            return float(answer[0])
        return float(answer) / max(1, len(self.target(number).encode()))

    def _problem(self, number: int) -> Problem:
        doc, sampler = self._docs[number], getattr(self._task, "sampler", None)
        drawn = None if sampler is None else sampler.rnd.getstate()
        text = self._context(doc)
        instances = self._task.construct_requests(doc=doc, ctx=text, metadata=(self.name, number, 1))
        instances = instances if isinstance(instances, list) else [instances]
        kinds = {each.request_type for each in instances}
        if kinds == {GENERATED}:
            if drawn is not None and sampler is not None:
                sampler.rnd.setstate(drawn)
            messages = self._context(
                doc, apply_chat_template=True, fewshot_as_multiturn=True, chat_template=_as_messages
            )
            return Problem(text, messages, ())
        if GENERATED in kinds:
            raise UnsupportedTaskTypeError(f"Task {self.name!r} of lm-eval requests both texts and probabilities")
        pairs = [("", each.args[0]) if kinds == {ROLLING} else each.args[:2] for each in instances]
        requests = [LikelihoodRequest.of(context, text, self._begin) for context, text in pairs]
        return Problem(pairs[0][0] or pairs[0][1], (), requests)

    def _context(self, doc: Any, **how: Any) -> Any:
        prefix = self._task.doc_to_prefix(doc)
        return self._task.fewshot_context(doc, num_fewshot=self._shots, gen_prefix=prefix, **how)


def list_tasks(include_path: str | None = None) -> list[str]:
    return list(_tasks(include_path, has_defaults=True).all_subtasks)


@lru_cache(maxsize=4)
def _tasks(include_path: str | None, *, has_defaults: bool) -> Any:
    """Returns lm-eval's task manager; reading its 14,000 files takes 5 s."""
    if include_path is not None and not Path(include_path).is_dir():
        raise ConfigError(f"include_path: the folder {include_path!r} does not exist")
    templates = getattr(import_lm_eval("lm_eval.utils"), "env", None)
    if templates is not None and not hasattr(templates.from_string, "cache_info"):
        # lm-eval compiles its templates anew for each field of each document, which takes 90 % of the time
        templates.from_string = lru_cache(_COMPILED)(templates.from_string)
    return import_lm_eval("lm_eval.tasks").TaskManager(include_path=include_path, include_defaults=has_defaults)


def _loaded(name: str, include_path: str | None) -> Any:
    manager = _tasks(include_path, has_defaults=False) if include_path else None
    if manager is None or name not in manager.task_index:
        manager = _tasks(include_path, has_defaults=True)
    entry = manager.task_index.get(name)
    if entry is None:
        near = ", ".join(difflib.get_close_matches(name, manager.all_subtasks, n=_SHOWN))
        raise ConfigError(
            f"lm-eval has no task {name!r}. {near and f'Near: {near}. '}See 'nightjar list --source lm-eval'; "
            "include_path=FOLDER adds tasks of your own"
        )
    if name not in manager.all_subtasks:
        raise UnsupportedTaskTypeError(
            f"{name!r} of lm-eval is a group of tasks. Run its tasks one by one or in a suite: {_members(entry)}"
        )
    try:
        [task] = manager.load([name])["tasks"].values()
    except Exception as error:
        raise DatasetError(f"lm-eval cannot load task {name!r}: {type(error).__name__}: {error}") from error
    return task


def _members(entry: Any) -> str:
    listed = (entry.cfg or {}).get("task") or sorted(entry.tags)
    names = [each if isinstance(each, str) else str(each.get("task") or each.get("group")) for each in listed]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _refuse(name: str, task: Any) -> None:
    problem = None
    if getattr(task, "MULTIMODAL", False):
        problem = "has images or sounds, which are not supported"
    elif getattr(task, "UNSAFE_CODE", False):
        problem = "runs the model's code in this process. Nightjar's own humaneval uses a sandbox"
    elif task.OUTPUT_TYPE == GENERATED and (task.config.repeats or 1) > 1:
        problem = f"scores {task.config.repeats} answers to a question together (repeats), which is not supported"
    if problem is not None:
        raise UnsupportedTaskTypeError(f"Task {name!r} of lm-eval {problem}")


def _shots(task: Any, wanted: int | None) -> int:
    own = task.config.num_fewshot
    return int(own or 0) if wanted is None or own == 0 else wanted


def _limited(limit: float, size: int) -> int:
    return min(size, math.ceil(size * limit) if limit < 1 else int(limit))


def _as_messages(messages: list[dict[str, Any]], add_generation_prompt: bool = True) -> list[dict[str, Any]]:  # noqa: ARG001
    return messages


class TaskMetrics:
    """The metrics of a task; ``reward`` is the name of the metric that is the reward."""

    def __init__(self, task: Any, wanted: str | None) -> None:
        self._mean = import_lm_eval("lm_eval.api.metrics").mean
        self._how: Mapping[str, Any] = task.aggregation()
        self.filters = [each.name for each in task._filters]  # noqa: SLF001 - lm-eval has no other way
        self.reward = self._reward(task, wanted)

    @property
    def filter_of_reward(self) -> str:
        return self.reward.partition(",")[2] or self.filters[0]

    def name(self, key: Key) -> str:
        """Returns the name of a metric as in lm-eval, without the filter if the task has only one."""
        metric, filter_name = key
        return metric if len(self.filters) == 1 else f"{metric},{filter_name}"

    def details(self, values: Mapping[Key, Any]) -> dict[str, Any]:
        """Returns a document's values as scoring details; values other than means go to ``raw``, never averaged."""
        means = {self.name(key): _plain(value) for key, value in values.items() if self._is_mean(key[0])}
        others = {self.name(key): _plain(value) for key, value in values.items() if not self._is_mean(key[0])}
        return {**means, **({RAW: others} if others else {})}

    def totals(self, details: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        values: dict[str, list[Any]] = defaultdict(list)
        for each in details:
            for name, value in {**each, **(each.get(RAW) or {})}.items():
                values[name].append(tuple(value) if isinstance(value, list) else value)
        metrics = {name: name.partition(",")[0] for name in values}
        return {name: float(self._how[metric](values[name])) for name, metric in metrics.items() if metric in self._how}

    def _is_mean(self, metric: str) -> bool:
        return self._how.get(metric, self._mean) is self._mean

    def _reward(self, task: Any, wanted: str | None) -> str:
        better = task.higher_is_better()
        means = [metric for metric in self._how if self._is_mean(metric) and better.get(metric, True) is not False]
        keys = [(metric, each) for metric in means for each in self.filters]
        if wanted is not None:
            return self.name(_wanted(wanted, keys))
        first = sorted(means, key=lambda metric: _PREFERRED.index(metric) if metric in _PREFERRED else len(_PREFERRED))
        if first:
            return self.name((first[0], self.filters[0]))
        if task.OUTPUT_TYPE in _WITHOUT_MEAN:
            return _WITHOUT_MEAN[task.OUTPUT_TYPE]
        kinds = ", ".join(f"{name} ({getattr(how, '__name__', how)})" for name, how in self._how.items())
        raise UnsupportedTaskTypeError(
            f"Task {task.task_name!r} of lm-eval has no metric that can be the reward, which must be a mean over "
            f"documents and higher if better: {kinds}"
        )


def _wanted(name: str, keys: Sequence[Key]) -> Key:
    for key in keys:
        if name in {key[0], ",".join(key)}:
            return key
    names = ", ".join(",".join(key) for key in keys) or "none"
    raise ConfigError(f"No metric {name!r} can be the reward. Choose one of: {names}")


def import_lm_eval(module: str) -> Any:
    return require_extra(module, "lm-eval", "lm-eval://")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


@dataclass(frozen=True, slots=True)
class LikelihoodRequest:
    """A request for a probability. As in lm-eval, trailing spaces of the context belong to the continuation."""

    context: str
    continuation: str

    @classmethod
    def of(cls, context: str, continuation: str, begin: str = "") -> LikelihoodRequest:
        """Returns the request for a text; ``begin`` precedes a text without context."""
        if not context:
            return cls(begin, continuation)
        cut = context.rstrip()
        return cls(cut, context[len(cut) :] + continuation)

    @property
    def prompt(self) -> str:
        return self.context + self.continuation


def sampling_args_of(own: Mapping[str, Any]) -> SamplingArgs:
    """Returns the sampling arguments of a likelihood request, with the run's settings of the connection."""
    kept = {name: own[name] for name in _KEPT if own.get(name)}
    return {**kept, "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True}


def likelihood_of(logprobs: TextLogprobs | None, request: LikelihoodRequest) -> Likelihood:
    """Returns the probability of a continuation from the endpoint's response.

    The endpoint generates one token at the end, and the continuation is counted back from this token: some endpoints
    put a begin token before the prompt. A token that overlaps the context belongs to the continuation.
    """
    if logprobs is None or logprobs.top_logprobs is None or logprobs.text_offset[-1:] < [len(request.prompt)]:
        raise ConfigError(_NONE)
    first = logprobs.text_offset[-1] - len(request.continuation)
    counted = [place for place, end in enumerate(logprobs.text_offset[1:]) if end > first]
    values = [logprobs.token_logprobs[place] for place in counted]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        raise ConfigError(
            "The endpoint returns no log-probability of the first token of a text. Set the text before texts "
            "without context, usually the model's begin token: lm-eval://TASK?begin=TEXT"
        )
    tops = [logprobs.top_logprobs[place] or {} for place in counted]
    return sum(known), all(value == max(top.values()) for value, top in zip(known, tops, strict=True))

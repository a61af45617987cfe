"""Reads results of lm-eval, the harness of EleutherAI, version 0.4: the samples of a task and the results file.

A sample of version 0.4.13::

    {"doc_id": 0, "doc": {"question": "2+2?", "answer": "#### 4"}, "target": "#### 4",
     "arguments": {"gen_args_0": {"arg_0": "Question: 2+2? Answer:", "arg_1": {"until": ["Question:"]}}},
     "resps": [["It is 4."]], "filtered_resps": ["4"], "filter": "flexible-extract",
     "metrics": ["exact_match"], "exact_match": 1.0}

- A task is a run and a document is an example with one rollout. A document has a row for each filter; all filters are
  metrics of one rollout: ``exact_match,strict-match``. Without filters, a metric has its own name.
- The reward is the first metric of the task's first filter, in the order of the task's configuration.
- In a multiple choice, each choice is a request with a log-likelihood. The completion is the likeliest choice, the
  answer is the text of the right choice, and all choices are the state column ``choices``.
- Perplexities have no score per sample, only a log-likelihood and the number of words or bytes: these are the metrics
  ``word_perplexity.loglikelihood`` and ``word_perplexity.weight``, and the log-likelihood is the reward.
- A few-shot prompt of one text becomes two messages, the last of which asks the question of the document.
- Scores, standard errors and groups of lm-eval are kept under ``original``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from nightjar.engine.runs import RunMetadata
from nightjar.errors import WarehouseError
from nightjar.importers.discovery import FoundResults
from nightjar.importers.lm_eval_files import results_of, task_of
from nightjar.importers.lm_eval_samples import Sample
from nightjar.importers.reading import (
    Lenient,
    Object,
    as_object,
    moment,
    public_url,
    read_object,
    readable_lines,
    told_unreadable,
    without_secrets,
)
from nightjar.importers.rollouts import ResultsWriter, Rollout, digest

_THRESHOLD = 0.5
_NO_FILTER = "none"
_ARGUMENTS = ("limit", "system_instruction", "fewshot_as_multiturn", "chat_template_sha")


class _Results(Lenient):
    results: Object
    configs: Object
    versions: Object
    config: Object
    groups: Object
    group_subtasks: Object
    higher_is_better: Object
    n_shot: Object
    date: float | None = None
    model_name: str = ""
    lm_eval_version: str | None = None
    git_hash: str | None = None
    total_evaluation_time_seconds: float | None = None

    def of(self, task: str, name: str) -> dict[str, Any]:
        found = getattr(self, name).get(task)
        return found if isinstance(found, dict) else {}


def read(found: FoundResults, results: ResultsWriter) -> RunMetadata:
    """Writes the rollouts of a task and returns its metadata. Raises ``WarehouseError`` if there are no samples.

    The run id is a digest of model, task and start; without a results file, of the samples.
    """
    task, results_file = task_of(found.path), results_of(found.path)
    if task is None:
        raise WarehouseError(
            f"{str(found.path)!r} has scores of lm-eval, but no file of samples beside it: nothing can be imported. "
            "Run lm_eval with --log_samples, and keep its files in one folder"
        )
    content = read_object(results_file) if results_file else {}
    header = _Results.model_validate({**content, "n_shot": content.get("n-shot")})
    unreadable: list[str] = []
    samples = _Samples(found.path, header.of(task, "configs"), unreadable)
    for line in samples.lines():
        results.add(samples.rollout(line))
    if not len(results):
        raise WarehouseError(f"{str(found.path)!r} has no sample" + "".join(f"; {one}" for one in unreadable[:1]))
    results.finish()
    scores = header.of(task, "results")
    mean = scores.get(f"{samples.reward},{samples.filter}")
    if samples.reward and isinstance(mean, float | int) and not samples.is_weighted:
        results.compare_average(found.path, mean)
    arguments = _arguments(header.config.get("model_args"))
    started = moment(header.date)
    took = header.total_evaluation_time_seconds
    groups = [name for name, members in header.group_subtasks.items() if isinstance(members, list) and task in members]
    identity = [header.model_name, task, header.date] if header.date else results.content_hash()
    return RunMetadata(
        run_id=f"lm-eval-{digest(identity)}",
        env_id=task,
        env_args=without_secrets(_env_args(header, content, task)),
        env_version=None if header.versions.get(task) is None else str(header.versions[task]),
        model=header.model_name or arguments.get("pretrained") or arguments.get("model") or None,
        base_url=public_url(str(arguments.get("base_url") or "")) or None,
        num_examples=0,
        rollouts_per_example=1,
        sampling_args=without_secrets(
            {
                **as_object(header.of(task, "configs").get("generation_kwargs")),
                **as_object(header.config.get("gen_kwargs")),
            }
        ),
        pass_threshold=_THRESHOLD,
        version_info=_known(lm_eval_version=header.lm_eval_version, lm_eval_commit=header.git_hash),
        started_at=started,
        finished_at=started + timedelta(seconds=took) if started and took else None,
        time_ms=None if took is None else round(took * 1000),
        tags=groups,
        original={
            "program": "lm-eval",
            "reward": samples.name,
            "scores": scores,
            "higher_is_better": header.of(task, "higher_is_better"),
            "groups": {name: header.groups[name] for name in groups if name in header.groups},
            **told_unreadable(unreadable),
        },
    )


class _Samples:
    """The samples of a task; a document has one row for each filter."""

    def __init__(self, path: Path, config: Mapping[str, Any], unreadable: list[str]) -> None:
        self._path, self._config, self._unreadable = path, config, unreadable
        self._others: defaultdict[int, dict[str, Sample]] = defaultdict(dict)
        self.filter, self.reward, self.is_weighted = "", "", False
        self._has_filters = False
        self._metrics = _names(config.get("metric_list"), "metric")
        self._known_filters = _names(config.get("filter_list"), "name")
        self._shots_end = str(config.get("fewshot_delimiter") or "\n\n") if config.get("num_fewshot") else ""

    @property
    def name(self) -> str:
        return self._called(self.reward, self.filter)

    def lines(self) -> Iterator[Sample]:
        """Yields the samples of the first filter, and keeps the scores of other filters by document."""
        filters = self._filters()
        self.filter, self._has_filters = filters[0] if filters else _NO_FILTER, len(filters) > 1
        if self._has_filters:
            for sample in self._read([]):
                if sample.filter != self.filter:
                    self._others[sample.doc_id][sample.filter] = sample.scores_only()
        for sample in self._read(self._unreadable):
            if sample.filter == self.filter:
                yield sample

    def _filters(self) -> list[str]:
        """Returns the filters of the samples in the order of the task's configuration."""
        samples = self._read([])
        if self._config and len(self._known_filters) <= 1:
            return [sample.filter for sample in islice(samples, 1)]
        found, known = list(dict.fromkeys(sample.filter for sample in samples)), self._known_filters
        return sorted(found, key=lambda name: known.index(name) if name in known else len(known))

    def _read(self, unreadable: list[str]) -> Iterator[Sample]:
        """Yields all rows. If rows do not name their filter, the rows of a document are in the order of the filters."""
        times: Counter[int] = Counter()
        for line in readable_lines(self._path, unreadable):
            try:
                sample = Sample.read(line, self._metrics)
            except WarehouseError as error:
                unreadable.append(str(error))
                continue
            if not sample.filter:
                times[sample.doc_id] += 1
                names = self._known_filters[: times[sample.doc_id]] or [_NO_FILTER]
                sample = replace(sample, filter=names[-1])
            yield sample

    def rollout(self, sample: Sample) -> Rollout:
        samples = {self.filter: sample, **self._others.pop(sample.doc_id, {})}
        metrics = {
            self._called(name, filtered): value
            for filtered, one in samples.items()
            for name, value in one.metrics.items()
        }
        self._choose_reward(sample)
        responses = {name: one.filtered for name, one in samples.items() if one.filtered is not None}
        return Rollout.model_validate(
            {
                "example_id": sample.doc_id,
                "prompt": sample.prompt(self._shots_end),
                "completion": sample.completion(),
                "answer": sample.answer(),
                "info": sample.doc,
                "reward": sample.metrics.get(self.reward),
                "metrics": metrics,
                "timing": {"generation_ms": None, "scoring_ms": None, "total_ms": None},
                "is_completed": True,
                **sample.columns(),
                **({"filtered_resps": responses} if responses else {}),
            }
        )

    def _choose_reward(self, sample: Sample) -> None:
        if not self.reward and sample.metrics:
            listed = [name for name in sample.metrics if name.partition(".")[0] in self._metrics[:1]]
            self.reward = (listed or list(sample.metrics))[0]
            self.is_weighted = self.reward.endswith(".loglikelihood")

    def _called(self, metric: str, filtered: str) -> str:
        return f"{metric},{filtered}" if self._has_filters else metric


def _names(listed: Any, key: str) -> list[str]:
    return [str(one[key]) for one in listed if isinstance(one, dict) and key in one] if isinstance(listed, list) else []


def _env_args(header: _Results, content: Mapping[str, Any], task: str) -> dict[str, Any]:
    told = {name: content.get(name, header.config.get(name)) for name in _ARGUMENTS}
    config = header.of(task, "configs")
    return _known(num_fewshot=header.n_shot.get(task, config.get("num_fewshot")), **told)


def _arguments(given: Any) -> dict[str, Any]:
    """Returns the arguments of the model, which old versions wrote as a text."""
    if isinstance(given, str):
        return dict(one.split("=", 1) for one in given.split(",") if "=" in one)
    return as_object(given)


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

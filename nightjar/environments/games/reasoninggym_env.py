"""``ReasoningGymEnv``: problems created and scored by reasoning-gym. Needs the extra ``reasoning-gym``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from nightjar.core.extras import import_extra
from nightjar.core.messages import Messages
from nightjar.environments.games.episodes import made_datasets, overridden, splits
from nightjar.environments.multiturn import SingleTurnEnv
from nightjar.environments.parsers import Parser, XMLParser
from nightjar.environments.rubrics import Rubric

if TYPE_CHECKING:
    from datasets import Dataset


def __getattr__(name: str) -> Any:
    """Provides reasoning-gym's ``DEFAULT_SYSTEM_PROMPT``, and imports the package only when the prompt is used."""
    if name == "DEFAULT_SYSTEM_PROMPT":
        return _import("reasoning_gym.utils").SYSTEM_PROMPTS["default"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ReasoningGymEnv(SingleTurnEnv):
    """Asks problems from one generator of reasoning-gym, or from a mixture of generators.

    An example's ``answer`` is its index in the generator, which creates the problem and scores the model's answer.
    The metric ``check_answer_reward_func`` is the reward; ``format_reward_func`` scores the format of the reply.

    Args:
        gym: a generator's name, or a list of names and of dicts with ``name``, ``weight`` and ``config``.
        system_prompt: by default reasoning-gym's prompt; None means no system prompt.

    Example:
        >>> env = ReasoningGymEnv("leg_counting", num_eval_examples=2)  # doctest: +SKIP
    """

    def __init__(
        self,
        gym: str | Sequence[str | dict[str, Any]],
        num_train_examples: int = 1000,
        num_eval_examples: int = 100,
        system_prompt: str | EllipsisType | None = ...,
        parser: Parser | None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.gym = gym
        self.num_train_examples = num_train_examples
        self.num_eval_examples = num_eval_examples
        self.seed = seed
        self.rg_dataset = self.build_rg_dataset(gym, num_train_examples + num_eval_examples, seed=seed)
        parser = parser or XMLParser(fields=["answer"])
        own = overridden(self, "rg_to_hf", ReasoningGymEnv)
        rows = partial(_rows, self.rg_dataset)
        super().__init__(
            **splits(rows, num_train_examples, num_eval_examples, own and partial(own, self.rg_dataset)),
            system_prompt=__getattr__("DEFAULT_SYSTEM_PROMPT") if system_prompt is ... else system_prompt,
            parser=parser,
            rubric=self._build_rubric(parser),
            **kwargs,
        )

    def _build_rubric(self, parser: Parser) -> Rubric:
        rubric = Rubric(parser=parser)

        def check_answer_reward_func(completion: Messages, answer: str) -> float:
            found = parser.parse_answer(completion)
            if found is None:
                return 0.0
            score: float = self.rg_dataset.score_answer(answer=str(found).strip(), entry=self.rg_dataset[int(answer)])
            return score

        rubric.add_reward_func(check_answer_reward_func)
        rubric.add_metric(parser.get_format_reward_func())
        return rubric

    def build_rg_dataset(
        self, gym: str | Sequence[str | dict[str, Any]], total_examples: int = 1000, seed: int = 0
    ) -> Any:
        """Returns the generator of ``total_examples`` problems."""
        create = _import("reasoning_gym").create_dataset
        if isinstance(gym, str):
            return create(gym, size=total_examples, seed=seed)
        spec = _import("reasoning_gym.composite").DatasetSpec
        specs = [spec(**_fields(item)) for item in gym]
        return create("composite", datasets=specs, size=total_examples, seed=seed)

    def rg_to_hf(self, rg_dataset: Any) -> tuple[Dataset, Dataset | None]:
        """Returns the training and evaluation datasets."""
        return made_datasets(partial(_rows, rg_dataset), self.num_train_examples, self.num_eval_examples)


def _import(module: str) -> Any:
    return import_extra(module, "reasoning-gym", "ReasoningGymEnv")


def _fields(item: str | dict[str, Any]) -> dict[str, Any]:
    named = {"name": item} if isinstance(item, str) else item
    if not isinstance(named, dict):
        raise ValueError(  # noqa: TRY004 - what programs expect
            f"Invalid dataset config: {item!r}: expected a name, or a dict with name, weight and config"
        )
    return {"weight": 1.0, "config": {}, **named}


def _rows(rg_dataset: Any, indexes: range) -> list[dict[str, Any]]:
    rows = []
    for index in indexes:
        problem = rg_dataset[index]
        info = {"source_dataset": problem["metadata"]["source_dataset"]}
        rows.append({"question": problem["question"], "answer": str(index), "info": info})
    return rows

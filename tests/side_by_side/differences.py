"""Where Nightjar differs from verifiers 0.1.14 on purpose, and why: everything else has to be equal.

Rows are called by their example (``rows.2`` is example 2), ``*`` stands for anything. A line that is not needed
makes the tests fail as a missing one does.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from comparing import ABSENT, ANYTHING, compare, is_value


@dataclass(frozen=True)
class Difference:
    """An intended difference, or several alike; ``path`` is, for example, ``rows.0.metrics.correct``."""

    case: str
    path: str
    original: Any
    nightjar: Any
    reason: str

    def covers(self, case, found):
        return (
            fnmatchcase(case, self.case)
            and fnmatchcase(found.path, self.path)
            and is_value(found.original, self.original)
            and is_value(found.nightjar, self.nightjar)
        )


NOT_SCORED = "A rollout that failed has no reward and no metrics; the original scores it all the same"
RAISED = "A reward function that raises makes the rollout an error; the original takes 0 for its score"
NAMED = "EnvGroup takes 'names' as the documentation says; the original ignores it"
ALONE = "A rollout that is scored by itself has the advantage 0; the original gives it none"
ALL_ENVIRONMENTS = "A group evaluates every environment, on its training data if need be; the original leaves those out"
BUILT = "An environment that asks for its training data gets them; the original says None until they are built"
MEANT = "The advantage is the reward less the group's mean; the original ends with that of its own metric, 0"
OVER_SCORED = "Averages are over the rollouts that have a score"
ALL_OF_IT = "A step without its own reward gets the rollout's; the original gives it the first rubric's part, or none"
AFTER_THE_END = "A gym environment that has ended gives a step nothing; the original gives it the rollout's reward"
DISTINCT = "Two reward functions of one name are two metrics; the original keeps the last one, or the sum"
OVERWRITTEN = "A reward function called 'reward' does not overwrite the rollout's reward"
UNFLATTENED = "Metrics are in 'metrics' alone, where they cannot overwrite a field of the row"
OWN_WORDS = "The original's message to the model names a function of its own; it is as long as it is"
MAYBE_AWAIT = "verifiers.utils.async_utils.maybe_await() argument after ** must be a mapping, not list"
ASKED = "The judge is told the question; the original leaves it out, because it knows messages as dicts only"
NO_HASHES = "Without '####' there is no answer, None, as the documentation says; the original returns the whole text"
UNSCORED = "A rollout that is not scored has no reward; the original gives it 0"

Both = tuple[Any, Any]
"""What the original gives, and what Nightjar gives."""


def failed(case: str, examples: str, reason: str = NOT_SCORED, steps_of: str = "") -> list[Difference]:
    """Returns the differences in rollouts with an error; ``steps_of``: the examples with steps, if not all."""
    rows, steps = f"rows.{examples}", f"rows.{steps_of or examples}.steps.*"
    return [
        Difference(case, f"{rows}.reward", ANYTHING, None, reason),
        Difference(case, f"{rows}.advantage", 0.0, None, reason),
        Difference(case, f"{rows}.metrics.*", ANYTHING, ABSENT, reason),
        Difference(case, f"{rows}.metrics_beside_the_rest.*", ANYTHING, ABSENT, reason),
        Difference(case, f"{steps}.reward", ANYTHING, None, reason),
        Difference(case, f"{steps}.advantage", 0.0, None, reason),
    ]


def averages(case: str, reason: str, **values: Both) -> list[Difference]:
    """Returns different averages, by the name in the metadata or that of the metric."""
    own = {"avg_reward", "avg_error"}
    return [
        Difference(case, f"metadata.{name if name in own else f'avg_metrics.{name}'}", original, nightjar, reason)
        for name, (original, nightjar) in values.items()
    ]


def pass_curves(case: str, reason: str, original: Any, nightjar: Any) -> list[Difference]:
    """Returns pass@k and pass^k that are different in the same way for each k."""
    return [Difference(case, f"metadata.pass_*_k.{k}", original, nightjar, reason) for k in (1, 2)]


def ended(stop_on: str, example: str, scored: int, **counts: float) -> list[Difference]:
    """Returns the differences where ``strict_tools`` stops on an error; the counts are of the rollouts with a score."""
    case, original = f"strict_tools-{stop_on}", {"greet": 3 / 6, "shout": 1 / 6, "charge": 2 / 6, "total_tool": 7 / 6}
    calls = {f"{tool}_calls": (original[tool], count / scored) for tool, count in counts.items()}
    return [*failed(case, example), *averages(case, OVER_SCORED, **calls)]


DIFFERENCES = [
    Difference("*", "rows.*.metrics_beside_the_rest.*", ANYTHING, None, UNFLATTENED),
    *failed("failures", "[1-5]", steps_of="[2-4]"),
    *averages("failures", OVER_SCORED, messages_said=(1.0, 3.0), num_turns=(5 / 6, 2.0), avg_reward=(1.0, 3.0)),
    *pass_curves("failures", OVER_SCORED, 4 / 6, 1.0),
    *ended("value", "[12]", 4, greet=1, shout=1, charge=2, total_tool=5),
    *averages("strict_tools-value", OVER_SCORED, num_turns=(11 / 6, 9 / 4)),
    *ended("json", "2", 5, greet=2, shout=1, charge=2, total_tool=6),
    *averages("strict_tools-json", OVER_SCORED, num_turns=(12 / 6, 11 / 5)),
    *ended("key", "4", 5, greet=3, shout=1, charge=2, total_tool=6),
    *averages("strict_tools-key", OVER_SCORED, num_turns=(12 / 6, 11 / 5)),
    *ended("infra", "5", 5, greet=3, shout=1, charge=0, total_tool=5),
    *failed("raising_rewards", "1", RAISED),
    *averages("raising_rewards", OVER_SCORED, closeness=(0.5, 1.0), avg_reward=(1.0, 1.5)),
    *averages("raising_rewards", RAISED, avg_error=(0.0, 0.5)),
    Difference("raising_rewards", "rows.1.error", None, "ScoringError -> ValueError", RAISED),
    Difference("single_turn-independent", "rows.0.steps.0.reward", None, 3.35, ALL_OF_IT),
    Difference("single_turn-independent", "rows.1.steps.0.reward", None, 3.8, ALL_OF_IT),
    Difference("single_turn-independent", "rows.2.steps.0.reward", None, 2.25, ALL_OF_IT),
    Difference("single_turn-independent", "*.advantage", None, 0.0, ALONE),
    Difference("rubric_groups-two", "*.advantage", None, 0.0, ALONE),
    Difference("rubric_groups", "rows.0.steps.0.reward", 1.5, 1.79, ALL_OF_IT),
    Difference("rubric_groups", "rows.1.steps.0.reward", 0.5, 0.79, ALL_OF_IT),
    Difference("rubric_groups-two", "rows.0.steps.0.reward", None, 1.59, ALL_OF_IT),
    Difference("rubric_groups-two", "rows.1.steps.0.reward", None, 0.59, ALL_OF_IT),
    Difference("rubric_classes", "rows.1.steps.0.reward", 0.04, -0.46, ALL_OF_IT),
    Difference("same_names-two_rubrics", "rows.0.steps.0.reward", 1.0, 1.5, ALL_OF_IT),
    Difference("same_names-two_rubrics", "rows.1.steps.0.reward", 0.0, 0.5, ALL_OF_IT),
    *[
        Difference("group_rewards", f"rows.{example}{suffix}.advantage", 0.0, reward - mean, MEANT)
        for example, mean, rewards in ((0, 1.4125, (1.25, 1.275, 1.3, 1.825)), (1, 0.2, (0.0, 0.05, 0.1, 0.65)))
        for suffix, reward in zip(("", "-2", "-3", "-4"), rewards, strict=True)
    ],
    Difference("gym_counter*", "rows.*.steps.2.reward", ANYTHING, 0.0, AFTER_THE_END),
    Difference("gym_counter", "rows.[45].steps.1.reward", 1.0, 0.0, AFTER_THE_END),
    *averages("same_names", DISTINCT, found=(1.0, 0.5), found_2=(ABSENT, 1.0)),
    Difference("same_names", "rows.1.metrics.found", 1.0, 0.0, DISTINCT),
    Difference("same_names", "rows.*.metrics.found_2", ABSENT, 1.0, DISTINCT),
    *averages("same_names-two_rubrics", DISTINCT, found=(1.5, 0.5), found_2=(ABSENT, 1.0)),
    Difference("same_names-two_rubrics", "rows.0.metrics.found", 2.0, 1.0, DISTINCT),
    Difference("same_names-two_rubrics", "rows.1.metrics.found", 1.0, 0.0, DISTINCT),
    Difference("same_names-two_rubrics", "rows.*.metrics.found_2", ABSENT, 1.0, DISTINCT),
    Difference("same_names-reward", "rows.0.reward", 1.0, 1.25, OVERWRITTEN),
    Difference("same_names-reward", "rows.1.reward", 1.0, 0.25, OVERWRITTEN),
    Difference("same_names-reward", "rows.0.metrics_beside_the_rest.reward", 1.0, 1.25, OVERWRITTEN),
    Difference("same_names-reward", "rows.1.metrics_beside_the_rest.reward", 1.0, 0.25, OVERWRITTEN),
    *averages("same_names-reward", OVERWRITTEN, avg_reward=(1.0, 0.75)),
    *pass_curves("same_names-reward", OVERWRITTEN, 1.0, 0.5),
    *averages("judged", ASKED, judge_saw_the_question=(0.0, 1.0)),
    *averages("judged-own_words", ASKED, judge_saw_the_question=(0.0, 1.0)),
    Difference("judged*", "rows.*.metrics.judge_saw_the_question", 0.0, 1.0, ASKED),
    Difference("mixture-loaded", "rows.[4-7].*", ABSENT, ANYTHING, ALL_ENVIRONMENTS),
    Difference("mixture-loaded", "shuffled.*", ANYTHING, ANYTHING, ALL_ENVIRONMENTS),
    Difference("mixture-loaded", "metadata.num_examples", 4, 8, ALL_ENVIRONMENTS),
    *averages("mixture-loaded", ALL_ENVIRONMENTS, avg_reward=(1.0, 0.8), num_turns=(1.0, 2.0)),
    *averages("mixture-loaded", ALL_ENVIRONMENTS, found=(ABSENT, 0.5), turns_saved=(ABSENT, 1.0)),
    *pass_curves("mixture-loaded", ALL_ENVIRONMENTS, 1.0, 0.75),
    Difference("mixture-names", "*.[01].info.env_id", "env_0", "sums", NAMED),
    Difference("mixture-names", "*.[23].info.env_id", "env_1", "manners", NAMED),
    *[
        Difference("tools*", path, MAYBE_AWAIT, "Expected tool arguments to be a dict, got list: [1, 2]", OWN_WORDS)
        for path in ("rows.7.completion.1.content", "rows.7.steps.1.prompt.2.content")
    ],
    Difference("tools*", "rows.7.token_usage.input_tokens", 31, 32, OWN_WORDS),
    Difference("tools*", "rows.7.token_usage.final_input_tokens", 19, 20, OWN_WORDS),
    Difference("helper_functions", "rows.0.metrics.characters_after_hashes", 9, -1, NO_HASHES),
    Difference("helper_functions", "rows.1.metrics.characters_after_hashes", 28, -1, NO_HASHES),
    Difference("helper_functions", "rows.2.metrics.characters_after_hashes", 24, -1, NO_HASHES),
    *averages("helper_functions", NO_HASHES, characters_after_hashes=(15.75, -0.25)),
    Difference("two_datasets-builders", "rows.*.state.rows.0", 4, 2, BUILT),
    Difference("two_datasets-builders", "rows.*.state.rows.1", ABSENT, 4, BUILT),
    Difference("unscored", "rows.0.reward", 0.0, None, UNSCORED),
    *averages("unscored", UNSCORED, avg_reward=(0.0, None)),
    *pass_curves("unscored", UNSCORED, 0.0, ABSENT),
]


def unexpected(case, original, nightjar):
    """Returns the differences between two outcomes that are not in the table."""
    return [found for found in compare(original, nightjar) if not covering(case, found)]


def covering(case, found):
    return [difference for difference in DIFFERENCES if difference.covers(case, found)]

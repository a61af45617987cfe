"""Conversations of a given length, for the benchmark: with tools, or with an environment that answers."""

import nightjar as vf


def step(number: int) -> int:
    """Returns the number after this one.

    Args:
        number: any number.
    """
    return number + 1


async def is_done(completion) -> float:
    return float(completion[-1]["content"] == "done")


class Talk(vf.MultiTurnEnv):
    @vf.stop
    async def said_done(self, state) -> bool:
        return bool(state["trajectory"]) and state["trajectory"][-1]["completion"][-1]["content"] == "done"

    async def env_response(self, messages, state, **kwargs):
        """Asks to go on."""
        return [vf.UserMessage(content=f"Go on, after {len(messages)} messages.")]


def load_environment(num_examples: int = 1000, turns: int = 5, calls: int = 2) -> vf.Environment:
    """Loads conversations of ``turns`` model calls, with ``calls`` tool calls in every turn but the last."""
    rows = [{"question": f"{turns} turns, {calls} calls, number {number}"} for number in range(num_examples)]
    rubric = vf.Rubric(funcs=[is_done])
    if calls == 0:
        return Talk(dataset=rows, rubric=rubric, max_turns=-1)
    return vf.ToolEnv(dataset=rows, tools=[step], rubric=rubric, max_turns=-1)

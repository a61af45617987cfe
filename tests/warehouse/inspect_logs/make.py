"""Writes the logs beside this file, and the figures that Inspect reports for them, with a scripted model.

    pip install inspect_ai==0.3.285 && python make.py

The copies have no events, tracebacks are shortened to the names of files, and the git revision is made up, so that
they are small and name no machine. ``figures.json`` is what ``read_eval_log`` says about the copies: metrics, and each
sample's scores as numbers (``value_to_float``).
"""

import json
import math
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import inspect_ai
from inspect_ai import Epochs, Task, task
from inspect_ai import model as models
from inspect_ai import scorer as scoring
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalRevision, read_eval_log, write_eval_log
from inspect_ai.solver import generate, multiple_choice, solver, system_message, use_tools
from inspect_ai.tool import ToolError, tool

HERE = Path(__file__).parent
REVISION = EvalRevision(type="git", origin="https://example.com/evals.git", commit="0a1b2c3d", dirty=True)
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def said(text, stop="stop", tokens=(11, 7)):
    output = models.ModelOutput.from_content("mockllm/model", text, stop_reason=stop)
    output.usage = models.ModelUsage(input_tokens=tokens[0], output_tokens=tokens[1], total_tokens=sum(tokens))
    return output


def called(name, arguments):
    output = models.ModelOutput.for_tool_call("mockllm/model", name, arguments)
    output.usage = models.ModelUsage(input_tokens=11, output_tokens=7, total_tokens=18)
    return output


def mock(answer, name="model"):
    return models.get_model(f"mockllm/{name}", custom_outputs=answer, memoize=False)


def question(messages):
    return [message for message in messages if message.role == "user"][-1].text


def summand(text):
    return int(re.search(r"(\d+) \+ 2", text)[1])


def sums(count=6):
    return [
        Sample(id=f"sum-{n}", input=f"What is {n} + 2?", target=str(n + 2), metadata={"level": n % 2})
        for n in range(count)
    ]


def adds(messages, *_):
    n = summand(question(messages))
    return said(str(n + 2) if n % 3 else "no idea")


@task
def arithmetic(difficulty="easy", judge_api_key="sk-not-for-others-1234"):
    return Task(
        dataset=sums(),
        solver=[system_message("Answer with a number."), generate()],
        scorer=scoring.match(),
        version="1.2.0",
        config=models.GenerateConfig(temperature=0.7, max_tokens=64),
        tags=["nightly", "sums"],
        metadata={"owner": "evals"},
    )


@task
def choices():
    questions = [
        ("Which is a prime?", ["4", "7", "9"], "B"),
        ("Which is even?", ["2", "3", "5"], "A"),
        ("Which are odd?", ["1", "2", "3"], ["A", "C"]),
        ("Which is largest?", ["1", "2", "30"], "C"),
    ]
    dataset = [Sample(input=text, choices=options, target=target) for text, options, target in questions]
    return Task(dataset=dataset, solver=multiple_choice(multiple_correct=True), scorer=scoring.choice())


def chooses(messages, *_):
    return said("ANSWER: A, C" if "odd" in question(messages) else "ANSWER: B")


@tool
def divide():
    async def execute(x: int, y: int):
        """Divide two numbers.

        Args:
            x: First number.
            y: Second number.
        """
        if y == 0:
            raise ToolError("division by zero")
        return str(x / y)

    return execute


@task
def tools():
    targets = {n: "undefined" if n == 2 else str(n / (n - 2)) for n in range(1, 6)}
    dataset = [Sample(input=f"What is {n} / {n - 2}?", target=target) for n, target in targets.items()]
    return Task(dataset=dataset, solver=[use_tools(divide()), generate()], scorer=scoring.includes())


def uses_tool(messages, *_):
    if messages[-1].role == "tool":
        error = messages[-1].error
        return said(f"The answer is {error.message if error else messages[-1].text}")
    n = int(re.search(r"(\d+)", question(messages))[1])
    return called("divide", {"x": n, "y": n - 2})


@task
def agents():
    dataset = [
        Sample(input="What is 8 / 2? Use the tool.", target="4.0"),
        Sample(input="What is 8 / 4? Use the tool.", target="2.0"),
        Sample(input="Halve 8.", target="4.0"),
    ]
    return Task(dataset=dataset, solver=react(prompt="You are careful.", tools=[divide()]), scorer=scoring.includes())


def acts(messages, *_):
    if any(message.role == "assistant" for message in messages):
        return called("submit", {"answer": "4.0"})
    return called("divide", {"x": 8, "y": 2})


@scoring.scorer(metrics={"brevity": [scoring.mean(), scoring.stderr()], "tone": [scoring.mean(), scoring.std()]})
def style():
    async def score(state, target):
        text = state.output.completion
        value = {"brevity": 1 / (1 + len(text)), "tone": text.count("e")}
        return scoring.Score(value=value, explanation="counted", metadata={"length": len(text)})

    return score


@scoring.scorer(metrics=[scoring.mean(), scoring.stderr()])
def partly():
    async def score(state, target):
        text = state.output.completion
        return scoring.Score(
            value=scoring.CORRECT if text == target.text else scoring.PARTIAL if len(text) > 3 else scoring.INCORRECT,
            answer=text,
        )

    return score


@scoring.scorer(metrics=[scoring.mean(), scoring.stderr()])
def sometimes():
    async def score(state, target):
        if state.metadata["level"]:
            return scoring.Score.unscored(reason="grader_failed", explanation="no verdict")
        return scoring.Score(value=state.output.completion == target.text)

    return score


@task
def scorers():
    return Task(dataset=sums(), solver=generate(), scorer=[partly(), scoring.match(), style(), sometimes()])


class Wavering:
    def __init__(self):
        self.asked = 0

    def __call__(self, messages, *_):
        self.asked += 1
        n = summand(question(messages))
        return said(str(n + 2) if (self.asked * 7 + n) % 3 else "no idea", tokens=(5, 2))


@task
def epochs():
    reducers = ["mean", "pass_at_2", "mode", "at_least_3"]
    return Task(dataset=sums(5), solver=generate(), scorer=scoring.match(), epochs=Epochs(4, reducers))


def breaks(messages, *_):
    n = summand(question(messages))
    if n == 1:
        raise RuntimeError("the model is gone: api_key=sk-secret-value-98765")
    return said(str(n + 2) if n != 4 else "?")


@task
def errors():
    return Task(dataset=sums(), solver=generate(), scorer=scoring.match(), fail_on_error=False)


@task
def errors_scored():
    return Task(dataset=sums(), solver=generate(), scorer=scoring.match(), fail_on_error=False, score_on_error=True)


@solver
def talks():
    async def solve(state, generate):
        while True:
            state = await generate(state)
            if state.sample_id == "sum-0":
                return state
            state.messages.append(models.ChatMessageUser(content="Go on."))

    return solve


@task
def limits():
    return Task(dataset=sums(4), solver=talks(), scorer=scoring.match(), message_limit=6, token_limit=1000)


def rambles(messages, *_):
    n = summand(next(message.text for message in messages if message.role == "user"))
    if n == 3:
        return said("2", tokens=(900, 200))
    return said(str(n + 2), stop="stop" if n else "max_tokens")


@task
def conversations():
    prompt = [
        models.ChatMessageSystem(content="Think about apples. " * 60),
        models.ChatMessageUser(content="1 + 1?"),
        models.ChatMessageAssistant(content="2"),
        models.ChatMessageUser(content="1 + 2?"),
    ]
    picture = [
        models.ChatMessageUser(content=[models.ContentText(text="What colour?"), models.ContentImage(image=PIXEL)])
    ]
    dataset = [Sample(input=prompt, target="3"), Sample(input=picture, target=["red", "crimson"])]
    return Task(dataset=dataset, solver=generate(), scorer=scoring.model_graded_qa(model=mock(judges, "judge")))


def reasons(*_):
    output = said("")
    output.choices[0].message.content = [
        models.ContentReasoning(reasoning="One and two is three."),
        models.ContentText(text="3"),
    ]
    output.completion = "3"
    return output


def judges(messages, *_):
    return said("The answers agree. GRADE: C" if "3" in question(messages) else "GRADE: I", tokens=(40, 9))


RUNS = {
    arithmetic: adds, choices: chooses, tools: uses_tool, agents: acts, scorers: adds, epochs: Wavering(),
    errors: breaks, errors_scored: breaks, limits: rambles, conversations: reasons,
}  # fmt: skip


def shorten(error):
    """Leaves the first and the last lines of a traceback, without folders."""
    lines = re.sub(r'"/[^"\n]*/([^"/\n]+)"', r'"\1"', error.traceback).splitlines()
    error.traceback, error.traceback_ansi = "\n".join([lines[0], *lines[-6:]]), ""


def write_small(source, target):
    log = read_eval_log(source)
    log.eval.revision = REVISION
    for sample in log.samples:
        sample.events, sample.events_data, sample.timelines = [], None, None
        messages = json.dumps([message.model_dump() for message in sample.messages])
        sample.attachments = {name: text for name, text in sample.attachments.items() if name in messages}
        if sample.error:
            shorten(sample.error)
    write_eval_log(log, str(target))


def figures(path):
    log = read_eval_log(str(path))
    return {
        "status": log.status,
        "scores": [
            {"name": score.name, "scorer": score.scorer, "reducer": score.reducer, "metrics": values(score.metrics)}
            for score in log.results.scores
        ],
        "samples": [
            {
                "id": sample.id,
                "epoch": sample.epoch,
                "scores": {name: as_number(score.value) for name, score in (sample.scores or {}).items()},
                "error": bool(sample.error),
                "limit": sample.limit.type if sample.limit else None,
                "messages": len(sample.messages),
            }
            for sample in log.samples
        ],
        "usage": {model: [used.input_tokens, used.output_tokens] for model, used in log.stats.model_usage.items()},
    }


def values(metrics):
    return {name: metric.value for name, metric in metrics.items()}


def as_number(value):
    if isinstance(value, dict):
        return {name: as_number(each) for name, each in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else scoring.value_to_float()(value)


if __name__ == "__main__":
    os.chdir(HERE)
    found = {}
    for make, answer in RUNS.items():
        with TemporaryDirectory() as folder:
            settings = {"log_dir": folder, "display": "none", "max_samples": 1, "max_connections": 1}
            [log] = inspect_ai.eval(make(), model=mock(answer), **settings)
            target = HERE / f"{log.eval.task}{'.json' if make is conversations else '.eval'}"
            write_small(log.location, target)
        found[target.name] = figures(target)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
    (HERE / "figures.json").write_text(f"{{\n{lines}\n}}\n")

"""The model of the side-by-side tests: it does what the question says, so that a dataset shows the whole conversation.

A user message may hold a script, one line a turn::

    Say: It is\n4                               a text; \n is a new line
    Call: add {"a": 1} | add {"a": 2}           tool calls, with their arguments as they stand there
    Say: Let me see. | Call: add {"a": 1}       both
    Think: Two and two. | Say: 4                reasoning before the text
    Count: 50                                   the text "1 2 3 ... 50"
    Nothing                                     an empty answer
    Refuse                                      status 400
    Overlong                                    status 400, as an endpoint says that a prompt does not fit

The turn is the number of assistant messages after the last script. After its last line, tool results are repeated,
and anything else is answered with "That is all." Without a script, the last arithmetic expression is solved. A judge's
prompt is judged. There is no memory: the same conversation always gets the same answer.
"""

import re

from nightjar.errors import DatasetError
from nightjar.model_server import Answer, ArithmeticSolver, last_user_text
from nightjar.model_server.answers import ToolCallAnswer, message_text

COMMAND = re.compile(r"^(Say:|Call:|Think:|Count:|Nothing$|Refuse$|Overlong$)", re.MULTILINE)
JUDGED = re.compile(r"Question:(.*)Truth:(.*)Response:(.*)", re.DOTALL)
FENCED = re.compile(r"```\n?(.*?)\n?```", re.DOTALL)
ASKS_FOR_A_VERDICT = re.compile(r"\byes\b.*\bno\b|^Judge this\.", re.DOTALL | re.IGNORECASE)
FENCES = 3


class ScriptedModel:
    def __init__(self):
        self._solver = ArithmeticSolver()

    def answer(self, messages):
        question = last_user_text(messages)
        if ASKS_FOR_A_VERDICT.search(question):
            return Answer(question=question, text=verdict(question))
        script, turn = find_script(messages)
        if not script:
            return self._solver.answer(messages)
        if turn < len(script):
            return perform(script[turn], question, turn)
        results = [message_text(message) for message in trailing_tool_messages(messages)]
        return Answer(question=question, text=f"The tools say: {', '.join(results)}" if results else "That is all.")


def find_script(messages):
    """Returns the lines of the last script, and the number of assistant messages since then."""
    turn = 0
    for message in reversed(messages):
        turn += message["role"] == "assistant"
        lines = message_text(message).splitlines() if message["role"] == "user" else []
        if script := [line for line in lines if COMMAND.match(line)]:
            return script, turn
    return [], turn


def perform(line, question, turn):
    parts = {"Say": "", "Think": "", "Call": []}
    for part in line.split(" | "):
        name, _, rest = part.partition(": ")
        if name in {"Say", "Think"}:
            parts[name] = rest.replace("\\n", "\n")
        elif name == "Call" or parts["Call"]:
            tool, _, arguments = (rest if name == "Call" else part).partition(" ")
            parts["Call"].append(ToolCallAnswer(f"call-{turn}-{len(parts['Call'])}", tool, arguments))
        else:
            parts["Say"] = plain(name, rest)
    return Answer(question=question, text=parts["Say"], tool_calls=tuple(parts["Call"]), reasoning=parts["Think"])


def plain(name, rest):
    if name == "Refuse":
        raise DatasetError("This question is not answered")
    if name == "Overlong":
        raise DatasetError("This model's maximum context length is 10 tokens")
    return " ".join(str(number) for number in range(1, int(rest) + 1)) if name == "Count" else ""


def trailing_tool_messages(messages):
    found = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        found.append(message)
    return found[::-1]


def verdict(prompt):
    """Says yes where the true answer is in the response, and whether the question was in the prompt at all."""
    marked = JUDGED.search(prompt)
    parts = list(marked.groups()) if marked else FENCED.findall(prompt)
    if len(parts) != FENCES:
        raise DatasetError(f"No question, truth and response in the judge's prompt: {prompt!r}")
    question, truth, response = (part.strip() for part in parts)
    return ("yes" if truth in response else "no") + ("" if question else ", without a question")

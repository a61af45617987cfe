"""Runs of several turns, with tools and in groups: paid answers are kept, and wrong code fails its own rollouts."""

import json
import signal
from collections import Counter

import pytest

from nightjar.model_server import Faults, Script, ToolCallAnswer, last_user_text

pytestmark = pytest.mark.long

EXAMPLES, TURNS = 16, 3

ENVIRONMENT = """
import nightjar as vf
class Board(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["moves"] = []
        state["info"]["board"] = {"size": 3}

    async def env_response(self, messages, state, **kwargs):
        state["moves"].append(messages[-1]["content"])
        state["trajectory"][-1]["reward"] = 0.25 * len(state["moves"])
        state["trajectory"][-1]["extras"]["legal"] = True
        if len(state["moves"]) == 3:
            state["final_env_response"] = [{"role": "user", "content": "You win."}]
        return [{"role": "user", "content": f"Question {state['answer']}, move {len(state['moves']) + 1}?"}]

def moves(state) -> float:
    return float(len(state["moves"]) + len(state["completion"]) / 100 + state["info"]["board"]["size"])

def steps(state) -> float:
    return sum(step["reward"] for step in state["trajectory"])

def look(where: int) -> str:
    \"\"\"Looks somewhere.\"\"\"
    return f"There are {where * 2} there."

def seen(completion, state) -> float:
    said = [message["content"] for message in completion if message["role"] == "tool"]
    return float(said == [f"There are {int(state['answer']) * 2} there."] * 2)

def load_environment() -> vf.Environment:
    rows = [{"question": f"Question {n}, move 1?", "answer": str(n), "info": {"n": n}} for n in range(8)]
    board = Board(dataset=rows, rubric=vf.Rubric(funcs=[moves, steps]), max_turns=5)
    rows = [{"question": f"Look {n}", "answer": str(n)} for n in range(8)]
    looking = vf.ToolEnv(tools=[look], dataset=rows, rubric=vf.Rubric(funcs=[seen]))
    return vf.EnvGroup([board, looking], env_names=["board", "looking"])
"""


def play(messages):
    """Plays a move or looks twice, depending on the conversation alone."""
    question = last_user_text(messages)
    turn = sum(message["role"] == "assistant" for message in messages)
    if question.startswith("Look"):
        call = ToolCallAnswer(id=f"call_{turn}", name="look", arguments=json.dumps({"where": int(question.split()[1])}))
        return call if turn < 2 else "I have seen enough."
    return f"My move {turn + 1}."


@pytest.fixture
def player(serve):
    return lambda **faults: serve(Script(play), faults=Faults(**faults))


LOOKING_BACK = """
import json
import pathlib
STEP = ("prompt", "completion", "reward", "extras", "is_truncated")
STATE = ("prompt", "completion", "answer", "info", "stop_condition", "is_completed", "is_truncated", "moves",
         "final_env_response")

def look_back(state) -> float:
    folder = pathlib.Path("broken" if pathlib.Path("broken").exists() else "mended")
    folder.mkdir(exist_ok=True)
    steps = []
    for step in state["trajectory"]:
        response, message = step["response"], step["response"].message
        said = {"said": message.content, "finish_reason": message.finish_reason}
        steps.append({name: step[name] for name in STEP} | said | {"model": response.model, "used": response.usage})
    times = {"usage": dict(state["usage"]), "generation_ms": state["timing"]["generation_ms"]}
    seen = {name: state.get(name) for name in STATE} | times | {"steps": steps}
    text = json.dumps(seen, sort_keys=True, default=lambda other: other.model_dump(mode="json"))
    (folder / f"{state['example_id']}.json").write_text(text)
    if folder.name == "broken":
        raise OSError("the judge is out")
    return 1.0
"""


def test_scoring_after_a_resume_sees_what_scoring_at_once_sees(nightjar, player):
    source = ENVIRONMENT + LOOKING_BACK
    for funcs in ("funcs=[moves, steps]", "funcs=[seen]"):
        source = source.replace(funcs, "funcs=[look_back]")
    nightjar.write_environment("played", source)
    (nightjar.folder / "broken").mkdir()

    def read(folder):
        return {path.name: json.loads(path.read_text()) for path in (nightjar.folder / folder).iterdir()}

    server = player()
    assert nightjar.eval("played", "-n", -1, "-r", 1, server=server).code == 1
    asked = server.stats().received
    at_once = read("broken")
    (nightjar.folder / "broken").rename(nightjar.folder / "seen at once")
    assert nightjar.eval("played", "-n", -1, "-r", 1, "--resume", server=server).code == 0
    assert server.stats().received == asked == EXAMPLES * TURNS
    after_resume = read("mended")
    assert after_resume == at_once
    assert len(after_resume) == EXAMPLES
    assert after_resume["0.json"]["info"] == {"n": 0, "board": {"size": 3}}
    assert after_resume["0.json"]["final_env_response"] == [{"role": "user", "content": "You win."}]
    assert [step["reward"] for step in after_resume["0.json"]["steps"]] == [0.25, 0.5, 0.75]
    said = [message["role"] for message in after_resume[f"{EXAMPLES - 1}.json"]["completion"]]
    assert said == ["assistant", "tool", "assistant", "tool", "assistant"]


NOTING = """
import time
import nightjar as vf
def note(what):
    with open("noted", "a") as file:
        print(what, file=file)

class Noting(vf.MultiTurnEnv):
    async def setup_state(self, state):
        note("set up")

    def env_response(self, messages, state, **kwargs):
        {blocks}
        return "go on"

    @vf.cleanup
    async def close(self, state):
        note("cleaned up")

    @vf.cleanup
    def close_in_a_thread(self, state):
        note("cleaned up in a thread")

    @vf.teardown
    async def leave(self):
        note("torn down")

    @vf.teardown(priority=1)
    def leave_in_a_thread(self):
        note("torn down in a thread")

def load_environment() -> vf.Environment:
    noting = Noting(dataset=[{{"question": f"Look {{n}}"}} for n in range(30)], rubric=vf.Rubric(), max_turns=2)
    return vf.EnvGroup([noting]) if {is_grouped} else noting
"""


@pytest.mark.parametrize(("number", "blocks", "is_grouped"), [
    (signal.SIGINT, "pass", False), (signal.SIGTERM, "pass", True), (signal.SIGINT, "time.sleep(3600)", False),
], ids=["Ctrl-C", "SIGTERM, in a group", "Ctrl-C while code blocks"])  # fmt: skip
def test_ctrl_c_cleans_up_and_tears_down(nightjar, serve, number, blocks, is_grouped):
    nightjar.write_environment("noting", NOTING.format(blocks=blocks, is_grouped=is_grouped))
    slow = 0 if "sleep" in blocks else 600_000
    server = serve(Script(lambda messages: "I go on."), faults=Faults(latency_ms=slow))
    command = nightjar.start_eval("noting", "-n", -1, "-r", 1, "-c", 4, server=server)
    command.wait_until(lambda: server.stats().received >= 4 and (slow or server.stats().answered >= 4))
    command.send(number)
    assert command.wait().code == 130
    assert not command.leaves_processes
    noted = Counter((nightjar.folder / "noted").read_text().splitlines())
    assert noted["set up"] >= 4
    assert noted["cleaned up"] == noted["cleaned up in a thread"] == noted["set up"]
    assert (noted["torn down"], noted["torn down in a thread"]) == (1, 1)
    assert nightjar.run.metadata["status"] == "cancelled"

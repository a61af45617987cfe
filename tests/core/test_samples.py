"""Samples of rollouts in the terminal."""

from nightjar.compat.verifiers.printing import print_prompt_completions_sample
from nightjar.core.messages import AssistantMessage, ToolCall, UserMessage
from nightjar.errors import ModelError

ROWS = [
    {"prompt": [{"role": "user", "content": f"{n} + 1?"}], "reward": float(n), "error": None,
     "completion": [{"role": "assistant", "content": f"={n + 1}"}]}
    for n in range(5)
]  # fmt: skip


def shown(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_the_first_rollouts_that_generate_returns_are_shown(capsys):
    for outputs in (ROWS, {"outputs": ROWS, "metadata": {}}):
        print_prompt_completions_sample(outputs)
        text = shown(capsys)
        assert all(part in text for part in ("3 of 5 rollouts", "user: 0 + 1?", "assistant: =1", "2 + 1?", "2.00"))
        assert "3 + 1?" not in text
        print_prompt_completions_sample(outputs, n=1)
        assert "1 + 1?" not in shown(capsys)


def test_columns_of_a_training_step(capsys):
    prompts = [[UserMessage(content="1 + 1?")], "2 + 2?", "3 + 3?"]
    said = AssistantMessage(reasoning_content="hm", tool_calls=[ToolCall(id="c", name="add", arguments='{"a": 1}')])
    error = ModelError("down")
    error.__cause__ = OSError("unplugged")
    failed = {"error": "E", "error_chain_repr": "E('x')", "error_chain_str": "E"}
    print_prompt_completions_sample(prompts, [[said], "", "six"], [error, failed, None], [0.5], 7, num_samples=2)
    text = shown(capsys)
    assert all(part in text for part in ("Step 7", "hm", "add(", "0.50", "ModelError -> OSError", "E('x')", "none"))
    assert "six" not in text


def test_what_a_terminal_would_obey_is_not_sent_to_it(capsys):
    print_prompt_completions_sample([{"prompt": "a\x1b[2Jb\ud800c", "completion": "[bold]d", "reward": None}])
    text = shown(capsys)
    assert "\x1b[2J" not in text
    assert "[bold]d" in text

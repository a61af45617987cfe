"""Named queries: how their files are read, how values are bound, and what each answers.

Three runs of the environment "sums", with three examples and two rollouts each:

    run    model  began        example 0  example 1  example 2
    a-old  a      2 days ago   1 1        1 1        0 0
    a-new  a      2 hours ago  1 1        0 0        1 0
    b      b      3 hours ago  0 1        1 1        failed 0
"""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nightjar.errors import WarehouseError
from nightjar.warehouse import QueryResult, Warehouse
from nightjar.warehouse.reading.known_values import require_known
from nightjar.warehouse.reading.named_queries import named_queries, parse_query, question


@pytest.fixture(scope="module")
def write(run_writer):
    """Writes a run of three examples with two rollouts each, which have these rewards; None for one that failed."""

    def write(folder, run_id, model, began, minutes, rewards):
        results, attempts = [], []
        for place, reward in enumerate(rewards):
            example, index = divmod(place, 2)
            fields = {
                "example_hash": f"{example}" * 64, "prompt": [{"role": "user", "content": f"{example} + 2?"}],
                "completion": [{"role": "assistant", "content": f'It is "{example + 2}"'}],
                "answer": str(example + 2), "metrics": {"right": reward},
                "timing": {"generation_ms": 1000 * place, "scoring_ms": 500, "total_ms": 1000 * place + 500},
            }  # fmt: skip
            if reward is None:
                results.append(run_writer.failed(example, index, **fields | {"completion": None, "metrics": {}}))
            else:
                results.append(run_writer.rollout(example, index, reward, **fields))
            usage = {"input_tokens": 1_000_000, "output_tokens": 100_000}
            attempts.append(run_writer.attempt(example, index, finished_at=0, token_usage=usage))
        scored = [reward for reward in rewards if reward is not None]
        return run_writer.write(
            folder, results, attempts, run_id=run_id, env_id="sums", model=model, num_examples=3,
            status="completed" if len(scored) == len(rewards) else "incomplete", finished_at=None,
            started_at=(datetime.now(UTC) - began).isoformat(), time_ms=minutes * 60_000, rollouts=len(rewards),
            scored=len(scored), failed=len(rewards) - len(scored), coverage=len(scored) / len(rewards),
            avg_reward=sum(scored) / len(scored),
        )  # fmt: skip

    return write


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory, write):
    folder = tmp_path_factory.mktemp("named")
    warehouse = Warehouse(folder / "warehouse")
    warehouse.publish(write(folder / "1", "a-old", "a", timedelta(days=2), 3, [1, 1, 1, 1, 0, 0]))
    warehouse.publish(write(folder / "2", "a-new", "a", timedelta(hours=2), 1, [1, 1, 0, 0, 1, 0]))
    warehouse.publish(write(folder / "3", "b", "b", timedelta(hours=3), 2, [0, 1, 1, 1, None, 0]))
    (warehouse.folder / "prices.csv").write_text("model,since,input,output\na,2020-01-01,0.5,5\n")
    return warehouse


def ask(warehouse, name, columns, **given):
    """Runs a query by its name and returns the columns that are asked for, row by row."""
    asked = question(name, given)
    result = warehouse.query(asked.sql, asked.parameters)
    places = [result.columns.index(column) for column in columns.split()]
    return [tuple(row[place] for place in places) for row in result.rows]


SAID = "user: 2 + 2?", 'assistant: It is "4"'
REGRESSIONS = "model example_id reward_before reward_after run_before run_after"
HARDEST = "example_id avg_reward rollouts models solved_by question answer"
FLAKY = "model example_id rollouts correct share"
FAILURES = "error phase rollouts runs models environments message"
SLOWEST = "run_id minutes rollouts per_second median_seconds p95_seconds scoring_seconds"
EXAMPLE = "model rollout_index reward error prompt completion"
FOUND = "run_id example_id rollout_index"


def test_a_named_query_answers(warehouse):
    answers = [
        # less than 95 % of the rollouts of b are scored
        ("leaderboard", "model avg_reward coverage run_id", {"env": "sums"}, [("a", 0.5, 1.0, "a-new")]),
        ("leaderboard", "model", {"env": "chess"}, []),
        ("leaderboard", "model", {}, [("a",)]),
        ("regressions", REGRESSIONS, {}, [("a", 1, 1.0, 0.0, "a-old", "a-new")]),
        ("regressions", REGRESSIONS, {"model": "b"}, []),
        ("regressions", REGRESSIONS, {"limit": 0}, []),
        ("flips", "flip example_id correct_a correct_b", {"a": "a-old", "b": "a-new"},
         [("broken", 1, 1.0, 0.0), ("fixed", 2, 0.0, 0.5)]),
        ("hardest", HARDEST, {"env": "sums"}, [
            (2, pytest.approx(1 / 3), 3, 2, 1, "2 + 2?", "4"), (1, 0.5, 4, 2, 1, "1 + 2?", "3"),
            (0, 0.75, 4, 2, 2, "0 + 2?", "2"),
        ]),
        ("hardest", "example_id", {"env": "sums", "model": "a", "limit": "1"}, [(1,)]),
        ("flaky", FLAKY, {"env": "sums", "rollouts": 4}, [
            ("a", 1, 4, 2, 0.5), ("b", 0, 2, 1, 0.5), ("a", 2, 4, 1, 0.25),
        ]),
        ("flaky", FLAKY, {"env": "sums", "model": "a", "rollouts": 2}, [("a", 2, 2, 1, 0.5)]),
        ("failures", FAILURES, {}, [
            ("ModelError -> RateLimitError", "generation", 1, 1, ["b"], ["sums"], "429 Too Many Requests"),
        ]),
        ("failures", FAILURES, {"days": 0}, []),
        ("slowest", SLOWEST, {"limit": 2}, [
            ("a-old", 3.0, 6, pytest.approx(6 / 180), 2.5, pytest.approx(4.75), 0.5),
            ("b", 2.0, 6, pytest.approx(6 / 120), 2.5, pytest.approx(4.75), 0.5),
        ]),
        ("coverage", "run_id status rollouts scored failed owed", {}, [("b", "incomplete", 6, 5, 1, 1)]),
        # by example, a: 1, 0, 0.5; b: 0.5, 1, 0; the differences are -0.5, 1, -0.5
        ("compare", "examples avg_a avg_b difference stderr a_better b_better equal", {"a": "a", "b": "b"},
         [(3, 0.5, 0.5, 0.0, pytest.approx(0.5), 2, 1, 0)]),
        *(("example", EXAMPLE, {"env": "sums", "example": example}, [
            ("a", 0, 1.0, None, *SAID), ("a", 1, 0.0, None, *SAID), ("b", 0, None, "ModelError", SAID[0], None),
            ("b", 1, 0.0, None, *SAID),
        ]) for example in (2, "2", "22222222")),
        ("history", "run_id avg_reward change", {"env": "sums", "model": "a"}, [
            ("a-new", 0.5, pytest.approx(0.5 - 4 / 6)), ("a-old", pytest.approx(4 / 6), None),
        ]),
        ("history", "run_id", {"env": "sums", "limit": 2}, [("a-new",), ("b",)]),
        ("search", FOUND, {"text": 'it IS "4"', "model": "b"}, [("b", 2, 1)]),
        ("search", "run_id", {"text": '"4"'}, [("a-new",), ("a-new",), ("b",), ("a-old",), ("a-old",)]),
        ("search", "role passage", {"text": '"4"', "limit": 1}, [("assistant", 'It is «"4"»')]),
        ("search", FOUND, {"text": "%"}, []),
    ]  # fmt: skip
    for name, columns, given, expected in answers:
        assert ask(warehouse, name, columns, **given) == expected, (name, given)


def test_coverage_says_where_a_run_is_and_spend_sums_tokens_and_costs(warehouse):
    assert ask(warehouse, "coverage", "run_dir") == [(str(warehouse.folder.parent / "3"),)]
    months = ask(warehouse, "spend", "model runs attempts input_tokens output_tokens spent unpriced_runs")
    totals = {
        model: tuple(sum(column or 0 for column in columns) for columns in zip(*rows, strict=True))
        for model in "ab"
        if (rows := [row[1:] for row in months if row[0] == model])
    }
    assert totals == {"a": (2, 12, 12_000_000, 1_200_000, 12 * 0.5 + 1.2 * 5, 0), "b": (1, 6, 6_000_000, 600_000, 0, 1)}


@pytest.fixture(scope="module")
def conversations(tmp_path_factory, write):
    """One run whose completions are of every shape."""
    folder = tmp_path_factory.mktemp("conversations")
    run_dir = write(folder / "run", "run", "m", timedelta(hours=1), 1, [1, 1, 1, 1, 1, 1])
    call = {"id": "call_1", "name": "weather", "arguments": '{"city": "Köln"}'}
    picture = {"type": "image_url", "image_url": {"url": "data:image"}}
    completions = [
        [
            {"role": "assistant", "reasoning_content": "I look it up.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "5 degrees\nand\twind"},
            {"role": "assistant", "content": [{"type": "text", "text": "Cold."}, picture]},
        ],
        "Plain text",
        [{"role": "assistant", "content": f"{'a ' * 100}Needle{' b' * 100}"}],
        [{"role": "assistant", "content": r"\boxed{4} is n\n"}], [], None,
    ]  # fmt: skip
    path = run_dir / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, completion in zip(lines, completions, strict=True):
        line["completion"] = completion
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    warehouse = Warehouse(folder / "warehouse")
    warehouse.publish(run_dir)
    return warehouse


def test_a_passage_shows_the_text_with_its_surroundings(conversations):
    passages = {
        "KÖLN": ("assistant", '{"city": "«Köln»"}'),
        '"city": "k': ("assistant", '{«"city": "K»öln"}'),
        "Weather": ("assistant", "«weather»"),
        "look": ("assistant", "I «look» it up."),
        "degrees\nAND": ("tool", "5 «degrees and» wind"),
        "cold": ("assistant", "«Cold»."),
        "plain": (None, "«Plain» text"),
        r"\Boxed{": ("assistant", r"«\boxed{»4} is n\n"),
        r"n\n": ("assistant", r"\boxed{4} is «n\n»"),
        "needle": ("assistant", f"…{'a ' * 40}«Needle»{' b' * 40}…"),
    }
    found = {text: ask(conversations, "search", "role passage", text=text) for text in passages}
    assert found == {text: [passage] for text, passage in passages.items()}
    others = ["role", "assistant", "tool_call", "call_1", "data:image", "null", "image_url", '","']
    # names of fields and ids are not searched
    assert [text for text in others if ask(conversations, "search", "role", text=text)] == []


def test_example_shows_tool_calls_reasoning_and_parts(conversations):
    written = [ask(conversations, "example", "completion", env="sums", example=example) for example in (0, 2)]
    turns = ['thinks: I look it up.\ncalls weather({"city": "Köln"})', "5 degrees\nand\twind", "Cold. image_url"]
    text = "\n".join(map(": ".join, zip(("assistant", "tool", "assistant"), turns, strict=True)))
    assert written == [[(text,), ("Plain text",)], [("[]",), (None,)]]
    assert named_queries()["example"].is_full


class TestKnownValues:
    def test_unknown_values_are_named_with_similar_ones(self, warehouse):
        for name, given, message in (
            ("leaderboard", {"env": "sum"}, "Unknown environment 'sum'. Did you mean 'sums'?"),
            ("history", {"env": "chess"}, "Unknown environment 'chess'. Choose one of: sums."),
            ("compare", {"a": "a", "b": "c"}, "Unknown model 'c'. Choose one of: a, b."),
            ("flips", {"a": "a-ol", "b": "b"}, "Unknown run 'a-ol'. Did you mean 'a-old'?"),
            ("flips", {"a": "b", "b": "evals/s--a/a-new/"}, "Unknown run 'evals/s--a/a-new/'. Did you mean 'a-new'?"),
            ("search", {"text": "4", "env": "sums", "model": ""}, "Unknown model ''. Choose one of: a, b."),
        ):  # fmt: skip
            with pytest.raises(WarehouseError, match=f"^{re.escape(message)}$"):
                require_known(question(name, given), warehouse.query)

    def test_an_empty_answer_about_known_values_is_no_error(self, warehouse):
        for text, given in (
            ("regressions", {"env": "sums", "model": "b"}), ("flips", {"a": "b", "b": "b"}),
            ("search", {"text": "no such text"}), ("FROM runs WHERE env_id = $env", {"env": "chess"}),
        ):  # fmt: skip
            asked = question(text, given)
            assert warehouse.query(asked.sql, asked.parameters).rows == []
            require_known(asked, warehouse.query)

    def test_an_unknown_run_among_many_is_answered_with_the_newest(self):
        ids = [f"{number:012x}" for number in range(3_000)]
        message = "Unknown run 'zzz'. There are 3,000, the newest are: 000000000000, 000000000001, 000000000002."
        known = QueryResult(("run_id",), ("VARCHAR",), [(run_id,) for run_id in ids])
        with pytest.raises(WarehouseError, match=re.escape(message)):
            require_known(question("flips", {"a": "zzz", "b": ids[0]}), lambda _: known)


class TestDeclarations:
    def test_a_query_says_what_it_answers_and_uses_what_it_declares(self, warehouse):
        docs = (Path(__file__).parents[2] / "docs/reference/warehouse.md").read_text()
        for name, query in named_queries().items():
            required = [parameter for parameter in query.parameters if parameter.default is None]
            given = {parameter.name: "a-old" if parameter.type == "run" else "x" for parameter in required}
            assert f"| `{name}` |" in docs
            assert f"| `{query.usage}` |" in docs
            body = "\n".join(line for line in query.text.splitlines() if not line.startswith("--"))
            assert query.about.endswith(".")
            assert set(re.findall(r"\$([a-z_]+)", body)) == {parameter.name for parameter in query.parameters}
            assert warehouse.query(query.text, query.bind(given)).columns

    def test_the_comments_of_a_file_describe_its_query(self):
        declared = "-- $env: environment\n-- $model = NULL: only this model\n-- $least number = 0.5: reward: at least\n"
        declared += "-- $limit integer = 20: rows\nFROM rollouts -- $nothing: to declare\n"
        query = parse_query("worst", f"-- The worst rollouts.\n--\n-- Ties go to the older one.\n--\n{declared}")
        assert query.about == "The worst rollouts."
        assert [(one.name, one.type, one.default, one.about) for one in query.parameters] == [
            ("env", "text", None, "environment"), ("model", "text", "NULL", "only this model"),
            ("least", "number", "0.5", "reward: at least"), ("limit", "integer", "20", "rows"),
        ]  # fmt: skip
        assert query.usage == "env [model] [least=0.5] [limit=20]"
        assert query.bind({"env": "e", "limit": 3}) == {"env": "e", "model": None, "least": 0.5, "limit": 3}

    def test_a_mistake_is_named_with_the_choices(self):
        for text, given, says in (
            ("hardst", {}, ["'hardst'", "'hardest'", '"FROM hardst"']),
            ("zzz", {}, ["'zzz'", "compare, coverage, ", '"FROM zzz"']),
            ("hardest", {}, ["'hardest' needs a value for 'env'", "env (environment), [model] (only this model), [l"]),
            ("flips;", {}, ["'a' and 'b'", "a (run_id of the earlier run), b (run_id of the later run)"]),
            ("hardest;", {"env": "e", "rows": "5"}, ["no parameter 'rows'", "env (environment), [model]"]),
            ("hardest", {"env": "e", "limit": "5.5"}, ["'limit' takes a whole number, 0 or more", "'5.5'"]),
            ("failures", {"days": "-3"}, ["'days' takes a whole number, 0 or more", "'-3'"]),
        ):  # fmt: skip
            with pytest.raises(WarehouseError) as raised:
                question(text, given)
            assert [each for each in says if each not in str(raised.value)] == []

    def test_sql_is_left_unchanged_and_null_is_text_for_a_required_parameter(self):
        assert question("FROM runs").sql == "FROM runs"
        assert question("FROM runs WHERE env_id = $env", {"env": "e"}).parameters == {"env": "e"}
        assert question("search", {"text": "NULL", "env": "NULL"}).parameters == {
            "text": "NULL", "env": None, "model": None, "limit": 20,
        }  # fmt: skip

"""Benchmarks of NeMo Skills, from folders laid out as that package has them."""

import json

import pytest

from nightjar.environments import load_environment
from nightjar.errors import ConfigError, DatasetError

OPTIONS = "A) neon\nB) iron\nC) argon\nD) xenon"
GPQA = {
    "problem": f"Which is a metal?\n\n{OPTIONS}", "options": OPTIONS, "expected_answer": "B", "A": "neon",
    "subset_for_metrics": "Chemistry", "difficulty": "easy",
}  # fmt: skip


@pytest.fixture(scope="module")
def skills():
    """The class of the benchmarks; its module imports a lot."""
    from nightjar.compat.nemo.environments.skills import SkillsEnvironment

    return SkillsEnvironment


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Makes ``dataset/NAME`` of rows and settings; gives the function that does."""

    def make(name, rows, settings="", split="test"):
        folder = tmp_path / "dataset" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(settings + "\nraise SystemExit('it is not run')\n")
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    monkeypatch.setenv("NEMO_SKILLS_DATA_DIR", str(tmp_path / "dataset"))
    make(
        "gpqa", [GPQA], 'METRICS_TYPE = "multichoice"\nEVAL_SPLIT = "diamond"\n'
        'GENERATION_ARGS = "++prompt_config=eval/mcq ++eval_type=multichoice"', "diamond",
    )  # fmt: skip
    make("sums", [{"problem": "1/2 + 1/4?", "expected_answer": r"\frac{3}{4}"}, {"question": "2+2?", "answer": 4}])
    return make


async def reward(env, answer):
    seed = await env.seed(0)
    return (await env.verify_row(answer, seed.expected_answer, seed.metadata)).reward


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "prompt/config/eval/mcq.yaml"
    path.parent.mkdir(parents=True)
    return path


async def test_a_problem_has_the_prompt_of_nemo_skills(data, skills, prompt):
    prompt.write_text("system: Be brief.\nuser: |-\n  Choose, {examples}{{please}}.\n\n  {problem}\n")
    env = skills("gpqa")
    seed = await env.seed(0)
    assert (len(env), env.name, env.eval_type) == (1, "skills:gpqa", "multichoice")
    assert (seed.system, seed.prompt) == ("Be brief.", "Choose, {please}.\n\n" + GPQA["problem"])
    assert (seed.expected_answer, seed.metadata["difficulty"]) == ("B", "easy")
    own = await skills("gpqa", prompt_template="{question} ({difficulty})").seed(0)
    assert own.prompt == GPQA["problem"] + " (easy)"


async def test_images_outside_of_the_dataset_are_refused(data, skills, tmp_path, prompt):
    prompt.write_text("user: '{problem}'\nimage_field: image\n")
    settings = 'METRICS_TYPE = "multichoice"\nEVAL_SPLIT = "diamond"\nGENERATION_ARGS = "++prompt_config=eval/mcq"'
    data("gpqa", [GPQA | {"image": name} for name in ("a.gif", "/etc/passwd", "../b.gif")], settings, "diamond")
    for name in ("gpqa/a.gif", "b.gif"):
        (tmp_path / "dataset" / name).write_bytes(b"GIF89a")
    env = skills("gpqa")
    assert (await env.seed(0)).images == [str(tmp_path / "dataset/gpqa/a.gif")]
    for idx in (1, 2):
        with pytest.raises(DatasetError, match=f"diamond.jsonl, line {idx + 1}: the image .* outside"):
            await env.seed(idx)


async def test_without_a_prompt_of_the_package_there_is_a_plain_one(data, skills):
    assert (await skills("gpqa").seed(0)).prompt.endswith("the letter of the right option.")
    assert (await skills("sums").seed(0)).prompt == (
        "1/2 + 1/4?\n\nPut the final answer, and nothing else, in \\boxed{}."
    )
    data("apart", [{"question": "Which?", "options": "A) x\nB) y", "expected_answer": "A"}])
    seed = await skills("apart", eval_type="multichoice").seed(0)
    assert seed.prompt.startswith("Which?\n\nA) x\nB) y\n\nEnd")


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        pytest.param("sums", [r"It is \boxed{0.75}.", r"<think>\boxed{1}</think> \boxed{\dfrac34}"],
                     [r"\boxed{1}", "0.75", ""], marks=pytest.mark.slow, id="mathematics"),
        pytest.param("gpqa", [r"\boxed{B}", r"\boxed{\text{(B)}}", "The final answer is B) iron", "**Answer:** b"],
                     [r"Answer: B, no: \boxed{C}", ""], id="letters of options"),
    ],
)  # fmt: skip
async def test_answers_are_compared_as(data, skills, name, right, wrong):
    env = skills(name)
    rewards = {answer: await reward(env, answer) for answer in (*right, *wrong)}
    assert rewards == dict.fromkeys(right, 1.0) | dict.fromkeys(wrong, 0.0)


async def test_rows_and_settings_control_the_extraction_and_unsupported_scoring_is_refused(data, skills):
    row = {"problem": "?", "expected_answer": "C", "extract_regex": r"=> (\w)", "extract_from_boxed": False}
    data("rows", [row | {"relaxed": False}], 'METRICS_TYPE = "multichoice"')
    env = skills("rows")
    assert [await reward(env, text) for text in ("=> C", r"\boxed{C} => B")] == [1.0, 0.0]
    settings = r"""GENERATION_ARGS = "++eval_type=math ++eval_config.take_modulo=1000 ++eval_config.timeout=9" """
    data("big", [{"problem": "?", "expected_answer": "1007"}], settings.strip())
    env = skills("big")
    assert [await reward(env, text) for text in (r"\boxed{7}", r"\boxed{8}", r"\boxed{x}")] == [1.0, 0.0, 0.0]
    for settings, match in {
        'METRICS_TYPE = "ifeval"': "'odd' by 'ifeval', which Nightjar does not support. .* math, multichoice",
        'METRICS_TYPE = "math"\nGENERATION_ARGS = "++eval_type=dsbench"': "by 'dsbench'",
        'GENERATION_ARGS = "++eval_config.relaxed_extraction=true"': "eval_config.relaxed_extraction",
        'GENERATION_ARGS = "++examples_type=mmlu_few_shot"': "few-shot examples", "METRICS_TYPE = (": "cannot be read",
    }.items():  # fmt: skip
        data("odd", [{"problem": "?", "expected_answer": "1"}], settings)
        with pytest.raises(ConfigError, match=match):
            skills("odd")


async def test_missing_data_is_an_error(data, skills, tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match=r"has no train.jsonl in .* It has: diamond"):
        skills("gpqa", split="train")
    with pytest.raises(DatasetError, match="ns prepare_data aime"):
        skills("aime")
    with pytest.raises(ConfigError, match="does not exist"):
        skills("gpqa", data_dir=str(tmp_path / "gone"))
    data("empty", [{"text": "?"}])
    with pytest.raises(DatasetError, match="line 1: a row needs one of expected_answer"):
        await skills("empty").seed(0)
    monkeypatch.delenv("NEMO_SKILLS_DATA_DIR")
    with pytest.raises(ConfigError, match="pip install"):
        skills("gpqa")


def test_the_installed_package_is_read_and_not_run(data, skills, tmp_path, monkeypatch):
    from nightjar.compat.nemo.environments.skills import list_skills_benchmarks

    monkeypatch.delenv("NEMO_SKILLS_DATA_DIR")
    package = tmp_path / "nemo_skills"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('it is not run')")
    (tmp_path / "dataset").rename(package / "dataset")
    monkeypatch.syspath_prepend(tmp_path)
    assert [each["benchmark"] for each in list_skills_benchmarks()] == ["gpqa", "sums"]
    assert len(load_environment("skills://sums").examples) == 2
    elsewhere = tmp_path / "elsewhere/gpqa"
    elsewhere.mkdir(parents=True)
    (elsewhere / "diamond.jsonl").write_text(json.dumps(GPQA) + "\n")
    assert skills("gpqa", data_dir=str(elsewhere.parent)).eval_type == "multichoice"


def test_a_uri_loads_an_environment_and_benchmarks_are_listed(data, tmp_path):
    env = load_environment(f"skills://sums?data_dir={tmp_path / 'dataset'}&split=test")
    assert [env.examples[number]["answer"] for number in range(2)] == [r"\frac{3}{4}", "4"]
    with pytest.raises(ConfigError, match=r"unknown option 'splt'\. Choose one of: data_dir"):
        load_environment("skills://sums?splt=test")
    with pytest.raises(ConfigError, match="skills://"):
        load_environment("skills://")
    from typer.testing import CliRunner

    from nightjar.cli.app import app
    from nightjar.compat.nemo import get_environment

    data("group/one", [{"problem": "?", "expected_answer": "1"}])
    ended = CliRunner().invoke(app, ["list", "--source", "skills", "--json"])
    assert [(row["env_id"], row["splits"]) for row in json.loads(ended.stdout)] == [
        ("skills://gpqa", ["diamond"]), ("skills://group.one", ["test"]), ("skills://sums", ["test"]),
    ]  # fmt: skip
    assert len(get_environment("skills://group.one")) == 1
    shown = CliRunner().invoke(app, ["env", "list", "-s", "skills", "--data-dir", str(tmp_path / "dataset")])
    assert "skills://gpqa" in shown.stdout
    assert "multichoice" in shown.stdout

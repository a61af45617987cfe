"""Datasets of VLMEvalKit: tables with images, scored as the kit does without a judge."""

import base64
import csv
import struct
import sys
import zlib

import pytest
from late import late

from nightjar.clients import ClientConfig
from nightjar.environments import load_environment
from nightjar.errors import ConfigError, DatasetError
from nightjar.model_server import Answer, ModelServer

nemo = late("nightjar.compat.nemo")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment_of():
    from nightjar.compat.nemo.environments.vlmevalkit import VLMEvalKitEnvironment

    return VLMEvalKitEnvironment


RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
NAMES = {RED: "red", GREEN: "green", BLUE: "blue"}


def png(color, size=8):
    """Returns a square of one color, in base64."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    lines = zlib.compress((b"\0" + bytes(color) * size) * size)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
    image = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", lines) + chunk(b"IEND", b"")
    return base64.b64encode(image).decode()


IMAGES = {f"data:image/png;base64,{png(color)}": name for color, name in NAMES.items()}


def colors(message):
    return [IMAGES[part["image_url"]["url"]] for part in message["content"] if part["type"] == "image_url"]


class Looks:
    """Answers with the option that is the color of the first image, or with that color."""

    def answer(self, messages):
        text = next(part["text"] for part in messages[-1]["content"] if part["type"] == "text")
        color = colors(messages[-1])[0]
        options = dict(line.split(". ", 1) for line in text.splitlines() if line[1:3] == ". ")
        said = next((letter for letter, option in options.items() if option == color), color)
        return Answer(question=text, text=said)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Writes ``NAME.tsv`` as pandas does, where ``LMUData`` says; gives the function that does."""
    monkeypatch.setenv("LMUData", str(tmp_path))

    def write(name, *rows):
        path = tmp_path / f"{name}.tsv"
        with path.open("w", newline="") as file:
            columns = list(dict.fromkeys(column for row in rows for column in row))
            writer = csv.DictWriter(file, columns, restval="", delimiter="\t", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def question(index, image, answer="A", **more):
    row = {"index": index, "image": image, "question": "Which color?", "A": "red", "B": "green", "answer": answer}
    return row | more


async def test_a_model_gets_images_and_options(table):
    table(
        "MMBench_DEV_EN", question(0, png(RED), hint="Look.", category="color"),
        question(1, png(BLUE), C="blue", answer="C"), question(1_000_001, "1", A="blue", B="red", answer="B"),
        question(2, ""),
    )  # fmt: skip
    env = nemo.get_environment("vlmevalkit://MMBench_DEV_EN")
    assert len(env) == 3
    with ModelServer(Looks(), keep_requests=9) as server:
        bundle = await nemo.run_evaluation(env, nemo.VLMSolver(nemo.ModelClient(server.url, "m")))
        sent = [request.body["messages"][-1] for request in server.requests]
    results = bundle["_results"]
    assert [row["reward"] for row in results] == [1.0, 1.0, 0.0]
    assert [row["extracted_answer"] for row in results] == ["A", "C", "A"]
    assert sorted(colors(message)[0] for message in sent) == ["blue", "blue", "red"]
    assert results[0]["prompt"] == (
        "Hint: Look.\nQuestion: Which color?\nOptions:\nA. red\nB. green\n"
        "Please select the correct answer from the options above. \n"
    )
    assert [row["metadata"]["g_index"] for row in results] == ["0", "1", "1"]
    assert results[0]["metadata"]["category"] == "color"


def test_bare_base64_is_of_the_kind_that_it_begins_as_and_other_files_are_refused(tmp_path):
    from nightjar.environments.seeded.rows import image_url

    for beginning, kind in (("/9j/", "jpeg"), ("R0lGOD", "gif"), ("UklGR", "webp"), ("AAAA", "png")):
        image = beginning + "A" * 300  # longer than the name of a file may be, and shorter than a path
        assert image_url(image) == f"data:image/{kind};base64,{image}"
    (tmp_path / "key.png").write_text("secret")
    with pytest.raises(ConfigError, match="is not an image"):
        image_url(str(tmp_path / "key.png"))


async def test_the_engine_sends_them_too(table):
    table("Mine", question(0, png(GREEN), answer="B"), question(1, png(RED), answer="B"))
    env = load_environment("vlmevalkit://Mine?limit=1&type=MCQ")
    with ModelServer(Looks(), keep_requests=9) as server:
        results = await env.evaluate(ClientConfig(api_base_url=server.url), "m")
        [request] = server.requests
    assert colors(request.body["messages"][-1]) == ["green"]
    assert [output["reward"] for output in results["outputs"]] == [1.0]


async def test_images_stand_where_mmmu_has_them(table, environment_of):
    pair = repr([png(RED), png(BLUE)])
    table("MMMU_DEV", question(0, pair, question="<image 2> or <image 1>?"), question(1, pair, question="<image 3>?"))
    env = environment_of("MMMU_DEV")
    with ModelServer(Looks(), keep_requests=9) as server:
        await nemo.run_evaluation(env, nemo.VLMSolver(nemo.ModelClient(server.url, "m")), max_problems=1)
        [request] = server.requests
    [message] = request.body["messages"]
    kinds = [part["type"] for part in message["content"]]
    assert (colors(message), kinds) == (["blue", "red"], ["text", "image_url", "text", "image_url", "text"])
    with pytest.raises(DatasetError, match="there is no image 3"):
        await env.seed(1)


async def test_images_may_be_files(table, tmp_path, environment_of):
    (tmp_path / "images/Files").mkdir(parents=True)
    (tmp_path / "images/Files/red.png").write_bytes(base64.b64decode(png(RED)))
    row = {"index": "x", "image_path": "red.png", "question": "Red?", "answer": "Yes"}
    table("Files", row, row | {"image_path": "gone.png"})
    env = environment_of("Files")
    seed = await env.seed(0)
    assert (env.dataset_type, seed.prompt, seed.images) == ("Y/N", "Red?", [str(tmp_path / "images/Files/red.png")])
    with pytest.raises(DatasetError, match=r"Files.tsv, index x: the image '.*gone.png' cannot be read: No such file"):
        await env.seed(1)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("image_path", "/etc/passwd", "the image '/etc/passwd' is outside of the dataset's folder"),
        ("image_path", "../outside.png", "outside.png' is outside of the dataset's folder"),
        ("image_path", "link.png", "link.png' is outside of the dataset's folder"),
        ("image_path", "bad.tsv", "bad.tsv' is not an image"),
        ("image", "/etc/passwd", "the image '/etc/passwd' is not base64"),
        ("image", "http://127.0.0.1/a.png", "is not base64"),
        ("image", "notbase64!!", "the image 'notbase64!!' is not base64"),
        ("image", "99", "the image '99' is not base64"),
        ("image", "['AAAA']", "'AAAA' is not an image"),
    ],
)
async def test_an_untrusted_table_sends_only_images_of_its_own_folder(tmp_path, column, value, said):
    (tmp_path / "outside.png").write_bytes(base64.b64decode(png(RED)))
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "bad.tsv").write_text(f"index\tquestion\tA\tB\tanswer\t{column}\n7\t?\tx\ty\tA\t{value}\n")
    uri = f"vlmevalkit://x?data={folder / 'bad.tsv'}&type=MCQ"
    with ModelServer(Looks()) as server:
        for running in (
            load_environment(uri).evaluate(ClientConfig(api_base_url=server.url), "m"),
            nemo.run_evaluation(nemo.get_environment(uri), nemo.VLMSolver(nemo.ModelClient(server.url, "m"))),
        ):
            with pytest.raises(DatasetError, match=f"bad.tsv, index 7: .*{said}"):
                await running
        assert server.stats().received == 0


def test_the_chosen_option_is_found_in_an_answer():
    from nightjar.compat.nemo.environments.vlmevalkit_scoring import chosen_option

    chosen = {
        "B": "B", "The answer is (B).": "B", "B. green, as one sees": "B", "It is green": "B", "A car is green": "B",
        "Sorry, I can't help with images of people yet. A": None, "red or green": None, "": None,
    }  # fmt: skip
    assert {answer: chosen_option(answer, {"A": "red", "B": "green"}) for answer in chosen} == chosen


async def test_short_answers_are_scored_as_the_kit_does(table, environment_of):
    worth = {
        ("TextVQA_VAL", "two", "['2', '2', '2', 'x']"): 0.75, ("ChartQA_TEST", "95", "100"): 1.0,
        ("ChartQA_TEST", "94", "100"): 0.0, ("DocVQA_VAL", "nightjars", "['nightjar', 'owl']"): pytest.approx(8 / 9),
        ("GQA_TestDev", "Dog ", "dog"): 1.0, ("GQA_TestDev", "a dog", "dog"): 0.0,
        ("OCRBench", "It says STOP.", "['stop']"): 1.0, ("Mine", "A dog!", "dog"): 1.0,
        ("Mine", "<think>cat</think>dog", "dog"): 1.0, ("Mine", "", "dog"): 0.0,
    }  # fmt: skip
    found = {}
    for name, answer, reference in worth:
        table(name, {"index": 0, "image": png(RED), "question": "?", "answer": reference})
        env = environment_of(name)
        assert env.dataset_type == "VQA"
        found[name, answer, reference] = (await env.verify(answer, reference)).reward
    assert found == worth
    table("MME", {"index": 0, "image": png(RED), "question": "Red?", "answer": "Yes"})
    env = environment_of("MME")
    answers = ("Yes.", "yes, it's red", "No", "yes or no", "Yesterday", "")
    assert [(await env.verify(answer, "Yes")).reward for answer in answers] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "uri", "match"),
    [
        ("COCO_VAL", "", "with a judge or in its own way"),
        ("MathVista_MINI", "", "set metric to one of: vqa_score"),
        ("Mine", "?type=Caption", "'Caption', which Nightjar does not score. .*: MCQ, VQA, Y/N"),
        ("Mine", "?metric=bleu", "Unknown metric 'bleu'. Choose one of: vqa_score"),
        ("Mine", "?limit=few", "limit must be a number"),
    ],
)
def test_unsupported_datasets_and_options_are_refused(table, name, uri, match):
    table(name, {"index": 0, "image": png(RED), "question": "?", "answer": "x"})
    with pytest.raises(ConfigError, match=match):
        load_environment(f"vlmevalkit://{name}{uri}")
    assert len(nemo.get_environment(f"vlmevalkit://{name}?metric=accuracy")) == 1


async def test_missing_data_is_an_error(table, tmp_path, environment_of):
    with pytest.raises(ConfigError, match="pip install"):
        environment_of("Gone")
    with pytest.raises(DatasetError, match="no such file"):
        environment_of("Gone", data_dir=str(tmp_path))
    with pytest.raises(DatasetError, match="no column 'question'"):
        environment_of("Odd", data=str(table("Odd", {"index": 0, "image": png(RED)})))
    video = table("Clips", {"index": 0, "video": "a.mp4", "question": "?", "answer": "x"})
    with pytest.raises(ConfigError, match="of type 'Video'"):
        environment_of("Clips", data=str(video))
    table("Test_split", {"index": 0, "image": png(RED), "question": "?"})
    with pytest.raises(DatasetError, match="there is no reference answer"):
        await environment_of("Test_split").seed(0)


KIT = """
import pandas

DATASET_TYPE = {"Tiny": "MCQ", "Judged": "VQA", "Film": "Video-MCQ"}.get
SUPPORTED_DATASETS = ["Tiny", "Judged", "Film"]


class MMVet:
    def __init__(self, name):
        rows = [{"index": 7, "question": "?", "A": "red", "B": "green", "C": None, "answer": "A", "category": None}]
        self.data = pandas.DataFrame(rows)

    def build_prompt(self, line):
        return [dict(type="image", value=["IMAGE", "IMAGE"]), dict(type="text", value=f"Now: {line['question']}")]


build_dataset = MMVet
"""


@pytest.fixture
def kit(tmp_path, monkeypatch):
    """Puts a package ``vlmeval`` where it is found; gives its image."""
    (tmp_path / "kit/vlmeval").mkdir(parents=True)
    (tmp_path / "kit/vlmeval/__init__.py").touch()
    image = tmp_path / "red.png"
    image.write_bytes(base64.b64decode(png(RED)))
    (tmp_path / "kit/vlmeval/dataset.py").write_text(KIT.replace("IMAGE", str(image)))
    monkeypatch.syspath_prepend(tmp_path / "kit")
    yield str(image)
    for name in ("vlmeval", "vlmeval.dataset"):
        sys.modules.pop(name, None)


async def test_the_installed_package_builds_the_prompts(kit, environment_of):
    from nightjar.compat.nemo.environments.vlmevalkit_scoring import MEASURES

    seed = await environment_of("Tiny").seed(0)
    assert (seed.prompt, seed.images, seed.metadata["choices"]) == ("Now: ?", [kit] * 2, {"A": "red", "B": "green"})
    assert "category" not in seed.metadata
    for name, match in (("Other", "'Other'"), ("Judged", "with a judge"), ("Film", "'Video-MCQ'")):
        with pytest.raises(ConfigError, match=match):
            environment_of(name)
    assert len(environment_of("Judged", metric=next(iter(MEASURES)))) == 1

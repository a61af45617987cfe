"""``nightjar eval report``: markdown, HTML, CSV, JSON and LaTeX of runs whose texts are hostile."""

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest

from nightjar.reports.formats import visible

HOSTILE = [
    "<script>alert(1)</script>",
    "</style></pre></details><img src=http://evil.example/i.png onerror=alert(1)><!--",
    "\u202eturned\u2066 \x00 \x1b[31mred\x1b]0;t\x07", "half \ud800 of a pair",
    r"\input{/etc/passwd} \write18{touch owned} \end{document} $x$ % & # _ ~ ^",
    "[link](http://evil.example) ![image](http://evil.example/i.png) @somebody",
    "```\nout of the fence\n````\n# heading\n| a | b |", "=1+1", "a|b`c`\n中文",
]  # fmt: skip
CUT_OFF = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
EVEN = "even_" * 40
NAMES = ("gsm8k|<b>x</b>\\input{/etc/passwd}", "=HYPERLINK(1)|`m`@me")


def bundle(name, model, problems, repeats=1):
    """Every third step is right, the last one broke."""
    from nightjar.compat.nemo.engine.artifacts import bundle_of
    from nightjar.compat.nemo.observability import ModelResponse, StepRecord

    results, steps = [], []
    for number in range(problems * repeats):
        problem, repeat = divmod(number, repeats)
        text, is_last = HOSTILE[number % len(HOSTILE)], number == problems * repeats - 1
        row = {"problem_idx": problem, "repeat": repeat, "reward": None if is_last else float(problem % 3 == 0)}
        details = {"error_category": "rate_limit", "error": text} if is_last else {"method": "exact"}
        answer = None if is_last else text
        told = {"prompt": text, "model_response": answer, "extracted_answer": answer, "expected_answer": text}
        category = {"category": "=odd|" if problem % 2 else EVEN}
        results.append({**row, **told, "scorer_rewards": {}, "scoring_details": details, "metadata": category})
        results[-1] |= {"tokens": 30, "latency_ms": 100.0 * (number + 1)}
        said = ModelResponse(text, model, "stop", 10, 20, 30, 100.0) if answer else None
        steps.append(StepRecord(problem_idx=problem, repeat=repeat, reward=row["reward"], model_response=said))
    config = {"benchmark": name, "model": model}
    return bundle_of(name, results, steps, config, repeats=repeats, elapsed_seconds=2.0, retries=0)


@pytest.fixture
def runs(tmp_path):
    from nightjar.compat.nemo.engine.artifacts import write_all

    write_all(bundle("mgsm", "meta/llama", 12), tmp_path / "runs" / "a")
    write_all(bundle(*NAMES, 9, 2), tmp_path / "runs" / "b")
    return tmp_path / "runs"


@pytest.fixture
def reports(runs, nightjar, tmp_path):
    done = nightjar("eval", "report", runs, "--all-formats", "--with-results", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    names = {"report.md", "report.html", "report.csv", "report.json", "report.tex"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    return {path.suffix[1:]: path.read_text() for path in (tmp_path / "out").iterdir()}


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_a_report_has_its_figures_in_every_form(reports):
    found = json.loads(reports["json"])
    assert (found["schema_version"], [run["benchmark"] for run in found["runs"]]) == (1, ["mgsm", NAMES[0]])
    first, second = found["runs"]
    assert first["statistics"]["reward"]["value"] == pytest.approx(4 / 11)
    statistics = first["statistics"]
    assert (statistics["failed"], statistics["coverage"]) == (1, pytest.approx(11 / 12))
    assert (second["examples"], second["repeats"], len(second["results"])) == (9, 2, 18)
    assert {one["kind"] for one in first["samples"]} == {"right", "wrong", "failed"}
    assert first["failures"][0]["kind"] == "rate limit"
    # Wilson's interval of 4 in 11, worked out by hand: (4 + z²/2 ± z·√(4·7/11 + z²/4)) / (11 + z²), z = 1.959964
    shown = {"md": "0.3636 [0.1517, 0.6462]", "html": "0.3636 [0.1517, 0.6462]", "tex": "{[}0.1517{,} 0.6462{]}"}
    assert {form: text in reports[form] for form, text in shown.items()} == dict.fromkeys(shown, True)
    rows = list(csv.DictReader(io.StringIO(reports["csv"])))
    [reward] = [row for row in rows if (row["benchmark"], row["metric"], row["category"]) == ("mgsm", "reward", "")]
    assert (float(reward["value"]), float(reward["ci_lower"])) == pytest.approx((4 / 11, 0.1517), abs=5e-5)
    assert {row["category"] for row in rows} == {"", f"category: {EVEN}", "category: =odd|"}
    assert {"pass@2", "coverage", "errors", "output_tokens", "generation_seconds_p99"} <= {r["metric"] for r in rows}


def test_no_text_of_others_is_obeyed(reports):
    page = Tags(reports["html"])
    assert not {tag for tag, _ in page.tags} & {"script", "img", "iframe", "b"}
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert [attrs["src"] for _, attrs in page.tags if "src" in attrs] == []
    links = [attrs for _, attrs in page.tags if not attrs.get("href", "#").startswith(("#", "data:image/svg+xml,"))]
    assert {attrs["rel"] for attrs in links} <= {"noreferrer nofollow"}  # addresses in texts, and the icon above
    assert all(attrs["href"].startswith(("http://", "https://")) for attrs in links)
    assert "<script>alert(1)</script>" in page.text
    for name in ("html", "md", "csv", "tex"):
        assert visible(reports[name]) == reports[name], name
    cells = [cell for row in csv.reader(io.StringIO(reports["csv"])) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "|"))]
    assert "'=HYPERLINK(1)|`m`@me" in cells
    assert r"\input{" not in reports["tex"]
    assert r"\write" not in reports["tex"]
    assert r"\textbackslash{}input\{/" in reports["tex"]
    outside = re.sub(r"^(`{3,})text\n.*?\n\1$", "", reports["md"], flags=re.DOTALL | re.MULTILINE)
    assert "evil.example" not in re.sub(r"<code>[^<]*</code>", "", outside)
    assert "# heading" not in outside
    assert not re.search(r"<(?!/?(code|details|summary)>)", outside)
    tables = [line for line in outside.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} <= {3, 4, 5, 6, 13}


def test_a_text_stays_within_its_cell_and_its_fence():
    from nightjar.reports.evaluation.latex import escape
    from nightjar.reports.evaluation.rendering import fenced, safe

    shortened = r"\\[{}$&#%_]|\\(text\w+|allowbreak)\{\}|\\nightjarchar\{\w+\}\{.\}|\{[-,?!\[\]]\}"
    for text in HOSTILE:
        assert not set(safe(text)[6:-7]) & set("<>|`[]*\n")
        block = fenced(text).splitlines()
        fence = block[0].removesuffix("text")
        assert block[-1] == fence
        assert not [line for line in block[1:-1] if line.startswith(fence)]
        assert not set(re.sub(shortened, "", escape(text))) & set("\\{}$&#%_^~")


def test_a_long_conversation_is_cut():
    from nightjar.reports.evaluation.gathering import Clip

    clip = Clip(1_000)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5_000}}
    said = [{"role": "user", "content": [image, {"type": "text", "text": "x" * 9_000}]}] + [{"role": "user"}] * 9_000
    cut = clip.messages(said)
    assert len(json.dumps(cut)) < 4_000
    assert clip.left_out > 14_000
    assert Clip(10).messages([{"role": "user", "content": "short"}]) == [{"role": "user", "content": "short"}]


@pytest.mark.long
def test_the_page_opens_offline_on_a_phone_and_a_desktop(reports, tmp_path, chromium):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the extra 'dev'")
    address, asked, said = (tmp_path / "out" / "report.html").as_uri(), [], []
    for width, scheme in ((375, "light"), (1280, "dark")):
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(address)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == []
        assert page.locator("svg").count() > 5
        found = axe.Axe().run(page).response["violations"]
        assert [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found] == []
    assert (set(asked), said) == ({address}, [])


def test_a_damaged_run_among_others_is_left_out_with_a_warning(runs, nightjar, caplog):
    [damaged] = (runs / "b").glob("eval-*.json")
    damaged.write_text('{"benchmark": ')
    [one] = (runs / "a").glob("eval-*.json")
    for place in (one, runs):
        done = nightjar("eval", "report", place, "-f", "csv")
        assert {row["benchmark"] for row in csv.DictReader(io.StringIO(done.out))} == {"mgsm"}
    assert "Left out: " in caplog.text
    assert damaged.name in caplog.text
    assert nightjar("eval", "report", runs, "-o", runs / "page.html").code == 0
    assert (runs / "page.html").read_text().startswith("<!doctype html>")
    assert nightjar("eval", "report", runs, "-o", runs / "page.pdf").code == 2
    assert nightjar("eval", "report", runs, "--with-results").code == 2
    assert "No example of these runs has 'x' in its info" in nightjar("eval", "report", runs, "--by", "x").err
    assert nightjar("eval", "report", runs / "b").code == 1


def test_damaged_rows_are_left_out_with_a_warning(runs, nightjar, caplog):
    with (runs / "b" / "results.jsonl").open("a") as file:
        file.write("damage\n{}\n")
    done = nightjar("eval", "report", runs, "-f", "csv")
    assert len({row["benchmark"] for row in csv.DictReader(io.StringIO(done.out))}) == 2
    assert "line 19" in caplog.text


def test_rewards_that_cannot_be_added_up_are_an_error_of_one_line(nightjar, tmp_path):
    rows = [{"problem_idx": n, "repeat": 0, "reward": 1.7e308} for n in range(3)]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = {"run_id": "eval-x", "benchmark": {"name": "x", "scores": {}}, "config": {}}
    (tmp_path / "eval-x.json").write_text(json.dumps(told))
    done = nightjar("eval", "report", tmp_path)
    assert (done.code, "Cannot import" in done.err, done.err.count("\n")) == (1, True, 0)

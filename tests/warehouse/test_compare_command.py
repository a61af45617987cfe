"""``nightjar compare`` on the command line."""

import re
import shlex

import pytest

BETTER, SAME, WORSE, UNSURE = [1.0] * 60, [1.0] * 30 + [0.0] * 30, [0.0] * 60, [1.0] * 25 + [0.0] * 32 + [1.0] * 3


@pytest.fixture(scope="module")
def published(shared_house):
    """Has a warehouse with runs that are named after how they compare with ``before``."""
    for run_id, rewards in {"before": SAME, "better": BETTER, "worse": WORSE, "unsure": UNSURE}.items():
        shared_house.publish(run_id, rewards, place=shared_house.folder / "runs" / run_id, model=f"model-{run_id}")
    return shared_house


@pytest.fixture
def house(published, terminal, monkeypatch):
    monkeypatch.chdir(published.folder)
    return published


@pytest.fixture
def folder(house):
    return house.folder


def test_strict_makes_the_decision_the_exit_code(folder, nightjar):
    for candidate, decision, strict in (
        ("better", "PASS", 0), ("worse", "REGRESSION", 1), ("unsure", "INCONCLUSIVE", 2),
    ):  # fmt: skip
        told = nightjar("compare", "before", candidate, "--strict", "--json")
        assert (told.code, told.json["decision"]) == (strict, decision)
    told = nightjar("compare", "before", "unsure")
    assert (told.code, told.out.partition(" ")[0]) == (0, "INCONCLUSIVE")
    (folder / "empty").mkdir()
    nothing = nightjar("compare", "before", "empty", "--strict", "--json")
    assert (nothing.code, nothing.out, "No results in 'empty'" in nothing.err) == (1, "", True)


@pytest.mark.long
def test_fits_on_a_terminal_and_says_how_to_look_further(folder, nightjar):
    told = nightjar("compare", "before", "uns", "--max-drop", 0.05)
    assert told.width <= 80
    # 93 of the 2^8 ways have three fixed or fewer, as many five or more: 2 * 93 / 256
    assert {
        "Model model-before model-unsure", "Avg reward 0.5000 [0.3774, 0.6226] 0.4667 [0.3463, 0.5911] -0.0333",
        "Flips: 5 broken, 3 fixed; 25 right and 27 wrong in both", "McNemar: p = 0.73, exact",
        "Broken: examples 25, 26, 27, 28, 29", "Fixed: examples 57, 58, 59",
        "Differs: model: model-before → model-unsure",
    } <= set(told.lines)  # fmt: skip
    for asked in (["uns"], [folder / "runs/unsure", "--warehouse", folder / "outputs/warehouse"]):
        told = nightjar("compare", "before", *asked)
        [command] = re.findall(r"Next: nightjar (.*)", told.err)
        assert nightjar(*shlex.split(command)).code == 0
    assert "Next: --html FILE shows" in nightjar("compare", "before", "runs/unsur*").err


def test_json_has_all_of_it_markdown_a_table_and_record_stores_it_for_sql(folder, nightjar):
    told = nightjar("compare", "before", "worse", "--json").json
    assert (told["decision"], told["pairs"], told["both_right"], told["both_wrong"]) == ("REGRESSION", 60, 0, 30)
    hashes = {"example_hash": "hash-0", "baseline_hash": "hash-0"}
    assert told["broken"][0] == {"example_id": 0, "baseline": 1.0, "candidate": 0.0} | hashes
    assert told["difference"]["mean"] == -0.5
    assert told["differs"] == {"model": ["model-before", "model-worse"]}
    told = nightjar("compare", "before", "worse", "--markdown").out
    assert told.startswith("## REGRESSION\n\nThe mean reward is lower by at least 0.3")
    assert "| Model | model-before | model-worse |  |" in told
    assert "- **Flips**: 30 broken, 0 fixed; 0 right and 30 wrong in both" in told
    refused = nightjar("compare", "before", "worse", "--markdown", "--json")
    assert (refused.code, "--json and --markdown exclude" in refused.err) == (2, True)
    told = nightjar("compare", "before", "worse", "--record")
    assert told.err.endswith('Recorded. Next: nightjar sql "FROM comparisons"\n')
    [row] = nightjar("sql", "FROM comparisons", "--json").json
    assert (row["decision"], row["gate_id"], row["candidate_runs"]) == ("REGRESSION", None, ["worse"])
    assert (row["difference"], row["margin"], row["pairs"], row["seed"]) == (-0.5, 0.05, 60, 0)
    assert row["p"] < 1e-6


def test_run_directories_that_are_not_published_are_compared_or_refused_also_by_category(folder, nightjar, house):
    grown = house.write("c0ffee", [*SAME, 1.0], place=folder / "outputs/evals/gsm8k--m/c0ffee")
    assert nightjar("compare", "before", grown, "--max-drop", 0.1).out.startswith("PASS")
    told = nightjar("compare", "before", "c0f")
    assert "Missing: 1 example that only the candidate has" in told.words
    assert house.warehouse.query("SELECT count(*) FROM runs").rows == [(4,)]
    other = house.write("other", SAME, hashes="other")
    refused = nightjar("compare", "before", other)
    assert (refused.code, refused.out) == (1, "")
    assert "No example is in both run 'before'" in refused.err
    assert "60 and 60 examples" in refused.err
    assert nightjar("compare", "before", "nobody").err.startswith("Error: There is no run 'nobody'")
    assert nightjar("compare", "before", "better", "--max-drop", -1).code == 2
    runs = [house.write(name, [reward]) for name, reward in (("a", 0.5), ("b", 0.25))]
    told = nightjar("compare", *runs, "--json").json
    assert told["difference"]["interval"] == {"low": None, "high": None}
    assert "more examples are needed" in told["reason"]
    assert "Difference: -0.2500 (no interval: one example)" in nightjar("compare", *runs).words
    assert "inf" not in nightjar("compare", *runs, "--markdown").out.replace("info", "")
    for run_id, rewards in {"a": SAME, "b": WORSE}.items():
        house.write(run_id, rewards, infos=[{"odd": n % 2} for n in range(60)])
    told = nightjar("compare", "a", "b", "--by", "odd", "--metric", "correct")
    assert told.width <= 80
    at = told.lines.index("odd Pairs Baseline Candidate Difference")
    assert all(told.lines[at + 2 + odd].startswith(f"{odd} 30 0.5000 0.0000 -0.5000 ") for odd in (0, 1))
    assert told.lines[at + 2].endswith(" worse")
    assert "| 0 | 30 | 0.5000 | 0.0000 | -0.5000 [" in nightjar("compare", "a", "b", "--by", "odd", "--markdown").out


@pytest.mark.long
def test_several_evaluations_are_a_line_each_with_the_worst_as_exit_code_and_a_page_links_to_each(house, nightjar):
    for side, rewards in {"old": SAME, "new": WORSE}.items():
        for env_id, told in {"gsm8k": rewards, "mmlu": BETTER}.items():
            place = house.folder / side / env_id
            house.write(f"{side}-{env_id}", told, place=place, hashes=env_id, env_id=env_id, model="m")
    told = nightjar("compare", "old", "new", "--max-drop", 0.1, "--strict")
    lines = [line for line in told.lines if line]
    assert (told.code, lines[0]) == (1, "REGRESSION Of 2 evaluations: 1 worse, 1 passed.")
    assert told.width <= 80
    assert lines[3].startswith("REGRESSION gsm8k of m -0.5000 [")
    assert lines[4].startswith("PASS mmlu of m +0.0000 [")
    told = nightjar("compare", "old", "new", "--json").json
    assert (told["decision"], [one["pairs"] for one in told["found"]], told["new"]) == ("REGRESSION", [60, 60], [])
    assert "# mmlu of m\n\n## PASS" in nightjar("compare", "old", "new", "--max-drop", 0.1, "--markdown").out
    nightjar("compare", "old", "new", "--max-drop", 0.1, "--html", "page.html")
    page = (house.folder / "page.html").read_text()
    places = [page.index(text) for text in ('href="#e1">gsm8k of m', 'href="#e2">mmlu of m', 'id="e1"', 'id="e2"')]
    assert places == sorted(places)
    assert "Of 2 evaluations: 1 worse, 1 passed." in page


def test_a_page_holds_all_of_it_in_one_file(folder, nightjar, run_writer):
    evil = [{"role": "assistant", "content": "<script>alert(1)</script> & 5 < 6"}]
    told = [{"example_hash": f"hash-{n}", "completion": evil, "info": {"level": n % 2}} for n in range(len(WORSE))]
    rows = [run_writer.rollout(n, 0, one, **told[n]) for n, one in enumerate(WORSE)]
    run_writer.write(folder / "evil", rows, run_id="evil", status="completed", model="<b>")
    told = nightjar("compare", "before", "evil", "--max-drop", 0.1, "--by", "level", "--html", "page.html")
    assert told.out.startswith("REGRESSION")
    assert "Wrote page.html" in told.err
    page = (folder / "page.html").read_text()
    assert '<h1 class="REGRESSION">REGRESSION</h1>' in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp; 5 &lt; 6") == 20  # of 30 that are broken
    assert "The 20 of 30 with the largest difference." in page
    assert "<script" not in page
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?![\"'#]|data:)", page)
    refused = nightjar("compare", "before", "evil", "--html", folder / "not/there.html")
    assert (refused.code, "Cannot write" in refused.err) == (1, True)

"""The pages of a run's samples, of a rollout, and of a search, as a browser is given them."""

import re

import pytest

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m</pre><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser(shared_house, run_writer, browse):
    """Asks for pages of two runs: in the first, example 0 is flaky, 1 wrong and failed, 2 right and hostile.

    Run "first" has six rollouts, "second" three, and "apart", of the environment "other", has one.
    """
    one = run_writer.rollout
    hostile = {
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": HOSTILE}],
        "completion": [
            {
                "role": "assistant", "content": None, "reasoning_content": "Let me think.",
                "tool_calls": [{"id": "c1", "name": "add", "arguments": '{"a": 2}'}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "Result: 4"},
            {"role": "assistant", "content": f"```python\nprint(4)\n```\n{HOSTILE} \\[x^2\\]"},
        ],
        "judge_response": {"asked": "It is right."},
        "parsed_answer": "x<sup>2</sup>",
    }  # fmt: skip
    long = {"completion": [{"role": "assistant", "content": "long\n" * 250_000}], "is_truncated": True}
    long |= {"token_usage": {"input_tokens": 1, "output_tokens": 9999}}
    hostile["timing"] = {"generation_ms": 9e6, "scoring_ms": 0.0, "total_ms": 9e6}
    first = [one(0, 0, 1.0), one(0, 1, 0.0), one(1, 0, 0.0, **long), run_writer.failed(1, 1)]
    first += [one(2, 0, 1.0, **hostile), one(2, 1, prompt=hostile["prompt"])]
    tries = [run_writer.attempt(1, 1, number, error=run_writer.failure) for number in (1, 2, 3)]
    second = [one(0, 0, 1.0), one(0, 1, 1.0), one(2, 0, 0.0, completion=[{"role": "assistant", "content": "5"}])]
    shared_house.publish_rows("first", first, tries, state_columns=["judge_response", "parsed_answer"])
    shared_house.publish_rows("second", second)
    shared_house.publish_rows("apart", [one(9, 0, 1.0, answer="other")], env_id="other")
    return browse(shared_house.warehouse)


def test_every_filter_and_order_chooses_the_examples_of_a_run(browser):
    from nightjar.view import samples

    choices = [
        ({}, [0, 1, 2]), ({"q": "LONG\nlong"}, [1]), ({"q": "<script>"}, [2]), ({"against": "second"}, [2]),
        ({"where": "reward < 0.5"}, [0, 1]), ({"where": "example_id IN (SELECT 2) -- that one"}, [2]),
        ({"where": "total_ms > 1e6 AND reward = 1"}, [2]), ({"page": 2}, []), ({"show": "wrong"}, [0, 1]),
        ({"show": "right"}, [0, 2]), ({"show": "failed"}, [1]), ({"show": "flaky"}, [0]), ({"show": "truncated"}, [1]),
        *(({"show": kind}, []) for kind in ("noted", "filtered", "timed out", "empty")), ({"sort": "worst"}, [1, 0, 2]),
        ({"sort": "best"}, [2, 0, 1]), ({"sort": "spread"}, [0, 2, 1]), ({"sort": "longest"}, [1, 0, 2]),
        ({"sort": "slowest"}, [2, 0, 1]), ({"sort": "example"}, [0, 1, 2]),
    ]  # fmt: skip
    for asked, expected in choices:
        found = browser.links("/runs/first/samples", **asked)
        assert [int(address.split("/")[3]) for address in found] == expected, asked
    assert {asked["sort"] for asked, _ in choices if "sort" in asked} == samples.SORTS.keys()
    assert {asked["show"] for asked, _ in choices if "show" in asked} == samples.KINDS.keys()


ALL = ("apart/9/0", "first/0/0", "first/0/1", "first/1/0", "first/1/1", "first/2/0", "first/2/1", "second/0/0",
       "second/0/1", "second/2/0")  # fmt: skip


def test_filters_and_order_choose_the_rollouts_of_all_runs(browser):
    for asked, expected in (
        ({}, ALL), ({"env": "other"}, ALL[:1]), ({"env": "nobody"}, ()), ({"show": "failed"}, ["first/1/1"]),
        ({"least": "0.5", "most": "1", "env": "other"}, ALL[:1]), ({"least": "", "most": "0"}, [
            "first/0/1", "first/1/0", "second/2/0"]),
        ({"q": "LONG\nlong"}, ["first/1/0"]), ({"q": "<script>"}, ["first/2/0", "first/2/1"]),
        ({"q": "tool_call_id"}, []), ({"error": "ModelError"}, ["first/1/1"]), ({"error": "OtherError"}, []),
        ({"where": "example_id = 9 OR answer = 'other'"}, ALL[:1]), ({"where": "outcome = 'failed'"}, ["first/1/1"]),
        ({"where": "prompt LIKE '%script%'", "q": "Result"}, ["first/2/0"]),
        ({"sort": "worst", "most": "1", "where": "run_id = 'second'"}, ["second/2/0", "second/0/0", "second/0/1"]),
        ({"sort": "-metric correct", "env": "other"}, ALL[:1]), ({"page": 2}, []),
    ):  # fmt: skip
        assert browser.links("/rollouts", **asked) == [f"/runs/{address}" for address in expected], asked
    assert browser.get("/samples", follow_redirects=False).headers["location"] == "/rollouts"  # of no run: of all


def test_a_search_finds_questions_and_completions_of_all_runs(browser):
    for text, expected in {
        "PRINT(4)": ["2/0"], "<script>alert(1)": ["2/0"], "tool_call_id": [], "2 + 2?": ["0/0", "1/0"],
        "4": ["0/0", "0/1", "1/0", "2/0", "2/1"],
    }.items():  # fmt: skip
        found = browser.links("/search", q=text)
        assert [address for address in found if "/first/" in address] == [f"/runs/first/{each}" for each in expected]


def test_a_search_shows_the_surrounding_words_escaped_and_continues_with_older_runs(browser):
    page = browser.get("/search", params={"q": "alert(1)</script>"}).text
    assert "<mark>alert(1)&lt;/script&gt;</mark>" in page
    assert "question: 2 + 2 ?" in browser.words("/search?q=2+%2B+2")
    assert "in the newest 3 of 3 runs." in browser.words("/search?q=4")
    assert 0 < len(browser.links("/search?q=4&skip=1")) < len(browser.links("/search?q=4"))
    assert browser.links("/search?q=") == []


def test_flips_are_counted_over_examples_that_both_runs_scored(browser):
    page = "/runs/first/samples?against="
    assert "1 example flipped, of 2 that both runs have scored" in browser.words(f"{page}second")
    assert "0 examples flipped, of 0 that both runs have scored" in browser.words(f"{page}apart")
    assert '<option value="apart" selected>' in browser.get(f"{page}apart").text
    assert "that both runs have scored" not in browser.get("/runs/first/samples").text
    assert "There is no run &#39;nobody&#39;" in browser.words(f"{page}nobody", status=404)


def test_unknown_choices_are_refused_and_unknown_rollouts_are_not_found(browser):
    for address, words in {
        "/?sort=x": "sort: There is no &#39;x&#39;. Choose one of: started, reward, environment",
        "/?group=x": "group: There is no &#39;x&#39;. Choose one of: environment",
        "/runs/first/samples?show=nonsense": "Choose one of: wrong, right",
        "/runs/first/samples?sort=nonsense": "Choose one of: example, worst",
        "/notes?mark=nonsense": "Choose one of: wrong grade",
        "/rollouts?sort=example": "Choose one of: newest, worst",
        "/rollouts?show=flaky": "Choose one of: wrong, right",
        "/rollouts?least=nan": "least",
    }.items():
        assert words in browser.words(address, status=400)
    for place in ("first/9/0", "first/2/9", "other/0/0", "other/samples"):
        assert browser.get(f"/runs/{place}").status_code == 404


def test_a_filter_without_matches_stays_selected_and_a_row_links_to_its_worst_rollout(browser):
    page = browser.get("/?env=gone&status=&sort=")
    assert page.status_code == 200
    assert '<option value="gone" selected>gone</option>' in page.text
    assert browser.links("/runs/first/samples") == ["/runs/first/0/1", "/runs/first/1/0", "/runs/first/2/0"]
    described = re.findall(r">rollout (\d: \w+)<", browser.get("/runs/first/samples").text)[:4]
    assert described == ["0: right", "1: wrong", "0: wrong", "1: failed"]


def test_a_wrong_condition_is_reported_next_to_its_field(browser):
    for condition in ("1) UNION SELECT (1", "1] = [1", "1; DROP VIEW runs", "rewrd > 1", "'", "$x"):
        for path in ("/runs/first/samples", "/rollouts"):
            assert browser.links(path, where=condition) == []
            assert 'id="problem"' in browser.get(path, params={"where": condition}).text


def test_a_rollout_shows_calls_with_results_code_and_the_parsed_answer_and_raw_is_json(browser):
    page, words = browser.get("/runs/first/2/0").text, browser.words("/runs/first/2/0")
    assert "<figcaption>python</figcaption><pre><code>" in page
    assert '<math display="block">' in page
    for said in (
        "add a: 2 Copy 4 Result: 4", "system Copy 1 Be brief.", "judge_response It is right.",
        "Parsed answer x&lt;sup&gt;2&lt;/sup&gt; judge_response",
    ):  # fmt: skip
        assert said in words
    assert page.count("Result: 4") == 1
    assert "[U+202E]␛[31m" in browser.get("/runs/first/2/0?beside=first").text
    assert "Parsed answer nothing" in browser.words("/runs/first/0/0")
    assert "Parsed answer" not in browser.words("/runs/first/1/1") + browser.words("/runs/second/0/0")
    page = browser.get("/runs/first/2/0?raw=1")
    assert page.headers["content-type"] == "application/json"
    assert page.json()["completion"][1] == {"role": "tool", "tool_call_id": "c1", "content": "Result: 4"}
    page = browser.get("/runs/first/2/0?raw=1&message=4")
    assert (page.text, page.headers["content-type"]) == ("Result: 4", "text/plain; charset=utf-8")
    assert browser.get("/runs/first/2/0?raw=1&message=99").status_code == 404
    assert browser.get("/runs/first/2/0?raw=1&message=0").status_code == 400


def test_a_failed_rollout_shows_its_error_and_attempts(browser, run_writer):
    words = browser.words("/runs/first/1/1")
    said = (run_writer.failure["message"], "rate limit: Lower --max-concurrent", "3 attempts", "No completion.")
    assert [each for each in said if each not in words] == []


def test_a_rollout_of_a_megabyte_is_cut_and_links_to_its_neighbours(browser):
    page = browser.get("/runs/first/1/0").text
    assert page.count("long\n") < 41_000
    assert "1,050,000 more characters; see the raw JSON" in page
    turns = [("prev", "/runs/first/0/1"), ("next", "/runs/first/1/1")]
    assert re.findall(r'data-turn rel="(\w+)" href="([^"]+)"', page) == turns
    assert '"/runs/first/0/0">Example 0<' in page
    assert '"/runs/first/2/0">Example 2<' in page


def test_different_words_of_another_run_are_marked(browser):
    page = browser.get("/runs/second/2/0?beside=first").text
    assert "<ins>5</ins>" in page
    assert re.search(r"<del>[^<]*Let me think\.", page)
    assert "no other rollout" in browser.get("/runs/first/1/0?beside=second").text

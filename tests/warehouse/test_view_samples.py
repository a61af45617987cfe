"""The pages of a run's samples, of a rollout, and of a search, as a browser is given them."""

import re

import pytest

from nightjar.warehouse import Warehouse

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m</pre><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory, run_writer, browse):
    """Asks for pages of two runs: in the first, example 0 is flaky, 1 wrong and failed, 2 right and hostile."""
    folder = tmp_path_factory.mktemp("view")
    warehouse = Warehouse(folder / "warehouse")
    one, failed = run_writer.rollout, run_writer.failed
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
    long = {"completion": [{"role": "assistant", "content": "long\n" * 250_000}]}
    first = [one(0, 0, 1.0), one(0, 1, 0.0), one(1, 0, 0.0, **long), failed(1, 1), one(2, 0, 1.0, **hostile)]
    first.append(one(2, 1, prompt=hostile["prompt"]))
    tries = [run_writer.attempt(1, 1, number, error=run_writer.failure) for number in (1, 2, 3)]
    second = [one(0, 0, 1.0), one(0, 1, 1.0), one(2, 0, 0.0, completion=[{"role": "assistant", "content": "5"}])]
    for run_id, rollouts, attempts in (("first", first, tries), ("second", second, None)):
        columns = ["judge_response", "parsed_answer"] if run_id == "first" else []
        run_dir = run_writer.write(folder / run_id, rollouts, attempts, run_id=run_id, state_columns=columns)
        warehouse.publish(run_dir, tidies=False)
    apart = run_writer.write(folder / "apart", [one(9, 0, 1.0, answer="other")], run_id="apart", env_id="other")
    warehouse.publish(apart, tidies=False)
    return browse(warehouse)


def examples(page):
    assert page.status_code == 200, page.text
    return re.findall(r'<a data-row href="([^"]+)"', page.text)


class TestSamples:
    @pytest.mark.parametrize(("asked", "expected"), [
        ({}, [0, 1, 2]), ({"show": "flaky"}, [0]), ({"show": "failed"}, [1]), ({"show": "wrong"}, [0, 1]),
        ({"sort": "worst"}, [1, 0, 2]), ({"q": "LONG\nlong"}, [1]), ({"q": "<script>"}, [2]),
        ({"where": "reward < 0.5"}, [0, 1]), ({"where": "example_id IN (SELECT 2) -- that one"}, [2]),
        ({"against": "second"}, [2]), ({"page": 2}, []),
    ])  # fmt: skip
    def test_filters_and_order_choose_the_examples(self, browser, asked, expected):
        found = examples(browser.get("/runs/first/samples", params=asked))
        assert [int(address.split("/")[3]) for address in found] == expected

    def test_flips_are_counted_over_examples_that_both_runs_scored(self, browser):
        page = "/runs/first/samples?against="
        assert "1 example flipped, of 2 that both runs have scored" in browser.words(f"{page}second")
        assert "0 examples flipped, of 0 that both runs have scored" in browser.words(f"{page}apart")
        assert '<option value="apart" selected>' in browser.get(f"{page}apart").text
        assert "that both runs have scored" not in browser.get("/runs/first/samples").text
        assert "There is no run &#39;nobody&#39;" in browser.words(f"{page}nobody", status=404)

    @pytest.mark.parametrize(("address", "words"), [
        ("/?sort=x", "sort: There is no &#39;x&#39;. Choose one of: started, reward, environment"),
        ("/?group=x", "group: There is no &#39;x&#39;. Choose one of: environment"),
        ("/runs/first/samples?show=nonsense", "Choose one of: wrong, right"),
        ("/runs/first/samples?sort=nonsense", "Choose one of: example, worst"),
        ("/notes?mark=nonsense", "Choose one of: wrong grade"),
    ])  # fmt: skip
    def test_an_unknown_choice_is_refused(self, browser, address, words):
        assert words in browser.words(address, status=400)

    def test_a_filter_without_matches_stays_selected_and_a_row_links_to_its_worst_rollout(self, browser):
        page = browser.get("/?env=gone&status=&sort=")
        assert page.status_code == 200
        assert '<option value="gone" selected>gone</option>' in page.text
        page = browser.get("/runs/first/samples")
        assert examples(page) == ["/runs/first/0/1", "/runs/first/1/0", "/runs/first/2/0"]
        described = re.findall(r">rollout (\d: \w+)<", page.text)[:4]
        assert described == ["0: right", "1: wrong", "0: wrong", "1: failed"]

    @pytest.mark.parametrize(
        "condition", ["1) UNION SELECT (1", "1] = [1", "1; DROP VIEW runs", "rewrd > 1", "'", "$x"]
    )
    def test_a_wrong_condition_is_reported_next_to_its_field(self, browser, condition):
        page = browser.get("/runs/first/samples", params={"where": condition})
        assert page.status_code == 200
        assert 'id="problem"' in page.text
        assert examples(page) == []


class TestRolloutsOfAllRuns:
    """Run "first" has six rollouts, "second" three, and "apart", of the environment "other", has one."""

    ALL = ("apart/9/0", "first/0/0", "first/0/1", "first/1/0", "first/1/1", "first/2/0", "first/2/1", "second/0/0",
           "second/0/1", "second/2/0")  # fmt: skip

    @pytest.mark.parametrize(("asked", "expected"), [
        ({}, ALL), ({"env": "other"}, ALL[:1]), ({"env": "nobody"}, ()), ({"show": "failed"}, ["first/1/1"]),
        ({"least": "0.5", "most": "1", "env": "other"}, ALL[:1]), ({"least": "", "most": "0"}, [
            "first/0/1", "first/1/0", "second/2/0"]),
        ({"q": "LONG\nlong"}, ["first/1/0"]), ({"q": "<script>"}, ["first/2/0", "first/2/1"]),
        ({"q": "tool_call_id"}, []), ({"error": "ModelError"}, ["first/1/1"]), ({"error": "OtherError"}, []),
        ({"where": "example_id = 9 OR answer = 'other'"}, ALL[:1]), ({"where": "outcome = 'failed'"}, ["first/1/1"]),
        ({"where": "prompt LIKE '%script%'", "q": "Result"}, ["first/2/0"]),
        ({"sort": "worst", "most": "1", "where": "run_id = 'second'"}, ["second/2/0", "second/0/0", "second/0/1"]),
        ({"sort": "-metric correct", "env": "other"}, ALL[:1]), ({"page": 2}, []),
    ])  # fmt: skip
    def test_filters_and_order_choose_the_rollouts(self, browser, asked, expected):
        found = examples(browser.get("/rollouts", params=asked))
        assert found == [f"/runs/{address}" for address in expected]

    def test_an_unknown_choice_is_refused_and_a_wrong_condition_is_reported(self, browser):
        assert "Choose one of: newest, worst" in browser.words("/rollouts?sort=example", status=400)
        assert "Choose one of: wrong, right" in browser.words("/rollouts?show=flaky", status=400)
        assert "least" in browser.words("/rollouts?least=nan", status=400)
        page = browser.get("/rollouts?where=rewrd+%3E+1")
        assert 'id="problem"' in page.text
        assert examples(page) == []

    def test_samples_without_runs_lead_to_the_rollouts_of_all_runs(self, browser):
        assert browser.get("/samples", follow_redirects=False).headers["location"] == "/rollouts"


class TestRollout:
    def test_shows_calls_with_results_and_code_separately(self, browser):
        page, words = browser.get("/runs/first/2/0"), browser.words("/runs/first/2/0")
        assert "<figcaption>python</figcaption><pre><code>" in page.text
        assert '<math display="block">' in page.text
        for said in (
            "add a: 2 Copy 4 Result: 4",
            "system Copy 1 Be brief.",
            "judge_response It is right.",
        ):
            assert said in words
        assert page.text.count("Result: 4") == 1

    def test_shows_the_parsed_answer_and_raw_is_json(self, browser):
        assert "Parsed answer x&lt;sup&gt;2&lt;/sup&gt; judge_response" in browser.words("/runs/first/2/0")
        assert "Parsed answer nothing" in browser.words("/runs/first/0/0")
        assert "Parsed answer" not in browser.words("/runs/first/1/1") + browser.words("/runs/second/0/0")
        page = browser.get("/runs/first/2/0?raw=1")
        assert page.headers["content-type"] == "application/json"
        assert page.json()["completion"][1] == {"role": "tool", "tool_call_id": "c1", "content": "Result: 4"}

    def test_shows_invisible_characters_as_symbols_and_cuts_a_megabyte(self, browser):
        assert "[U+202E]␛[31m" in browser.get("/runs/first/2/0?beside=first").text
        page = browser.get("/runs/first/1/0")
        assert page.text.count("long\n") < 41_000
        assert "1,050,000 more characters; see the raw JSON" in page.text

    def test_a_message_is_sent_as_it_was_written(self, browser):
        page = browser.get("/runs/first/2/0?raw=1&message=4")
        assert (page.text, page.headers["content-type"]) == ("Result: 4", "text/plain; charset=utf-8")
        assert browser.get("/runs/first/2/0?raw=1&message=99").status_code == 404
        assert browser.get("/runs/first/2/0?raw=1&message=0").status_code == 400

    def test_a_failed_rollout_shows_its_error_and_attempts(self, browser, run_writer):
        words = browser.words("/runs/first/1/1")
        for said in (
            run_writer.failure["message"],
            "rate limit: Lower --max-concurrent",
            "3 attempts",
            "No completion.",
        ):
            assert said in words

    def test_links_to_its_neighbours(self, browser):
        page = browser.get("/runs/first/1/0").text
        turns = [("prev", "/runs/first/0/1"), ("next", "/runs/first/1/1")]
        assert re.findall(r'data-turn rel="(\w+)" href="([^"]+)"', page) == turns
        assert '"/runs/first/0/0">Example 0<' in page
        assert '"/runs/first/2/0">Example 2<' in page

    def test_different_words_of_another_run_are_marked(self, browser):
        page = browser.get("/runs/second/2/0?beside=first")
        assert "<ins>5</ins>" in page.text
        assert re.search(r"<del>[^<]*Let me think\.", page.text)
        assert "no other rollout" in browser.get("/runs/first/1/0?beside=second").text

    @pytest.mark.parametrize("place", ["first/9/0", "first/2/9", "other/0/0", "other/samples"])
    def test_an_unknown_rollout_is_not_found(self, browser, place):
        assert browser.get(f"/runs/{place}").status_code == 404


class TestSearch:
    @pytest.mark.parametrize(("text", "expected"), [
        ("PRINT(4)", ["/runs/first/2/0"]),
        ("<script>alert(1)", ["/runs/first/2/0"]),
        ("tool_call_id", []),
        ("4", ["/runs/first/0/0", "/runs/first/0/1", "/runs/first/1/0", "/runs/first/2/0", "/runs/first/2/1"]),
        ("2 + 2?", ["/runs/first/0/0", "/runs/first/1/0"]),
    ])  # fmt: skip
    def test_finds_questions_and_completions_of_all_runs(self, browser, text, expected):
        found = examples(browser.get("/search", params={"q": text}))
        assert [address for address in found if "/first/" in address] == expected

    def test_shows_the_surrounding_words_escaped_and_continues_with_older_runs(self, browser):
        page = browser.get("/search", params={"q": "alert(1)</script>"}).text
        assert "<mark>alert(1)&lt;/script&gt;</mark>" in page
        assert "question: 2 + 2 ?" in browser.words("/search?q=2+%2B+2")
        assert "in the newest 3 of 3 runs." in browser.words("/search?q=4")
        both, older = examples(browser.get("/search?q=4")), examples(browser.get("/search?q=4&skip=1"))
        assert 0 < len(older) < len(both)
        assert examples(browser.get("/search?q=")) == []

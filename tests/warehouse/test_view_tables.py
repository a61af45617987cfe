"""The tables of runs and samples in the web view: columns, rows per rollout, runs side by side, and histograms."""

import re

import pytest


@pytest.fixture(scope="module")
def browser(shared_house, run_writer, browse):
    """Two runs over three examples with answers: "first" has 7 and 9 for the first, "second" is right everywhere."""

    def one(example, index, said, **fields):
        reward = float(said == str(example + 7))
        turn = {"role": "assistant", "content": f"The answer is {said}."}
        told = {"answer": str(example + 7), "parsed_answer": said, "completion": [turn], "metrics": {"exact": reward}}
        told |= {"stop_condition": "max_turns_reached", "token_usage": {"input_tokens": 1, "output_tokens": index + 1}}
        return run_writer.rollout(example, index, reward, **told | fields)

    talk = [{"role": role, "content": "Go on."} for role in ("assistant", "user", "assistant")]
    first = [one(0, 0, "7"), one(0, 1, "9"), one(1, 0, "9"), one(1, 1, "9", completion=talk), one(2, 0, "9")]
    first.append(run_writer.failed(2, 1, answer="9", metrics={}))
    second = [one(example, index, str(example + 7)) for example in range(3) for index in range(2)]
    for run_id, rows in (("first", first), ("second", [*second, one(3, 0, "0")])):
        rewards = [row["reward"] for row in rows if row["reward"] is not None]
        told = {"scored": len(rewards), "rollouts": len(rows), "coverage": len(rewards) / len(rows),
                "avg_metrics": {"exact": 0.5}, "num_examples": 3, "rollouts_per_example": 2,
                "started_at": f"2026-11-0{len(run_id) - 4}T00:00:00Z", "tags": [f"of-{run_id}"]}  # fmt: skip
        shared_house.publish_rows(run_id, rows, state_columns=["parsed_answer"], **told)
    return browse(shared_house.warehouse)


def headings(page):
    assert page.status_code == 200, page.text
    found = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page.text)
    return [" ".join(re.sub(r"<[^>]*>", " ", text).split()) for text in found]


def heading(page, label):
    """The direction of a column and the address of its heading."""
    found = re.search(rf'<th scope="col"([^>]*)><a class="heading" href="([^"]*)">{label}</a>', page.text)
    direction = re.search(r'aria-sort="(\w+)"', found[1])
    return direction[1] if direction else "", found[2].replace("&amp;", "&")


def rows(page):
    assert page.status_code == 200, page.text
    [body] = re.findall(r"<tbody>(.*?)</tbody>", page.text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", " ", row).split()) for row in body.split("</tr>") if "<td" in row]


def chosen(page):
    """The rollouts that a list shows."""
    assert page.status_code == 200, page.text
    return re.findall(r"<a data-row [^>]*>(\d/\d)<", page.text)


def test_the_usual_columns_are_those_with_a_value_and_the_address_chooses_others(browser):
    shown = headings(browser.get("/"))
    assert shown[1:5] == ["Run", "Environment", "Model", "Reward 95 % interval"]
    assert {"Examples × rollouts", "Scored", "Time", "Tags", "Started"} <= {*shown}
    assert not {"Cost", "Suite", "Failed"} & {*shown}
    page = browser.get("/?columns=suite&columns=tags&columns=unknown&group=model")
    assert headings(page)[5:] == ["Tags", "Suite"]
    assert 'value="suite" checked' in page.text
    assert 'value="cost">' in page.text
    assert '<th scope="col" class="number spare">' not in page.text  # a narrow window shows chosen columns, too


def test_samples_have_target_answers_a_column_for_each_metric_and_the_ending_of_several_turns(browser):
    page = browser.get("/runs/first/samples?columns=target&columns=answer&columns=metric+exact&columns=ended")
    assert headings(page) == ["Example", "Target", "Answer", "Rollouts", "Mean reward", "exact", "Ended"]
    strip = "rollout 0: {} rollout 1: {}"
    assert rows(page) == [
        f"0 7 7 9 {strip.format('right', 'wrong')} 0.500 0.500 –",
        # only the second rollout had several turns
        f"1 8 9 2 times {strip.format('wrong', 'wrong')} 0.000 0.000 max_turns_reached",
        f"2 9 9 {strip.format('right', 'failed')} 1.000 1.000 done",
    ]
    assert "max_turns_reached" not in browser.get("/runs/first/0/0").text
    assert "Ended max_turns_reached" in browser.words("/runs/first/1/1")


def test_every_column_can_be_chosen_in_both_lists(browser):
    from nightjar.view import samples

    names = re.findall(r'name="columns" value="([^"]+)"', browser.get("/runs/first/samples").text)
    assert len(names) == len(samples.USUAL) + len(samples.MORE) + 1  # and one metric
    for by in ("example", "rollout"):
        page = browser.get("/runs/first/samples", params={"by": by, "columns": names})
        assert {"Id", "Spread", "Error", "Attempts", "exact"} <= {*headings(page)}


BY_ROLLOUT = "/runs/first/samples?by=rollout&columns=target&columns=answer&columns=tokens&columns=error"


def test_filters_and_order_choose_the_rollouts_their_rows_and_their_neighbours(browser):
    for asked, expected in {
        "": "0/0 0/1 1/0 1/1 2/0 2/1", "&sort=best": "0/0 2/0 0/1 1/0 1/1 2/1", "&page=2": "", "&show=flaky": "0/0 0/1",
        "&sort=longest": "2/1 0/1 1/1 0/0 1/0 2/0", "&show=failed": "2/1", "&show=wrong": "0/1 1/0 1/1",
        "&q=GO+on": "1/1", "&where=reward+%3D+1": "0/0 2/0", "&against=second": "1/0 1/1",
        "&sort=spread": "0/0 0/1 1/0 1/1 2/0 2/1", "&sort=metric+exact": "0/0 2/0 0/1 1/0 1/1 2/1",
        "&sort=-metric+exact": "0/1 1/0 1/1 0/0 2/0 2/1", "&sort=-example": "2/0 2/1 1/0 1/1 0/0 0/1",
        "&sort=-longest": "0/0 1/0 2/0 0/1 1/1 2/1",
    }.items():  # fmt: skip
        assert chosen(browser.get(BY_ROLLOUT + asked)) == expected.split(), asked
    found = rows(browser.get(BY_ROLLOUT))
    assert (found[1], found[5]) == ("0/1 7 9 0.000 2", "2/1 9 – failed ModelError 20")
    page = browser.get("/runs/first/0/1?by=rollout&show=wrong").text
    assert 'rel="next" href="/runs/first/1/0?show=wrong&amp;by=rollout">→ Example 1, rollout 0</a>' in page
    assert 'rel="prev" href="/runs/first/0/0"' not in page.partition("neighbours")[0]


def test_a_heading_chooses_an_order_and_then_its_opposite(browser):
    path = "/runs/first/samples"
    assert heading(browser.get(path), "exact") == ("", f"{path}?sort=metric+exact&by=example")
    ordered = browser.get(f"{path}?sort=metric+exact")
    assert heading(ordered, "exact") == ("descending", f"{path}?sort=-metric+exact&by=example")
    assert heading(browser.get(f"{path}?sort=-metric+exact"), "exact")[0] == "ascending"
    assert heading(browser.get("/?group=model"), "Time") == ("", "/?sort=time&group=model")
    assert browser.get(f"{path}?sort=metric+unknown").status_code == 200
    assert browser.get("/?sort=metric+exact").status_code == 400


def test_an_example_has_a_cell_for_each_run_that_is_compared(browser):
    page = browser.get("/samples?run=first&run=second")
    assert rows(page) == [
        "2 + 2? 7 right 0.500 7 9 right 1.000 7 2 times",
        "2 + 2? 8 wrong 0.000 9 2 times right 1.000 8 2 times",
        "2 + 2? 9 right 1.000 1 failed 9 right 1.000 9 2 times",
        "2 + 2? 10 not in this run wrong 0.000 0",
    ]
    assert "4 examples, paired by content" in browser.words("/samples?run=first&run=second")


def test_filters_and_order_choose_the_examples_that_are_compared(browser):
    for asked, targets in {
        "show=different": ["8"], "show=all right": ["7", "9"], "show=not in all": ["10"],
        "show=different rewards": ["7", "8"], "sort=difference": ["8", "7", "9", "10"],
        "sort=worst": ["8", "10", "7", "9"],
    }.items():  # fmt: skip
        found = rows(browser.get(f"/samples?run=first&run=second&{asked}"))
        assert [row.split()[3] for row in found] == targets, asked


def test_runs_are_compared_in_the_order_of_time_and_unknown_runs_are_named(browser):
    found = browser.get("/samples?ticked=second&ticked=first", follow_redirects=False)
    assert (found.status_code, found.headers["location"]) == (303, "/samples?run=first&run=second")
    assert "There is no run &#39;nobody&#39;" in browser.words("/samples?run=first&run=nobody", status=404)
    assert "Enter the ids of two or more runs" in browser.words("/samples?run=first")
    assert browser.get("/samples?run=first&run=second&show=nonsense").status_code == 400


def test_a_column_of_the_histogram_has_its_count_and_opens_its_rollouts(browser):
    page = browser.get("/runs/first").text
    columns = re.findall(r'<a href="(/runs/first/samples[^"]*)" aria-label="([^"]*)">', page)
    assert [(told, chosen(browser.get(address.replace("&amp;", "&")))) for address, told in columns] == [
        ("Reward 0: 3 rollouts, 60.0%. Show them", ["0/1", "1/0", "1/1"]),
        ("Reward 1: 2 rollouts, 40.0%. Show them", ["0/0", "2/0"]),
    ]


def test_ranges_of_rewards_have_a_common_axis_and_all_their_rollouts(house, browse):
    house.publish("graded", [number / 40 for number in range(41)])  # 20 ranges; the last one has three rewards
    view = browse(house.warehouse)
    page = view.get("/runs/graded").text
    ticks = re.findall(r'text-anchor="\w+" aria-hidden="true">([\d.]+)</text>', page)[-5:]
    assert ticks == ["0", "0.25", "0.5", "0.75", "1"]
    columns = re.findall(r'<a href="(/runs/graded/samples[^"]*)" aria-label="Reward ([^:]*): (\d+)', page)
    assert [count for *_, count in columns] == ["2"] * 19 + ["3"]
    words = view.words(columns[-1][0].replace("&amp;", "&"))
    assert (columns[-1][1], "3 rollouts ·" in words) == ("0.95 to 1", True)

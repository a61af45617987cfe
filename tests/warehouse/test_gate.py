"""A gate over published runs, folders and nights: verdicts, records and the command."""

import json
import shutil
from dataclasses import replace

import pytest

from nightjar import analysis
from nightjar.analysis.gates.policy import AcceptedNights, GatePolicy, GateRule
from nightjar.errors import ConfigError
from nightjar.reports.gate import gate_report
from nightjar.warehouse.storage.records import Night, NightEvaluation

pytestmark = pytest.mark.slow
EXAMPLES = 400
POLICY = """
version: 1
defaults: {max_drop: 0.03}
benchmarks:
  gsm8k: {tier: critical}
  mmlu:
"""


@pytest.fixture
def house(house, terminal):
    (terminal / "policy.yaml").write_text(POLICY)
    return Nightly(house)


@pytest.fixture(scope="module")
def prepared(shared_house):
    """A folder with two runs, one of them worse, and three nights, for tests to copy."""
    house = Nightly(shared_house)
    house.publish("before"), house.publish("worse", right=200)
    for day in range(1, 4):
        house.night(f"2026-11-0{day}", gsm8k=0.9, mmlu=0.95)
    return house.folder


@pytest.fixture
def filled(house, prepared):
    """A copy of the prepared folder."""
    shutil.copytree(prepared, house.folder, dirs_exist_ok=True)
    return house


class Nightly:
    """Publishes runs of 400 examples, of which some are right, and nights of them."""

    def __init__(self, house):
        self.folder, self.warehouse, self._write = house.folder, house.warehouse, house.write

    def write(self, place, env_id, right, **metadata):
        folder = self.folder / "runs" / place
        return self._write(place.replace("/", "-"), right, place=folder, env_id=env_id, **metadata)

    def publish(self, run_id, env_id="gsm8k", right=300, **metadata):
        right = [n < right for n in range(EXAMPLES)] if isinstance(right, int) else right
        self.warehouse.publish(self.write(run_id, env_id, right, **metadata), tidies=False)
        return run_id

    def night(self, date, *, gsm8k, mmlu=None, **metadata):
        """Publishes a night of a suite, and judges it."""
        import numpy as np

        draw = np.random.default_rng(int(date.replace("-", "")))
        for name, ease in {"gsm8k": gsm8k, "mmlu": mmlu}.items():
            if ease is not None:
                told = {"suite": "nightly", "tags": [f"night:{date}"], "started_at": f"{date}T02:00:00Z"}
                self.publish(f"{date}-{name}", name, draw.random(EXAMPLES) < ease, **{**told, **metadata})
        evaluations = [NightEvaluation(name, "missing", name, "m") for name in ("gsm8k", "mmlu")]
        judged = analysis.judge_night(self.warehouse, Night("nightly", date, "running", evaluations=evaluations))
        self.warehouse.write_night(judged)
        return judged


def test_a_listed_benchmark_that_a_side_lacks_is_a_no_go_whatever_its_name(filled):
    filled.publish("after")
    found = analysis.gate(filled.folder / "policy.yaml", "before", "after", warehouse=filled.warehouse)
    assert [(one.name, one.outcome) for one in found.benchmarks] == [("gsm8k", "PASS"), ("mmlu", "MISSING")]
    assert found.reason.endswith(
        "mmlu (supporting): there is no run of this benchmark in the baseline and the candidate."
    )
    (
        filled.publish("first", "synth"),
        filled.publish("other", "synth3"),
        filled.publish("named", "synth", name="easy"),
    )
    listed = {"synth": GateRule(tier="critical", max_drop=0.001)}
    found = analysis.gate(GatePolicy(version=1, benchmarks=listed), "first", "other", warehouse=filled.warehouse)
    assert (found.decision, found.named("MISSING"), found.not_gated) == ("NO-GO", ["synth"], ["synth3"])
    assert found.benchmarks[0].reason == "There is no run of this benchmark in the candidate."
    easy = {**listed, "easy": GateRule(max_drop=0.5)}
    found = analysis.gate(GatePolicy(version=1, benchmarks=easy), "first", "named", warehouse=filled.warehouse)
    outcomes = [(one.name, one.margin, one.outcome) for one in found.benchmarks]
    assert outcomes == [("synth", 0.001, "INSUFFICIENT"), ("easy", None, "MISSING")]


def test_two_environments_are_no_benchmark_though_their_examples_are_the_same(house):
    house.publish("before", "synth"), house.publish("other", "synth3")
    found = analysis.gate(GatePolicy(version=1), "before", "other", warehouse=house.warehouse)
    assert (found.decision, found.benchmarks[0].outcome) == ("INCONCLUSIVE", "INSUFFICIENT")
    assert found.benchmarks[0].reason.startswith("The baseline's environment is 'synth', the candidate's is 'synth3'")


def test_a_thin_part_of_the_baseline_is_no_go_and_a_large_one_says_so(filled, nightjar):
    filled.publish("few", right=[1.0] * 20), filled.publish("most", right=[1.0] * 300)
    (filled.folder / "policy.yaml").write_text("version: 1\ndefaults: {max_drop: 0.2}\n")
    told = {to: nightjar("gate", "-p", "policy.yaml", "before", to) for to in ("few", "most")}
    assert {to: one.out.split()[0] for to, one in told.items()} == {"few": "INCONCLUSIVE", "most": "GO"}
    for to, count in {"few": 380, "most": 100}.items():
        said = told[to].words
        assert f"{count} of the baseline's 400 examples are not in the candidate." in said


def test_folders_with_several_benchmarks_and_the_baseline_of_the_policy(house):
    for side in ("before", "after"):
        for name in ("gsm8k", "mmlu", "other"):
            house.write(f"{side}/{name}", name, [1.0] * EXAMPLES)
    house.write("after/new", "new", [1.0])
    rules = {"gsm8k": GateRule(tier="critical"), "mmlu": GateRule(tier="advisory")}
    policy = GatePolicy(version=1, baseline=str(house.folder / "runs/before"), benchmarks=rules)
    found = analysis.gate(policy, candidate=house.folder / "runs/after", warehouse=house.warehouse, record=True)
    assert (found.decision, [one.name for one in found.benchmarks]) == ("GO", ["gsm8k", "other", "mmlu"])
    assert (found.not_gated, found.gate_id) == (["new"], "")


def test_empty_folders_pass_nothing_and_a_side_without_a_name_is_an_error(house):
    (house.folder / "empty").mkdir()
    policy, empty = GatePolicy(version=1), house.folder / "empty"
    assert analysis.gate(policy, empty, empty, warehouse=house.warehouse).decision == "INCONCLUSIVE"
    house.publish("after")
    found = analysis.gate(policy, empty, "after", warehouse=house.warehouse)
    assert (found.decision, found.not_gated) == ("INCONCLUSIVE", ["gsm8k"])
    assert analysis.gate("policy.yaml", empty, empty, warehouse=house.warehouse).decision == "NO-GO"
    with pytest.raises(ConfigError, match="Name the baseline, here or in the policy: nightjar gate"):
        analysis.gate(policy, candidate="after", warehouse=house.warehouse)


def test_a_gate_takes_any_metric_and_names_a_run_that_is_not_whole(house):
    metrics = [{"seconds": 1.0 + n % 3} for n in range(EXAMPLES)]
    house.publish("before", metrics=metrics)
    house.publish("half", rollouts=2 * EXAMPLES, status="incomplete", metrics=metrics)
    seconds = GateRule(metric="seconds", direction="lower_is_better", max_drop=0.1)
    policy = GatePolicy(version=1, benchmarks={"gsm8k": seconds})
    found = analysis.gate(policy, "before", "half", warehouse=house.warehouse)
    assert (found.decision, found.benchmarks[0].baseline_mean) == ("INCONCLUSIVE", pytest.approx(1.9975))
    assert found.benchmarks[0].reason.startswith("400 rollouts of the candidate are missing")


def test_a_verdict_is_kept_for_sql(filled):
    found = analysis.gate(GatePolicy(version=1), "before", "worse", warehouse=filled.warehouse, record=True)
    [row] = filled.warehouse.query("SELECT verdict, breached, level, policy_sha256 FROM gate_decisions").rows
    assert row == ("NO-GO", ["gsm8k"], 0.025, GatePolicy(version=1).sha256)
    [row] = filled.warehouse.query(
        "SELECT decision, difference, high < -0.2, p < 1e-6, pairs, clusters, seed, margin, baseline_coverage, "
        "candidate_runs FROM comparisons WHERE gate_id = ?", [found.gate_id],
    ).rows  # fmt: skip
    assert row == ("BREACH", -0.25, True, True, 400, 400, 0, 0.015, 1.0, ["worse"])


NIGHTS = GatePolicy(version=1, baseline=AcceptedNights(accepted_nights=7), defaults=GateRule(max_drop=0.05))


def gate_of(house, asked="", **wanted):
    return analysis.gate(NIGHTS, candidate=asked, warehouse=house.warehouse, **wanted)


@pytest.mark.long
def test_the_newest_night_beside_the_accepted_ones(filled):
    for day in range(4, 8):
        filled.night(f"2026-11-0{day}", gsm8k=0.9, mmlu=0.95)
    found = gate_of(filled)
    assert (found.decision, found.candidate, found.suite) == ("GO", "nightly@2026-11-07", "nightly")
    assert [len(one.baseline_runs) for one in found.benchmarks] == [6, 6]
    assert [window.nights for window in found.benchmarks[0].windows] == [1, 2, 4]
    filled.night("2026-11-08", gsm8k=0.6, mmlu=0.95)
    worse = gate_of(filled, "nightly", record=True)
    assert (worse.decision, worse.named("BREACH")) == ("NO-GO", ["gsm8k"])
    assert worse.level == pytest.approx(1 / 365)
    rows = filled.warehouse.query("SELECT suite, night::VARCHAR, verdict FROM gate_decisions").rows
    assert rows == [("nightly", "2026-11-08", "NO-GO")]


def test_the_first_night_has_nothing_to_be_compared_with_and_a_listed_benchmark_without_a_run_is_missing(house):
    house.night("2026-11-01", gsm8k=0.9, mmlu=0.9)
    found = gate_of(house)
    assert (found.decision, found.named("INSUFFICIENT")) == ("INCONCLUSIVE", ["gsm8k", "mmlu"])
    assert found.benchmarks[0].reason == "No earlier accepted night has this benchmark."
    with pytest.raises(ConfigError, match="No night 2026-11-09 of suite 'nightly' has ended"):
        gate_of(house, "nightly@2026-11-09")
    house.night("2026-11-02", gsm8k=0.9)
    assert gate_of(house).decision == "INCONCLUSIVE"
    listed = NIGHTS.model_copy(update={"benchmarks": {"mmlu": GateRule()}})
    found = analysis.gate(listed, candidate="nightly@2026-11-02", warehouse=house.warehouse)
    assert (found.decision, found.named("MISSING")) == ("NO-GO", ["mmlu"])


@pytest.mark.long
def test_a_stopped_night_is_no_baseline_until_it_is_accepted_by_hand(filled):
    rule = {"defaults": GateRule(max_drop=0.0), "false_alarms_a_year": 100}
    strict = NIGHTS.model_copy(update=rule)
    filled.night("2026-11-04", gsm8k=0.85, mmlu=0.95)
    stopped = analysis.gate(strict, warehouse=filled.warehouse, record=True)
    filled.night("2026-11-05", gsm8k=0.9, mmlu=0.95)
    assert (stopped.decision, beside(gate_of(filled))) == ("NO-GO", ["2026-11-01", "2026-11-02", "2026-11-03"])
    [low] = [night for night in filled.warehouse.nights() if night.night == "2026-11-04"]
    filled.warehouse.write_night(analysis.judge_night(filled.warehouse, replace(low, is_accepted_by_hand=True)))
    assert beside(gate_of(filled)) == ["2026-11-04"]


@pytest.mark.long
def test_nights_of_other_settings_are_no_part_of_a_window(house):
    for day in range(1, 6):
        house.night(f"2026-11-0{day}", gsm8k=0.9, mmlu=0.9, model="old" if day < 5 else "new")
    [gsm8k, _] = gate_of(house).benchmarks
    assert [(window.nights, len(window.baseline)) for window in gsm8k.windows] == [(1, 4)]


def beside(found):
    return [run_id.removesuffix("-gsm8k") for run_id in found.benchmarks[0].baseline_runs]


@pytest.mark.long
def test_the_exit_code_is_the_verdict_unless_that_is_switched_off(house, nightjar):
    for name in ("gsm8k", "mmlu"):
        for side, right in {"before": 300, "same": 300, "worse": 200}.items():
            house.write(f"{side}/{name}", name, [n < right for n in range(EXAMPLES)])
        house.write(f"few/{name}", name, [True] * 5)
    sides = [house.folder / "runs" / side for side in ("before", "same", "worse", "few")]
    for candidate, code, verdict in zip(sides[1:], (0, 1, 2), ("GO", "NO-GO", "INCONCLUSIVE"), strict=True):
        told = nightjar("gate", "-p", "policy.yaml", sides[0], candidate)
        assert (told.code, told.out.split()[0]) == (code, verdict)
        assert told.width <= 80
        if verdict == "NO-GO":
            assert "gsm8k: The candidate is worse by 0.2500, and 0.03 is allowed" in told.words
            assert nightjar("gate", "-p", "policy.yaml", sides[0], candidate, "--no-strict").code == 0
    assert nightjar("gate", "a", "b", "c", "-p", "policy.yaml").code == 2
    assert nightjar("gate", "a", "b", "-p", "none.yaml").err.startswith("Error: There is no file 'none.yaml'")


def test_every_format_has_the_same_and_a_file_all_of_it(filled, nightjar):
    command = ["gate", "-p", "policy.yaml", "before", "worse", "--no-strict"]
    # by hand: 1/402 gained, 101/402 lost, error sqrt((102/402 - (100/402)^2) / 402) = 0.02185, 1.966 of it each way
    told = nightjar(*command, "-o", "told.json", "--format", "markdown", "--verbose")
    assert told.out.startswith("## NO-GO\n\n2 of 2 benchmarks did not pass: gsm8k (critical), mmlu.\n")
    assert "| gsm8k | critical | BREACH | 0.7500 | 0.5000 | -0.2500 | [-0.292, -0.206] | -0.03 | 400 |" in told.out
    written = json.loads((filled.folder / "told.json").read_text())
    assert written["gate_id"] in told.err
    sql = f"SELECT count(*) AS n FROM comparisons WHERE gate_id = '{written['gate_id']}'"
    assert nightjar("sql", sql, "--json").json == [{"n": 2}]
    for asked in (["--json"], ["--format", "json"]):
        assert json.loads(nightjar(*command, *asked, "--no-record").out) == {**written, "gate_id": ""}


def test_a_verdict_about_folders_is_not_recorded_and_says_so(house, nightjar, caplog):
    for side in ("before", "same"):
        house.write(f"{side}/gsm8k", "gsm8k", [True] * 5)
    command = ["gate", "-p", "policy.yaml", house.folder / "runs/before", house.folder / "runs/same"]
    assert "Recorded" not in nightjar(*command).err
    assert "The verdict is not recorded, because the runs of a side are not in" in caplog.text
    caplog.clear()
    nightjar(*command, "--no-record")
    assert not caplog.text


def test_the_gate_of_a_night_is_written_as_markdown(house, nightjar):
    (house.folder / "nightly.yaml").write_text("version: 1\nbaseline: {accepted_nights: 7}\n")
    house.night("2026-11-01", gsm8k=0.9, mmlu=0.9), house.night("2026-11-02", gsm8k=0.9, mmlu=0.9)
    told = nightjar("gate", "-p", "nightly.yaml", "nightly", "--format", "markdown", "--no-strict")
    assert "Candidate: nightly@2026-11-02. Baseline: the last 7 accepted nights. In a year without" in told.out
    assert "This night beside 1: worse by" in told.out
    assert told.out.strip() == gate_report(analysis.gate(house.folder / "nightly.yaml")).strip()

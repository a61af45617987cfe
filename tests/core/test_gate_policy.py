"""The policy of a gate: the format of NeMo Evaluator, and what Nightjar adds to it."""

import pytest

from nightjar.analysis.gates.policy import AcceptedNights, GatePolicy, GateRule
from nightjar.errors import ConfigError


def read(tmp_path, text):
    if text is not None:
        (tmp_path / "policy.yaml").write_text(text)
    return GatePolicy.read(tmp_path / "policy.yaml")


def test_a_policy_has_the_format_of_nemo_evaluator(tmp_path):
    policy = read(
        tmp_path,
        """
            version: 1
            defaults: {tier: supporting, max_drop: 0.015, max_relative_drop: 0.1, relative_guard_below: 0.2,
                       metric: mean_reward, direction: higher_is_better}
            benchmarks:
              mmlu: {tier: critical, max_drop: 0.01, metric: pass@1}
              latency: {metric: seconds, direction: lower_is_better, max_relative_drop: null}
              gsm8k:
            """,
    )
    assert policy.rule("mmlu") == GateRule(
        tier="critical", max_drop=0.01, max_relative_drop=0.1, relative_guard_below=0.2, metric="pass@1"
    )
    assert (policy.rule("mmlu").measured, policy.rule("other").measured) == ("correct", "reward")
    assert policy.rule("latency").max_relative_drop is None
    assert policy.rule("gsm8k") == policy.rule("not listed") == policy.defaults
    assert (policy.min_pairs, policy.correction, policy.level) == (10, "holm", 0.025)
    assert len(policy.sha256) == 64


def test_what_is_wrong_in_a_policy_is_named_and_its_numbers_are_read(tmp_path):
    for text, said in (
        ("version: 2", "version"),
        ("version: true", "version"),
        ("version: 1\nmin_pair: 3", "'min_pair'. Did you mean 'min_pairs'?"),
        ("version: 1\nbenchmarks: {a: {max_dorp: 1}}", "'benchmarks.a.max_dorp'. Did you mean 'max_drop'"),
        ("version: 1\nversion: 1", "'version' stands there twice"),
        ("version: 1\nbenchmarks: {a: {tier: critical}, a: {}}", "'a' stands there twice"),
        ("version: 1\nbenchmarks: {a: 3}", "benchmarks.a"),
        ("version: 1\ndefaults: {max_drop: null}", "defaults: there is no limit"),
        ("version: [", "while parsing a flow"),
        ("? [a]\n: 1", "unhashable"),
        ("", "is empty"),
        (None, "There is no file"),
        ("- 1", "expected a mapping"),
        *(
            (f"version: 1\ndefaults: {{max_drop: {value}}}", "defaults.max_drop")
            for value in ("-1", ".inf", "1e400", "true")
        ),
        ("version: 1\nbenchmarks: {a: {max_drop: '0.1'}}", "benchmarks.a.max_drop"),
        ("version: 1\nmin_pairs: '20'", "min_pairs"),
        ("version: 1\nalpha: .nan", "alpha"),
        ("version: 1\nbaseline: {accepted_nights: 0}", "baseline.accepted_nights"),
        ("version: 1\nbaseline: 3", "baseline"),
        ("version: 1\nbaseline: {nights: 3}", "baseline.accepted_nights"),
    ):
        (tmp_path / "policy.yaml").unlink(missing_ok=True)
        with pytest.raises(ConfigError) as raised:
            read(tmp_path, text)
        assert said in str(raised.value)
        assert str(tmp_path / "policy.yaml") in str(raised.value)
        assert "string>" not in str(raised.value)
    policy = read(tmp_path, "version: 1\nbaseline: {accepted_nights: 7}\nfalse_alarms_a_year: 2\n")
    assert policy.baseline == AcceptedNights(accepted_nights=7)
    assert policy.level == pytest.approx(2 / 365)
    small = read(tmp_path, "version: 1\ndefaults: {max_drop: 1e-3}")
    assert small.defaults.max_drop == 0.001, "as it is often written"
    rule = GateRule(max_drop=0.02, max_relative_drop=0.1, relative_guard_below=0.3)
    assert [rule.margin(baseline) for baseline in (0.1, 0.25, 0.5)] == pytest.approx([0.01, 0.02, 0.02])
    assert GateRule(max_drop=None, max_relative_drop=0.1).margin(0.5) == pytest.approx(0.05)

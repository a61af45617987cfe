"""The command that completes an incomplete rescoring."""

import json

from nightjar.engine.runs import RunMetadata, Summary
from nightjar.evaluation import Outcome

RESUME, RESCORE = "Resume run old.", "Score them again: nightjar eval rescore old --rubric strict.py:exact"


def _rescored(path, errors, error=None):
    config = {"selected_examples": 4, "dataset_fingerprint": None, "env_args": {}}
    (path / "config.json").write_text(json.dumps({**config, "rescored_from": "old", "rubric": "strict.py:exact"}))
    failed = sum(errors.values())
    summary = Summary(
        rollouts=4, scored=2, failed=failed, avg_reward=None, stderr=None, avg_metrics={}, pass_at_k={}, pass_all_k={},
        usage=None, errors=errors, stop_conditions={}, truncated=0, models=[],
        error_examples=dict.fromkeys(errors, "no"),
    )  # fmt: skip
    metadata = RunMetadata(
        run_id="new", status="incomplete", env_id="sums", env_args={}, env_version=None, model="m", base_url=None,
        num_examples=4, rollouts_per_example=1, sampling_args={}, dataset_fingerprint=None, pass_threshold=0.5,
        version_info={}, rescored_from="old", summary=summary,
    )  # fmt: skip
    return Outcome(path, metadata, "warehouse", error=error)


def test_a_source_that_lacks_rollouts_is_resumed_and_else_scored_again(tmp_path):
    for errors, error, remedy in [
        ({"ScoringError -> JudgeVerdictError": 2}, None, RESCORE),
        ({"ScoringError -> ZeroDivisionError": 1, "ScoringError": 1}, None, RESCORE),
        ({}, KeyboardInterrupt(), RESCORE), ({"ModelError -> APIError": 2}, None, RESUME),
        ({"ScoringError -> JudgeVerdictError": 1, "ModelError": 1}, None, RESUME),
        ({"ScoringError -> JudgeVerdictError": 1}, None, RESUME), ({}, None, RESUME),
    ]:  # fmt: skip
        assert f"2 of 4 rollouts of run new are missing. {remedy}" in _rescored(tmp_path, errors, error).reasons

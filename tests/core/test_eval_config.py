"""``EvalConfig``, an evaluation in verifiers' format, and its run configuration."""

from __future__ import annotations

import pytest

from nightjar.clients import ClientConfig
from nightjar.compat.verifiers.config import EvalConfig
from nightjar.errors import ConfigError


def test_it_becomes_a_run_configuration() -> None:
    config = EvalConfig(
        env_id="arithmetic",
        env_args={"largest": 9},
        model="qwen3-8b",
        client_config=ClientConfig(api_base_url="http://localhost:8000/v1", api_key_var="VLLM_API_KEY", timeout=60),
        sampling_args={"temperature": 0.7},
        num_examples=-1,
        rollouts_per_example=8,
        extra_env_kwargs={"max_turns": 2},
        state_columns=["timed_out"],
    )
    run = config.run_config()
    assert (run.env_id, run.env_args, run.model, run.num_examples) == ("arithmetic", {"largest": 9}, "qwen3-8b", -1)
    assert (run.base_url, run.api_key_var, run.request_timeout) == ("http://localhost:8000/v1", "VLLM_API_KEY", 60)
    assert (run.rollouts_per_example, run.sampling_args) == (8, {"temperature": 0.7})
    assert (run.extra_env_kwargs, run.state_columns) == ({"max_turns": 2}, ["timed_out"])


def test_fields_that_a_run_does_not_support_are_refused() -> None:
    config = EvalConfig(env_id="arithmetic", model="m", client_config=ClientConfig(extra_headers={"X-Team": "a"}))
    with pytest.raises(ConfigError, match=r"client_config\.extra_headers"):
        config.run_config()

"""The keyword arguments of ``nightjar.evaluate`` are the fields of a run's configuration."""

import inspect
import subprocess
import sys
from typing import get_args, get_type_hints

import nightjar
from nightjar.api.settings import RunSettings
from nightjar.evaluation.config import RunConfig

FIELDS = {name: field for name, field in RunConfig.model_fields.items() if name != "env_id"}


def test_every_field_is_a_setting_in_the_same_order_which_accepts_none_if_its_field_does():
    assert list(RunSettings.__annotations__) == list(FIELDS)
    accepts_none = {name for name, kind in get_type_hints(RunSettings).items() if type(None) in get_args(kind)}
    assert accepts_none == {name for name, field in FIELDS.items() if type(None) in get_args(field.annotation)}


def test_help_shows_every_setting_with_its_default_and_text():
    parameters = inspect.signature(nightjar.evaluate).parameters
    assert set(parameters) == {"env", *FIELDS, "resume", "output_dir", "warehouse", "progress"}
    assert (parameters["max_concurrent"].default, parameters["max_concurrent"].annotation) == (32, int)
    assert (parameters["num_examples"].default, parameters["num_examples"].annotation) == (None, int | None)
    text = inspect.getdoc(nightjar.evaluate)
    assert "    temperature: Sampling temperature, unless sampling_args set it (default: the endpoint's)." in text
    assert "**settings" not in text


def test_importing_nightjar_takes_little_cpu_and_imports_nothing_large():
    code = (
        "import time, sys; began = time.process_time(); import nightjar; took = time.process_time() - began\n"
        "print(took < 1, {'pydantic', 'numpy', 'rich', 'aiohttp'} & sys.modules.keys())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "True set()\n", ran.stderr

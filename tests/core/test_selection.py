"""The examples of a run, and whether a run on disk may be resumed."""

import os

import pytest

from nightjar.engine.runs import RunDirectory, runs_folder
from nightjar.engine.runs.identity import check_same, fingerprint
from nightjar.environments.data import Examples
from nightjar.errors import DatasetError, ResumeMismatchError
from nightjar.evaluation.config import RunConfig
from nightjar.evaluation.preparation import select_examples
from nightjar.evaluation.resuming import find_resumable


def examples(count=10, prefix="q"):
    return Examples([{"question": f"{prefix}{number}"} for number in range(count)])


def config(**fields):
    values = {"env_id": "e", "model": "m", "num_examples": 4, "rollouts_per_example": 2}
    return RunConfig(**values | fields)


def ids(count=10, **fields):
    return list(select_examples(examples(count), config(**fields)))


def test_the_first_examples_are_selected_and_a_seed_draws_others_the_same_each_time():
    assert ids(10, num_examples=4) == [0, 1, 2, 3]
    assert ids(10, num_examples=-1) == list(range(10))
    assert ids(3, num_examples=4) == [0, 1, 2]
    drawn = ids(100, shuffle_seed=7)
    assert drawn == ids(100, shuffle_seed=7) != ids(100, shuffle_seed=8)
    assert (len(set(drawn)), drawn != [0, 1, 2, 3]) == (4, True)
    for seed in (None, 7):
        longer, shorter = (select_examples(examples(), config(num_examples=n, shuffle_seed=seed)) for n in (8, 4))
        assert list(longer.items())[:4] == list(shorter.items())
        assert fingerprint(shorter.values()) != fingerprint(longer.values())


def test_a_dataset_that_cannot_be_built_names_the_line():
    with pytest.raises(DatasetError, match=r"'e' .*ZeroDivisionError: .* \(test_selection.py, line \d+\)"):
        select_examples(Examples(lambda: 1 / 0), config())


@pytest.fixture
def saved(tmp_path):
    """Writes a run directory as ``load_env`` does, and returns it."""

    def save(run_id="r1", status="incomplete", env_version="1.0", dataset=None, published=False, **fields):
        asked = config(**fields)
        selection = select_examples(dataset or examples(), asked)
        folder = runs_folder(asked.env_id, asked.model, tmp_path)
        facts = {"selected_examples": len(selection), "dataset_fingerprint": fingerprint(selection.values())}
        with RunDirectory(folder / run_id) as directory:
            directory.write_config({**asked.model_dump(mode="json"), **facts, "env_version": env_version})
            directory.write_metadata({"status": status, "published_at": "now" if published else None})
        return directory

    return save


def check(directory, dataset=None, env_version="1.0", **fields):
    asked = config(**fields)
    hashes = select_examples(dataset or examples(), asked)
    check_same(directory, asked.identity(), list(hashes.values()), env_version)


def differences(directory, **fields):
    with pytest.raises(ResumeMismatchError) as caught:
        check(directory, **fields)
    return caught.value.differences


def test_only_settings_that_do_not_change_results_may_differ_on_a_resume(saved):
    directory = saved()
    for fields in (
        {}, {"max_concurrent": 1}, {"max_retries": 9}, {"api_key_var": "K"}, {"request_timeout": 1},
        {"num_examples": 8}, {"num_examples": -1}, {"dataset": examples(50)},
    ):  # fmt: skip
        check(directory, **fields)
    for seed in (None, 7):
        found = differences(saved(f"seed {seed}", shuffle_seed=seed), num_examples=3, shuffle_seed=seed)
        assert found == {"num_examples": (4, 3)}
    found = differences(saved("all", num_examples=-1), num_examples=-1, dataset=examples(6))
    assert found == {"num_examples": (10, 6)}
    directory, local = saved(), "http://127.0.0.1:1/v1"
    old_type, new_type = "openai_chat_completions", "anthropic_messages"
    for fields, found in (
        ({"env_args": {"split": "train"}}, {"env_args": ({}, {"split": "train"})}),
        ({"base_url": local}, {"base_url": ("https://api.pinference.ai/api/v1", local)}),
        ({"sampling_args": {"temperature": 1.0}}, {"sampling_args": ({}, {"temperature": 1.0})}),
        ({"api_client_type": new_type}, {"api_client_type": (old_type, new_type)}),
        ({"env_version": "1.1"}, {"env_version": ("1.0", "1.1")}),
        ({"model": "other", "rollouts_per_example": 3}, {"model": ("m", "other"), "rollouts_per_example": (2, 3)}),
    ):
        assert differences(directory, **fields) == found
    # another dataset or order is another fingerprint
    assert set(differences(directory, shuffle_seed=7)) == {"shuffle_seed", "dataset_fingerprint"}
    assert set(differences(directory, dataset=examples(prefix="other"))) == {"dataset_fingerprint"}


@pytest.fixture
def found(tmp_path):
    """Returns the id of the run that these settings resume."""

    def found(**fields):
        directory = find_resumable(config(**fields), tmp_path)
        return directory and directory.run_id

    return found


def test_the_newest_unfinished_run_comes_before_a_finished_one(found, saved):
    def old(directory, age):
        os.utime(directory.path / "config.json", (2000 - age, 2000 - age))

    old(saved("done", status="completed", published=True), 0)
    assert found() == "done"
    for age, run_id in enumerate(["new", "middle", "old"], start=1000):
        old(saved(run_id), age)
    assert found() == "new"


def test_a_run_is_unfinished_if_it_is_unpublished_needs_more_examples_or_was_killed_before_its_metadata(found, saved):
    for published, count in ((False, 4), (True, 5), (True, -1)):
        saved(status="completed", published=published)
        assert found(num_examples=count) == "r1"
    (saved().path / "metadata.json").unlink()
    assert found() == "r1"


@pytest.mark.parametrize("fields", [{}, {"status": "completed", "published": True}], ids=["unfinished", "finished"])
def test_a_run_of_other_settings_is_an_error_unless_it_belongs_to_a_suite(found, saved, fields):
    saved(**fields)
    for field, value in (("num_examples", 3), ("rollouts_per_example", 3), ("sampling_args", {"top_p": 1})):
        with pytest.raises(ResumeMismatchError) as caught:
            found(**{field: value})
        assert set(caught.value.differences) == {field}
    saved(suite="nightly", **fields)
    assert found(rollouts_per_example=3) is None
    assert found(rollouts_per_example=3, suite="nightly") is None

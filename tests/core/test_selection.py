"""Which examples a run takes, and whether a run on disk may be gone on with."""

import os

import pytest

from nightjar.engine.runs import RunDirectory, runs_folder
from nightjar.engine.runs.identity import check_same
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


class TestSelection:
    def ids(self, count=10, **fields):
        return list(select_examples(examples(count), config(**fields)).hashes)

    def test_the_first_in_the_order_of_the_dataset(self):
        assert self.ids() == [0, 1, 2, 3]

    def test_all_of_them(self):
        assert self.ids(num_examples=-1) == list(range(10))

    def test_no_more_than_there_are(self):
        assert self.ids(3) == [0, 1, 2]

    def test_a_seed_draws_others_and_the_same_each_time(self):
        drawn = self.ids(100, shuffle_seed=7)
        assert drawn == self.ids(100, shuffle_seed=7)
        assert drawn != [0, 1, 2, 3]
        assert len(set(drawn)) == 4

    def test_another_seed_draws_others(self):
        assert self.ids(100, shuffle_seed=7) != self.ids(100, shuffle_seed=8)

    @pytest.mark.parametrize("seed", [None, 7])
    def test_a_longer_selection_begins_like_a_shorter_one(self, seed):
        assert self.ids(num_examples=8, shuffle_seed=seed)[:4] == self.ids(shuffle_seed=seed)

    def test_the_fingerprint_is_that_of_the_first_so_many(self):
        longer, shorter = (select_examples(examples(), config(num_examples=count)) for count in (8, 4))
        assert longer.fingerprint(4) == shorter.fingerprint() != longer.fingerprint()

    def test_a_function_that_cannot_build_it(self):
        def build():
            return 1 / 0

        with pytest.raises(
            DatasetError,
            match=r"dataset of environment 'e' cannot be built: ZeroDivisionError: .* \(test_selection.py, line \d+\)",
        ):
            select_examples(Examples(build), config())


@pytest.fixture
def saved(tmp_path):
    """Writes a run directory as ``load_env`` does, and returns it."""

    def save(run_id="r1", status="incomplete", env_version="1.0", dataset=None, published=False, **fields):
        asked = config(**fields)
        selection = select_examples(dataset or examples(), asked)
        folder = runs_folder(asked.env_id, asked.model, tmp_path)
        with RunDirectory(folder / run_id) as directory:
            directory.write_config(
                {
                    **asked.model_dump(mode="json"),
                    "selected_examples": len(selection.hashes),
                    "dataset_fingerprint": selection.fingerprint(),
                    "env_version": env_version,
                }
            )
            directory.write_metadata({"status": status, "published_at": "now" if published else None})
        return directory

    return save


class TestResuming:
    def check(self, directory, dataset=None, env_version="1.0", **fields):
        asked = config(**fields)
        hashes = select_examples(dataset or examples(), asked).hashes
        check_same(directory, asked.identity(), list(hashes.values()), env_version)

    def differences(self, directory, **fields):
        with pytest.raises(ResumeMismatchError) as caught:
            self.check(directory, **fields)
        return caught.value.differences

    def test_the_same_settings(self, saved):
        self.check(saved())

    @pytest.mark.parametrize(
        ("field", "value", "before"),
        [
            ("env_args", {"split": "train"}, {}),
            ("model", "other", "m"),
            ("base_url", "http://localhost:1/v1", "https://api.pinference.ai/api/v1"),
            ("sampling_args", {"temperature": 1.0}, {}),
            ("rollouts_per_example", 3, 2),
            ("api_client_type", "anthropic_messages", "openai_chat_completions"),
        ],
    )
    def test_a_setting_that_changes_results(self, saved, field, value, before):
        assert self.differences(saved(), **{field: value}) == {field: (before, value)}

    def test_another_seed_draws_another_dataset(self, saved):
        assert set(self.differences(saved(), shuffle_seed=7)) == {"shuffle_seed", "dataset_fingerprint"}

    def test_all_differences_are_listed(self, saved):
        found = self.differences(saved(), model="other", rollouts_per_example=3)
        assert set(found) == {"model", "rollouts_per_example"}

    @pytest.mark.parametrize(
        "fields", [{"max_concurrent": 1}, {"max_retries": 9}, {"api_key_var": "K"}, {"request_timeout": 1}], ids=str
    )
    def test_a_setting_that_does_not(self, saved, fields):
        self.check(saved(), **fields)

    def test_another_version_of_the_environment(self, saved):
        assert self.differences(saved(), env_version="1.1") == {"env_version": ("1.0", "1.1")}

    def test_another_dataset(self, saved):
        assert set(self.differences(saved(), dataset=examples(prefix="other"))) == {"dataset_fingerprint"}

    def test_num_examples_may_grow(self, saved):
        self.check(saved(), num_examples=8)

    def test_up_to_all(self, saved):
        self.check(saved(), num_examples=-1)

    @pytest.mark.parametrize("seed", [None, 7])
    def test_num_examples_may_not_shrink(self, saved, seed):
        found = self.differences(saved(shuffle_seed=seed), num_examples=3, shuffle_seed=seed)
        assert found == {"num_examples": (4, 3)}

    def test_a_dataset_may_grow_behind_what_was_taken(self, saved):
        self.check(saved(), dataset=examples(50))

    def test_all_examples_of_a_dataset_that_has_shrunk(self, saved):
        found = self.differences(saved(num_examples=-1), num_examples=-1, dataset=examples(6))
        assert found == {"num_examples": (10, 6)}


class TestFinding:
    def found(self, tmp_path, **fields):
        directory = find_resumable(config(**fields), tmp_path)
        return directory and directory.run_id

    def test_nothing_where_there_is_no_run(self, tmp_path):
        assert self.found(tmp_path) is None

    def test_the_newest_that_is_not_complete(self, tmp_path, saved):
        for age, run_id in enumerate(["new", "middle", "old"]):
            os.utime(saved(run_id).path / "config.json", (1000 - age, 1000 - age))
        assert self.found(tmp_path) == "new"

    def test_one_that_is_complete_and_published_where_there_is_no_other(self, tmp_path, saved):
        done = saved("done", status="completed", published=True)
        os.utime(done.path / "config.json", (2000, 2000))
        assert self.found(tmp_path) == "done"
        os.utime(saved("open").path / "config.json", (1000, 1000))
        assert self.found(tmp_path) == "open"

    def test_one_that_is_complete_and_not_published(self, tmp_path, saved):
        saved(status="completed")
        assert self.found(tmp_path) == "r1"

    @pytest.mark.parametrize("count", [5, -1])
    def test_a_complete_one_when_more_is_wanted(self, tmp_path, saved, count):
        saved(status="completed", published=True)
        assert self.found(tmp_path, num_examples=count) == "r1"

    def test_not_one_that_took_more_than_is_wanted(self, tmp_path, saved):
        saved()
        with pytest.raises(ResumeMismatchError, match="num_examples: saved 4, asked for 3"):
            self.found(tmp_path, num_examples=3)

    @pytest.mark.parametrize(
        ("field", "value"), [("rollouts_per_example", 3), ("sampling_args", {"top_p": 1})], ids=str
    )
    def test_not_one_of_other_settings(self, tmp_path, saved, field, value):
        saved()
        with pytest.raises(ResumeMismatchError) as caught:
            self.found(tmp_path, **{field: value})
        assert set(caught.value.differences) == {field}

    def test_one_of_other_settings_that_is_complete_is_in_nobody_s_way(self, tmp_path, saved):
        saved(status="completed", published=True)
        assert self.found(tmp_path, rollouts_per_example=3) is None

    def test_an_evaluation_of_a_suite_is_no_near_miss_of_another(self, tmp_path, saved):
        saved(suite="nightly")
        assert self.found(tmp_path, suite="nightly", rollouts_per_example=3) is None
        assert self.found(tmp_path, rollouts_per_example=3) is None

    def test_not_one_of_another_model(self, tmp_path, saved):
        saved()
        assert self.found(tmp_path, model="x") is None

    def test_one_that_was_killed_before_its_metadata_was_written(self, tmp_path, saved):
        (saved().path / "metadata.json").unlink()
        assert self.found(tmp_path) == "r1"

"""TextArenaEnv: real games of TextArena, and data of NLTK that is small, or missing."""

import json
import random
from copy import copy
from importlib.util import find_spec
from types import SimpleNamespace

import orjson
import pytest

from nightjar.core.rollout import records
from nightjar.environments.games import nltk_data, textarena_env
from nightjar.environments.games.textarena_env import Luck, TextArenaEnv
from nightjar.environments.rubrics import Rubric
from nightjar.errors import ConfigError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (find_spec("nltk") and find_spec("textarena")), reason="needs the extra 'textarena'"),
]

WORDS = ["crane", "slate", "apple", "bread"]


@pytest.fixture(scope="session")
def small_words(tmp_path_factory):
    """A folder with as much of NLTK's data as Wordle needs: four words, each of them a noun."""
    root = tmp_path_factory.mktemp("nltk_data")
    words, tagger = root / "corpora" / "words", root / "taggers" / "averaged_perceptron_tagger_eng"
    words.mkdir(parents=True)
    tagger.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (words / name).write_text("\n".join(WORDS) + "\n")
    for part, content in {"weights": {}, "tagdict": dict.fromkeys(WORDS, "NN"), "classes": ["NN"]}.items():
        (tagger / f"{tagger.name}.{part}.json").write_text(json.dumps(content))
    return root


@pytest.fixture(scope="session")
def small_dictionary():
    """Has TextArena's dictionary know four words, in place of reading all, which takes seconds."""
    from textarena.envs.Wordle import env as wordle_game

    with pytest.MonkeyPatch.context() as patch:
        dictionary = SimpleNamespace(is_english_word=WORDS.__contains__)
        patch.setattr(wordle_game, "EnglishDictionary", lambda **_: copy(dictionary))
        yield


@pytest.fixture
def nltk_without_data(tmp_path, monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    return nltk


@pytest.fixture
def wordle(small_words, small_dictionary, monkeypatch, nltk_without_data):
    monkeypatch.setattr(nltk_without_data.data, "path", [str(small_words)])
    return lambda **kwargs: TextArenaEnv(num_train_examples=5, num_eval_examples=4, **kwargs)


def paid(state):
    return state.get("ta_reward", 0.0)


def guess(text):
    return f"<think>hmm</think><guess>[{text}]</guess>"


def test_wordle_gives_each_example_a_word_and_shares_its_dictionary_between_games(wordle):
    """The words that verifiers 0.1.14 draws from the same list with seed 0."""
    env = wordle()
    train, evaluate = env.ta_to_hf()
    assert train["answer"] == ["bread", "bread", "crane", "apple", "bread"]
    assert evaluate["answer"] == ["bread", "apple", "bread", "apple"]
    assert [env.examples[n]["answer"] for n in range(4)] == ["bread", "apple", "bread", "apple"]
    another, _ = env._with_word("slate")
    assert another.dictionary is env.ta_env.dictionary
    assert another.state is not env.ta_env.state


async def test_wordle_is_won_with_the_word_and_ends_after_two_guesses_that_are_none(wordle, play):
    state, client = await play(wordle(rubric=Rubric([paid])), guess("crane"), guess("bread"))
    assert "A secret 5-letter word has been chosen" in client.asked[0][0][-1].content
    assert "C R A N E\nX G Y X Y" in client.asked[1][0][-1].content
    assert state["completion"][-1].content == "Congratulations! You guessed the word correctly!"
    assert (state["reward"], state["ta_reward"], state["stop_condition"]) == (1.0, 1.0, "has_final_env_response")
    state, client = await play(wordle(), "I do not know")
    assert "You attempted an invalid move" in client.asked[1][0][-1].content
    assert state["completion"][-1].content.startswith("Invalid Move: ")
    assert (len(client.asked), state["ta_info"]["invalid_move"]) == (2, True)
    _, client = await play(wordle(), guess("crane"), "hmm", guess("bread"))
    assert "already guessed" not in client.asked[2][0][-1].content
    assert "must be exactly 5 letters" in client.asked[2][0][-1].content


async def test_each_of_several_rollouts_has_a_game_of_its_own(wordle, play):
    env = wordle(feedback_fn=lambda observation: f"Look: {observation}")
    first, _ = await play(env, guess("crane"), guess("bread"))
    second, client = await play(env, guess("crane"), guess("bread"))
    assert first["ta_info"] == second["ta_info"]
    assert client.asked[1][0][-1].content.startswith("Look: ")
    assert "You have 5 guesses left" in client.asked[1][0][-1].content


@pytest.fixture
def number():
    return TextArenaEnv("GuessTheNumber-v0", num_train_examples=9, rubric=Rubric([paid]))


async def test_games_start_as_the_seed_in_the_answer_says_and_score_the_same_when_read_back(number, play, make_state):
    """``random.seed(n); random.randint(1, 20)`` gives 13 for 0, 5 for 1 and 2 for 2."""
    for example_id, secret in enumerate([13, 5, 2]):
        state, _ = await play(number, guess(secret), example_id=example_id)
        assert (state["answer"], state["reward"]) == (str(example_id), 1.0)
    row, unsaved = records.attempt_row(state, 1, "h")
    assert unsaved == []
    fresh = make_state(columns=dict(number.examples[2]))
    restored = records.restore_state(fresh, orjson.loads(orjson.dumps(row)))
    await number.rubric.score_group([restored])
    assert (restored["reward"], restored["ta_reward"]) == (1.0, 1.0)


async def test_games_have_random_numbers_of_their_own_and_leave_those_of_others_alone(play, number):
    """The tiles of 2048 appear by chance, and the same for the same seed, whatever else draws numbers."""
    env = TextArenaEnv("2048-v0", num_train_examples=1, max_turns=6)
    shown = []
    for noise in range(3):
        random.seed(noise)
        state, _ = await play(env, *[f"<guess>[{move}]</guess>" for move in ("up", "left", "down", "right")])
        shown.append([message.content for message in state["completion"]])
    assert shown[0] == shown[1] == shown[2]
    random.seed(3)
    expected = [random.random() for _ in range(2)]
    random.seed(3)
    drawn = [random.random()]
    await play(number, guess(13))
    assert [*drawn, random.random()] == expected
    random.seed(3)
    before = random.getstate()
    with pytest.raises(KeyError), Luck(1).drawn():
        raise KeyError
    assert random.getstate() == before


def test_a_game_that_cannot_be_played_is_named():
    for game in ("Wordle", "TicTacToe-v0"):  # an unknown game, a game for two
        with pytest.raises(ConfigError, match=f"'{game}'"):
            TextArenaEnv(game)


@pytest.mark.long
def test_a_game_whose_data_is_missing_says_what_to_download(nltk_without_data, monkeypatch, capfd):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(ConfigError, match=r"python -m nltk.downloader words averaged_perceptron_tagger_eng"):
        textarena_env._ensure("words")
    assert capfd.readouterr() == ("", "")


def test_other_data_is_named_and_a_download_that_hangs_is_ended_and_the_downloader_given_back(
    nltk_without_data, monkeypatch
):
    original = nltk_without_data.download
    with pytest.raises(ConfigError, match="cannot be downloaded: stopwords"), textarena_env.quiet_downloads():
        nltk_without_data.corpus.stopwords.words("english")
    with textarena_env.quiet_downloads():
        assert nltk_without_data.download is not original
    assert nltk_without_data.download is original
    monkeypatch.setattr(nltk_data, "_DOWNLOAD", "import time; time.sleep(60)")
    monkeypatch.setattr(nltk_data, "DOWNLOAD_SECONDS", 0.2)
    with pytest.raises(ConfigError, match="cannot be downloaded: words"):
        textarena_env._ensure(["words"])

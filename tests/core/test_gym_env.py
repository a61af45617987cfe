"""GymEnv: worlds with reset and step, written by hand and from gymnasium."""

import asyncio
import re
import sqlite3
import threading

import orjson
import pytest

from nightjar.core.rollout import records
from nightjar.environments.games import gym_env
from nightjar.environments.games.gym_env import EpisodicSumRubric, GymEnv, normalize_reset, normalize_step
from nightjar.environments.parsers import Parser


class Counter:
    """Counts up to a target: 1.0 when it is reached."""

    closed = 0

    def __init__(self, target=3, start=0):
        self.target, self.start = target, start

    def reset(self, seed):
        self.x = self.start
        return f"x={self.x} seed={seed}", {}

    def step(self, action):
        self.x += action
        done = self.x >= self.target
        return f"x={self.x}", float(done), done, False, {"x": self.x}

    def close(self):
        type(self).closed += 1


def world(**methods):
    """Makes a kind of counter with other methods and a count of its own of those that were closed."""
    return type("World", (Counter,), {"closed": 0, **methods})


def episodes(world=Counter, **kwargs):
    return GymEnv(world, **{"action_parser": int, "num_train_episodes": 0, "num_eval_episodes": 2} | kwargs)


def said(messages):
    return [message.content for message in messages]


async def test_an_episode_is_rewarded_with_the_sum_of_its_steps(play):
    class Halves(Counter):
        def step(self, action):
            observation, _, done, truncated, info = super().step(action)
            return observation, 0.5, done, truncated, info

    state, _ = await play(episodes(Halves), "1", "2", "thanks")
    assert [step["reward"] for step in state["trajectory"]] == [0.5, 0.5, 0.0]
    assert (state["reward"], state["error"]) == (1.0, None)
    assert state["metrics"] == {"sum_step_rewards": 1.0, "num_turns": 3.0}
    assert [step["extras"] for step in state["trajectory"]] == [{"gym_info": {"x": 1}}, {"gym_info": {"x": 3}}, {}]
    assert not {"gym_env", "gym_thread"} & state.keys()
    assert EpisodicSumRubric(weight=2.0).weights == [2.0]


async def test_an_episode_starts_with_what_its_seed_shows_and_ends_with_a_last_word_of_the_model(play):
    seeds = []
    noted = world(reset=lambda self, seed: seeds.append(seed) or Counter.reset(self, seed))
    state, client = await play(episodes(noted, seed=7, num_train_episodes=2), "3", example_id=1)
    assert said(client.asked[0][0]) == ["x=0 seed=10"]  # the fourth of the seeds from 7 on
    assert (state["answer"], seeds[-1]) == ("10", 10)
    for asks_after_end in (True, False):
        state, client = await play(episodes(ask_after_end=asks_after_end), "3", "thanks")
        assert said(state["completion"]) == ["3", "x=3\nEpisode already ended.", *["thanks"] * asks_after_end]
        assert (len(client.asked), state["reward"], state["gym_done"]) == (1 + asks_after_end, 1.0, True)
        assert state["stop_condition"] == "is_done" or not asks_after_end


async def test_info_is_converted_to_json_and_an_episode_scores_the_same_when_it_is_read_back_from_disk(
    play, make_state
):
    np = pytest.importorskip("numpy")

    class Arrays(Counter):
        def step(self, action):
            return "x", np.float32(0.5), np.bool_(True), np.bool_(False), {"mask": np.array([1, 0]), 3: {"a"}}

    state, _ = await play(episodes(Arrays), "1")
    assert state["trajectory"][0]["extras"]["gym_info"] == {"mask": [1, 0], "3": ["a"]}
    assert (state["reward"], state["gym_done"]) == (0.5, True)
    env = episodes()
    state, _ = await play(env, "1", "2", "thanks")
    saved = orjson.loads(orjson.dumps(records.attempt_row(state, 1, "h")[0]))
    restored = records.restore_state(make_state(columns=dict(env.examples[0])), saved)
    await env.rubric.score_group([restored])
    assert (restored["reward"], restored["gym_done"]) == (1.0, True)


async def test_actions_that_cannot_be_parsed_end_the_episode_without_a_reward(play):
    state, _ = await play(episodes(), "left", "sorry")
    assert said(state["completion"])[1].startswith("Action Parsing Error: invalid literal")
    assert (state["reward"], state["gym_done"], state["stop_condition"]) == (0.0, True, "is_done")

    class LooksBack(Parser):
        """An XML parser looks further back for a tag that the last message lacks, and would repeat an action."""

        def parse_answer(self, completion):
            return next((m.content for m in reversed(completion) if str(m.content).isdigit()), None)

    state, _ = await play(episodes(parser=LooksBack()), "1", "hmm")
    assert said(state["completion"])[3].startswith("Action Parsing Error")


async def test_actions_are_texts_or_found_by_the_environment_s_parser_and_then_by_an_async_function(play):
    words = world(step=lambda self, action: ("x", float(action == "left"), True, {}))
    state, _ = await play(GymEnv(words, num_train_episodes=0), "left")
    assert state["reward"] == 1.0

    async def parse(text):
        return int(text)

    parser = Parser(lambda text: found.group(1) if (found := re.search(r"<(\d)>", text)) else None)
    state, _ = await play(episodes(parser=parser, action_parser=parse), "I take <2>", "1")
    assert [step["extras"] for step in state["trajectory"][:2]] == [{"gym_info": {"x": 2}}, {"gym_info": {"x": 3}}]


async def test_the_limit_of_steps_takes_the_last_action_and_leaves_an_unfinished_episode_unfinished(play):
    state, client = await play(episodes(max_episode_steps=3), "1")
    assert (len(client.asked), state["reward"], state["gym_done"]) == (3, 1.0, True)
    assert state["stop_condition"] == "max_turns_reached"
    state, _ = await play(episodes(max_episode_steps=1, env_kwargs={"target": 1}), "1")
    assert state["reward"] == 1.0
    state, _ = await play(episodes(max_episode_steps=2), "1")
    assert (len(state["trajectory"]), state["gym_done"], state["is_completed"]) == (2, False, True)
    assert said(state["completion"]) == ["1", "x=1", "1"]


async def test_worlds_are_closed_after_each_episode_and_when_they_raise_or_return_too_few_values(play):
    sound, broken = world(), world(step=lambda self, action: {}["board"])
    await play(episodes(sound), "3")
    assert sound.closed == 2  # the one that was reset for the first observations, and the one that was played
    state, _ = await play(episodes(broken), "1")
    assert (repr(state["error"]), state["reward"], broken.closed) == ("KeyError('board')", None, 2)
    state, _ = await play(episodes(world(step=lambda self, action: ("x", 1.0))), "1")
    assert (type(state["error"]), "('x', 1.0)" in str(state["error"])) == (TypeError, True)


async def test_worlds_that_do_not_close_are_abandoned(play, monkeypatch, caplog):
    monkeypatch.setattr(gym_env, "_CLOSE_SECONDS", 0.05)
    release = threading.Event()
    state, _ = await play(episodes(world(close=lambda self: self.x and release.wait(60))), "3")
    release.set()
    assert state["error"] is None
    assert "World did not close" in caplog.text


async def test_worlds_stay_in_the_thread_that_they_were_made_in(play):
    class Database(Counter):
        """A connection of SQLite refuses to be used from another thread."""

        def reset(self, seed):
            self.connection = sqlite3.connect(":memory:")
            return super().reset(seed)

        def step(self, action):
            self.connection.execute("SELECT 1")
            return super().step(action)

        def close(self):
            self.connection.close()

    state, _ = await play(episodes(Database), "1")
    assert (state["error"], said(state["completion"])[-2]) == (None, "x=3\nEpisode already ended.")


async def test_worlds_may_block_without_stalling_other_rollouts_or_be_async(play):
    both = threading.Barrier(2, timeout=60)  # passes only when two steps wait in it at once

    class Meeting(Counter):
        def step(self, action):
            both.wait()
            return super().step(action)

    env = episodes(Meeting)
    played = await asyncio.gather(*(play(env, "3") for _ in range(2)))
    assert [state["error"] for state, _ in played] == [None, None]

    class Remote:
        async def reset(self, seed):
            self.loop = asyncio.get_running_loop()
            return f"seed {seed}"

        async def step(self, action):
            assert asyncio.get_running_loop() is self.loop
            return "done", 1.0, True, {}

        async def close(self):
            await asyncio.sleep(0)

    state, client = await play(episodes(Remote), "1")
    assert (state["reward"], said(client.asked[0][0])) == (1.0, ["seed 0"])


def test_datasets_have_the_sizes_asked_for_or_are_a_subclass_s():
    train, evaluate = episodes(num_train_episodes=3, num_eval_episodes=2, seed=10).gym_to_hf()
    assert (train["answer"], evaluate["answer"]) == (["10", "11", "12"], ["13", "14"])
    assert train["question"][0] == "x=0 seed=10"
    env = episodes(num_train_episodes=2, num_eval_episodes=0)
    assert (env.gym_to_hf()[1], len(env.examples)) == (None, 2)
    resets = []
    dear = world(reset=lambda self, seed: resets.append(seed) or "x")
    env = episodes(dear, num_train_episodes=1000, num_eval_episodes=2)
    assert resets == []
    assert (len(env.examples), resets) == (2, [1000, 1001])

    class Fixed(GymEnv):
        def gym_to_hf(self):
            return [{"question": "train", "answer": "1"}], [{"question": "eval", "answer": "2"}]

    class Spelled(GymEnv):
        def obs_to_text(self, obs):
            return f"you see {obs}"

    assert Fixed(Counter).examples[0]["question"] == "eval"
    assert Spelled(Counter, num_train_episodes=0).examples[0]["question"] == "you see x=0 seed=0"
    assert episodes(obs_to_text=len).examples[0]["question"] == len("x=0 seed=0")


def test_reset_and_step_of_all_forms_are_normalized():
    for normalize, out, expected in (
        (normalize_reset, "x", ("x", {})),
        (normalize_reset, ("x", {"a": 1}), ("x", {"a": 1})),
        (normalize_reset, ("x", None), ("x", {})),
        (normalize_reset, (1, 2), ((1, 2), {})),  # an observation that is a pair
        (normalize_reset, (1, 2, 3), ((1, 2, 3), {})),
        (normalize_step, ("x", 1, 0, {"a": 1}), ("x", 1.0, False, False, {"a": 1})),
        (normalize_step, ("x", True, False, True, None), ("x", 1.0, False, True, {})),
        (normalize_step, ["x", 0.5, True, {}], ("x", 0.5, True, False, {})),
    ):
        assert normalize(out) == expected


async def test_worlds_of_gymnasium_give_what_they_give_when_they_are_stepped_by_hand(play):
    gymnasium = pytest.importorskip("gymnasium", reason="needs the extra 'gym'")
    env = episodes(gymnasium.make, env_kwargs={"id": "FrozenLake-v1", "is_slippery": False})
    state, _ = await play(env, *"112122", "thanks")  # down down right down right right, past the holes
    assert [step["reward"] for step in state["trajectory"]] == [0, 0, 0, 0, 0, 1, 0]
    assert (state["reward"], said(state["completion"])[::2]) == (1.0, [*"112122", "thanks"])
    world = gymnasium.make("Blackjack-v1")
    env = episodes(gymnasium.make, env_kwargs={"id": "Blackjack-v1"}, num_eval_episodes=4)
    for example_id in range(4):
        observation, _ = world.reset(seed=example_id)
        _, expected, *_ = world.step(0)  # stick
        state, client = await play(env, "0", example_id=example_id)
        assert (said(client.asked[0][0]), state["reward"]) == ([str(observation)], expected)

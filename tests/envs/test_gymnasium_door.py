"""The Gymnasium door: made by name, checked by Gymnasium's own checker, usable with its wrappers and vectors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agentenv.gym  # noqa: F401  registers
import gymnasium
import numpy as np
import pytest
from agentenv.config.environments import EnvConfig, make_agent_env, open_environment
from agentenv.config.run_config import RunConfig
from agentenv.envs.gym_env import AgentEnv
from agentenv.envs.spaces import PAD
from agentenv.errors import ConfigError, OrderError, UnknownNameError, UsageError
from agentenv.records.axes import BudgetKind, Evidence, StopReason
from agentenv.rendering.loading import byte_renderer
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

NAME = "agentenv/arithmetic-v0"


@pytest.fixture
def env() -> Iterator[AgentEnv]:
    made = make_agent_env("arithmetic", render_mode="ansi")
    yield made
    made.close()


def calling(expression: str) -> str:
    return f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{expression}"}}}}\n</tool_call>'


def ids_of(text: str) -> list[int]:
    renderer = byte_renderer()
    return [*renderer.tokenizer.encode(text), renderer.stop_token_ids[0]]


def test_gymnasium_makes_every_registered_suite() -> None:
    """Importing `agentenv.gym`, or naming it, registers each suite under the name of its plug-in."""
    gymnasium.make("agentenv.gym:agentenv/arithmetic-v0").close()
    names = {name for name in gymnasium.registry if name.startswith("agentenv/")}
    assert names >= {f"agentenv/{suite}-v0" for suite in ("arithmetic", "keep-original", "lookup", "repair")}


def test_gymnasiums_own_checker_passes() -> None:
    """`check_env` finds nothing; a warning is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*render modes.*")
        env = gymnasium.make(NAME).unwrapped
        check_env(env, skip_render_check=True)
        env.close()


def test_the_seed_decides_the_task_and_the_first_observation(env: AgentEnv) -> None:
    """Equal seeds give equal observations, other seeds other tasks."""
    first, info = env.reset(seed=3)
    again, same = env.reset(seed=3)
    other, _ = env.reset(seed=4)
    assert np.array_equal(first["prompt_ids"], again["prompt_ids"])
    assert info["task_id"] == same["task_id"]
    assert not np.array_equal(first["prompt_ids"], other["prompt_ids"])


def test_an_episode_of_token_ids_ends_scored(env: AgentEnv) -> None:
    """A call, its result in the next prompt, an answer, and the reward with the last step."""
    observation, _ = env.reset(seed=0)
    length = int(observation["prompt_length"][0])
    prompt = list(observation["prompt_ids"][:length])
    assert (observation["prompt_ids"][length:] == PAD).all()
    sampled = ids_of(calling("2 * 3"))
    observation, reward, terminated, truncated, info = env.step(
        {"token_ids": np.array(sampled), "logprobs": [-0.1] * len(sampled), "distribution": "model"}
    )
    after = list(observation["prompt_ids"][: int(observation["prompt_length"][0])])
    assert after[: len(prompt) + len(sampled)] == prompt + sampled
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "6" in (env.render() or "")
    _, reward, terminated, truncated, info = env.step({"token_ids": ids_of("I do not know.")})
    assert (terminated, truncated, info["reason"]) == (True, False, "final_answer")
    assert reward == info["reward"] == 0.0
    step = env.record.steps[0]
    assert step.sampled.logprob_spans[0].evidence is Evidence.DECLARED
    with pytest.raises(OrderError, match="call reset"):
        env.step("more")


def test_text_is_an_action_where_there_is_no_tokenizer(env: AgentEnv) -> None:
    """Text is taken as it is, and its record says that the ids are not the policy's."""
    env.reset(seed=0)
    observation, *_ = env.step(calling("7 * 8"))
    assert int(observation["purpose"]) == 0
    sampled = env.record.steps[0].sampled
    assert sampled.text == calling("7 * 8")
    assert sampled.logprobs == b""


def test_text_that_is_no_action_is_a_step_with_its_parse_error(env: AgentEnv) -> None:
    """A malformed call ends nothing: the policy is told what is wrong."""
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = env.step("<tool_call>\n{not json\n</tool_call>")
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "Error" in (env.render() or "")


def test_what_is_left_is_in_the_observation(env: AgentEnv) -> None:
    """Law 6: the observation shows what is left, in the order of `BudgetKind`."""
    turns = list(BudgetKind).index(BudgetKind.TURNS)
    before, _ = env.reset(seed=0)
    after, *_ = env.step(calling("1 + 1"))
    assert before["budgets"][turns][0] - after["budgets"][turns][0] == 1
    assert before["budgets"][turns][1] == after["budgets"][turns][1]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (5, "an action is text or a mapping with token_ids, got 5"),
        ({"ids": [1]}, "an action is text or a mapping with token_ids"),
        ({"token_ids": [10**6]}, "outside the vocabulary"),
        ({"token_ids": [1.5, "x"]}, "must be integers"),
        ({"token_ids": [65, 66], "logprobs": [-1.0]}, "2 token_ids but 1 logprobs"),
        ({"token_ids": [65], "logprobs": [0.5]}, "at most 0"),
        ({"token_ids": [65], "logprobs": [-math.inf]}, "finite"),
        ({"token_ids": [65], "logprobs": [-1.0], "distribution": "raw"}, "model, sampling or unknown"),
    ],
)
def test_an_action_of_the_wrong_form_is_refused_and_nothing_is_lost(env: AgentEnv, action: Any, message: str) -> None:
    """The caller's mistake raises at once; the episode can go on."""
    env.reset(seed=0)
    with pytest.raises(UsageError, match=message):
        env.step(action)
    assert env.record.steps == ()
    env.step("The answer is 1.")


def test_step_before_reset_is_refused(env: AgentEnv) -> None:
    """Gymnasium's order: reset first."""
    with pytest.raises(OrderError, match=r"call reset\(\) first"):
        env.step("hello")


def test_a_reply_beyond_the_limit_is_cut_as_an_engine_would(tmp_path: Path) -> None:
    """Ids beyond what the budgets allow are cut, with a note in the record."""
    made = make_agent_env("arithmetic", sampling={"max_tokens": 4})
    made.reset(seed=0)
    _, _, terminated, truncated, info = made.step({"token_ids": ids_of("a long reply")})
    assert (terminated, truncated, info["reason"]) == (False, True, StopReason.GENERATION_LENGTH)
    assert made.record.steps[0].completion_length == 4
    assert "cut to the 4 tokens" in made.record.steps[0].sampled.notes[0]
    made.close()


def test_wrappers_of_gymnasium_work() -> None:
    """`TimeLimit` truncates, `RecordEpisodeStatistics` counts."""
    env = RecordEpisodeStatistics(TimeLimit(gymnasium.make(NAME), max_episode_steps=2))
    env.reset(seed=1)
    env.step(calling("1 + 1"))
    *_, truncated, info = env.step(calling("1 + 2"))
    assert truncated
    assert info["episode"]["l"] == 2
    env.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments_work(mode: str) -> None:
    """Several environments step side by side, in this process or in others."""
    envs = gymnasium.make_vec(NAME, num_envs=2, vectorization_mode=mode, max_prompt=2048)
    observations, _ = envs.reset(seed=[5, 6])
    assert observations["prompt_ids"].shape == (2, 2048)
    actions = ({"token_ids": np.array(ids_of(calling("2 * 2")))}, {"token_ids": np.array(ids_of("No."))})
    observations, rewards, terminations, truncations, _ = envs.step(actions)
    assert list(terminations) == [False, True]
    assert not truncations.any()
    assert rewards[0] == 0.0
    envs.close()


def test_a_run_folder_records_what_was_played(tmp_path: Path) -> None:
    """With ``out`` the episode is on disk, readable by the command line."""
    from agentenv.config.reading import stored_run

    made = make_agent_env("arithmetic", out=tmp_path / "run")
    made.reset(seed=0)
    made.step("The answer is 1.")
    played = made.record
    made.close()
    with stored_run(tmp_path / "run") as stored:
        assert [record.steps for record in stored.records()] == [played.steps]


def test_unknown_settings_and_suites_say_what_there_is() -> None:
    """Did you mean."""
    with pytest.raises(UnknownNameError, match="Did you mean 'level'"):
        make_agent_env("arithmetic", levle=2)
    with pytest.raises(ConfigError, match="level"):
        make_agent_env("arithmetic", level="two")
    made = make_agent_env("arithmetik")
    with pytest.raises(UnknownNameError, match="Did you mean 'arithmetic'"):
        made.reset(seed=0)
    made.close()


async def test_the_asynchronous_door_says_what_it_needs_and_has_its_tokenizer() -> None:
    """No traceback of ours for something that is no configuration; the vocabulary of actions is public."""
    with pytest.raises(ConfigError, match="Expected an EnvConfig, got str: write open_environment"):
        async with open_environment("arithmetic"):  # type: ignore[arg-type]  the mistake under test
            pass
    async with open_environment(EnvConfig(run=RunConfig(suite="arithmetic"))) as env:
        observation, _ = await env.reset(seed=0)
        assert env.tokenizer.decode(observation.prompt_ids) == env.text()

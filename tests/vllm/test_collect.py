"""Collecting against the real engine: no breach of any law, and the engine agrees with every recorded log-prob.

The model is random, so what it says is noise; that its tokens, endings and log-probs are right is not.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from agentenv.config.reading import stored_run
from agentenv.config.run import open_run
from agentenv.config.run_config import PolicyConfig, RunConfig
from agentenv.records.axes import Distribution, Evidence
from agentenv.records.tokens import SamplingParams
from agentenv.rollout.collector import Tally
from tests.vllm.conftest import Engine

pytestmark = pytest.mark.vllm

CHATTER = Path(__file__).parents[1] / "fixtures" / "chatter.py"


def agentenv(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agentenv", *arguments], capture_output=True, text=True, timeout=900, check=False
    )


def collect(engine: Engine, suite: str, out: Path, *more: str) -> None:
    done = agentenv(
        "collect", suite, "--policy", "vllm", "--url", engine.url, "--tokenizer", str(engine.model_dir),
        "--concurrency", "16", "--max-tokens", "24", "--out", str(out), *more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("temperature", ["1.0", "0.7"])
def test_arithmetic_has_no_breach_and_the_engine_agrees_with_every_logprob(
    engine: Engine, tmp_path: Path, temperature: str
) -> None:
    """64 episodes, 16 at once; re-scored within 1e-3 in float32, at temperature 1 and at 0.7."""
    out = tmp_path / "run"
    collect(engine, "arithmetic", out, "--tasks", "64", "--temperature", temperature)
    with stored_run(out) as stored:
        records = list(stored.records())
        assert stored.manifest["policy"]["logprobs"] == "sampling"
    assert len(records) == 64
    assert all(record.done for record in records)
    n_sampled = sum(step.completion_length for record in records for step in record.steps)
    spans = {(s.distribution, s.evidence) for r in records for step in r.steps for s in step.sampled.logprob_spans}
    assert spans <= {(Distribution.SAMPLING, Evidence.PROBED), (Distribution.SAMPLING, Evidence.REPORTED)}
    verified = agentenv("verify", str(out), "--engine", engine.url)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "0 breaches in 64 attempts" in verified.stdout
    assert f"{n_sampled} log-probs compared" in verified.stdout


@pytest.mark.timeout(1800)
def test_many_turns_extend_one_segment_and_the_engine_agrees(engine: Engine, tmp_path: Path) -> None:
    """Law 1 over four turns: prompts are extended id for id, and the engine scores the whole of it the same.

    A random model hardly ever ends a turn, so every 16th id ends one here.
    """
    out = tmp_path / "run"
    config = RunConfig(
        suite=str(CHATTER),
        policy=PolicyConfig(kind="vllm", url=engine.url, tokenizer=str(engine.model_dir)),
        tasks=8,
        group_size=2,
        sampling=SamplingParams(max_tokens=200, stop_token_ids=tuple(range(2, 2048, 16))),
    )

    async def run() -> Tally:
        async with open_run(config, out) as opened:
            return await opened.collect()

    assert asyncio.run(run()).complete
    with stored_run(out) as stored:
        records = list(stored.records())
    assert Counter(len(record.steps) for record in records).most_common(1)[0][0] == 4
    assert all(len(record.segments) == 1 for record in records)
    assert len({step.seed for record in records for step in record.steps}) == sum(len(r.steps) for r in records)
    verified = agentenv("verify", str(out), "--engine", engine.url)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.timeout(1800)
def test_the_tokenizer_is_found_through_the_server(engine: Engine, tmp_path: Path) -> None:
    """Without --tokenizer the server is asked which model it serves."""
    out = tmp_path / "run"
    done = agentenv(
        "collect",
        "arithmetic",
        "--policy",
        "vllm",
        "--url",
        engine.url,
        "--tasks",
        "2",
        "--max-tokens",
        "8",
        "-o",
        str(out),
    )
    assert done.returncode == 0, done.stderr

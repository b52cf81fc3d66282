"""Gymnasium spaces of the environment: padded ids to look at, an emitted reply to act with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from agentenv.envs.async_env import Observation
from agentenv.records.axes import BudgetKind, Purpose

PAD = -1
"""Fills ``prompt_ids`` behind the prompt; no vocabulary has it."""
_BUDGET_KINDS = tuple(BudgetKind)
_SAMPLE_TOKENS = 8
_INT32 = np.iinfo(np.int32).max


def observation_space(*, vocab_size: int, max_prompt: int) -> spaces.Dict:
    """Make the observation space.

    ``prompt_ids`` (N,) int32, padded with `PAD`; ``prompt_length`` (1,) int32; ``budgets`` (kinds, 2) float64:
    remaining and limit of the tightest budget of each kind of `BudgetKind` in its order, -1 and -1 where there is none;
    ``max_tokens`` (1,) int32; ``purpose`` 0 to act, 1 to write a summary.
    """
    return spaces.Dict(
        {
            "prompt_ids": spaces.Box(PAD, vocab_size - 1, (max_prompt,), np.int32),
            "prompt_length": spaces.Box(0, max_prompt, (1,), np.int32),
            "budgets": spaces.Box(-1e12, 1e12, (len(_BUDGET_KINDS), 2), np.float64),
            "max_tokens": spaces.Box(0, _INT32, (1,), np.int32),
            "purpose": spaces.Discrete(len(Purpose)),
        }
    )


def pad_observation(observation: Observation, max_prompt: int) -> dict[str, Any]:
    """Make the arrays of one observation.

    A prompt longer than ``max_prompt`` keeps its last ids; ``prompt_length`` then says ``max_prompt``, and the whole
    prompt is in the record.
    """
    ids = np.asarray(observation.prompt_ids[-max_prompt:], dtype=np.int32)
    padded = np.full(max_prompt, PAD, dtype=np.int32)
    padded[: len(ids)] = ids
    budgets = np.full((len(_BUDGET_KINDS), 2), -1.0)
    for state in observation.budgets:
        row = budgets[_BUDGET_KINDS.index(state.kind)]
        if row[1] < 0 or state.remaining < row[0]:
            row[:] = state.remaining, state.limit
    return {
        "prompt_ids": padded,
        "prompt_length": np.array([len(ids)], dtype=np.int32),
        "budgets": budgets,
        "max_tokens": np.array([min(observation.max_tokens, _INT32)], dtype=np.int32),
        "purpose": np.int64(tuple(Purpose).index(observation.purpose)),
    }


class ReplySpace(spaces.Space[Any]):
    """Everything ``step`` takes: a mapping with ``token_ids`` (see `envs.actions.Action`), or text.

    `sample` gives a mapping with a few random ids.
    """

    def __init__(self, vocab_size: int, seed: int | np.random.Generator | None = None) -> None:
        self.vocab_size = vocab_size
        super().__init__(shape=None, dtype=None, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, NDArray[np.int32]]:
        """Draw 1 to 8 ids of the vocabulary.

        Args:
            mask: Not used.
            probability: Not used.
        """
        del mask, probability
        n = int(self.np_random.integers(1, _SAMPLE_TOKENS + 1))
        return {"token_ids": self.np_random.integers(0, self.vocab_size, n, dtype=np.int32)}

    def contains(self, x: Any) -> bool:
        """Say whether ``step`` would take it for its form; it still checks log-probs."""
        if isinstance(x, str):
            return True
        if not isinstance(x, dict) or "token_ids" not in x:
            return False
        ids = np.asarray(x["token_ids"])
        return ids.ndim == 1 and (
            ids.size == 0
            or (np.issubdtype(ids.dtype, np.integer) and bool((ids >= 0).all() and (ids < self.vocab_size).all()))
        )

    @property
    def is_np_flattenable(self) -> bool:
        """Replies have no fixed length."""
        return False

    def to_jsonable(self, sample_n: Iterable[Any]) -> list[Any]:
        """Make lists of arrays."""
        return [s if isinstance(s, str) else {"token_ids": [int(i) for i in s["token_ids"]]} for s in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[Any]:
        """Make arrays of lists."""
        return [s if isinstance(s, str) else {"token_ids": np.array(s["token_ids"], np.int32)} for s in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplySpace) and other.vocab_size == self.vocab_size

    def __hash__(self) -> int:
        return hash((ReplySpace, self.vocab_size))

    def __repr__(self) -> str:
        return f"ReplySpace({self.vocab_size})"

"""The model behind the stub engine: a small exact distribution over a vocabulary, cheap to sample and to score.

At every context the vocabulary is ordered anew (a bijection that depends on the last id and the position), and the id
of rank r has the logit ``-1.2 ln(1 + r)``. So normalisers depend on sampling parameters alone and are computed once,
and every filter (top-k, top-p, min-p) keeps a prefix of the ranks. Penalties are not part of it.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

Script = Callable[[Sequence[int], int], Sequence[int]]
"""(prompt ids, seed) to the ids the model is made to say; afterwards it samples freely."""

_SHAPE = 1.2
_STRIDES = (7919, 6841, 5471)


class Law(NamedTuple):
    """The distribution left after sampling parameters, over ranks."""

    temperature: float
    """0 means greedy: then the others are neutral and log-probs are not tempered, as in vLLM."""
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


class Table(NamedTuple):
    """One distribution over ranks, computed once."""

    cumulated: list[float]
    """(m,) running sums of the weights of the m ranks that survive."""
    logprobs: list[float]
    """(m,) normalised over them."""


class Drawn(NamedTuple):
    """What the model said."""

    ids: list[int]
    logprobs: list[float]
    """(C,) natural log; -inf where a scripted id was filtered out."""
    stopped: bool
    """Whether the last id is a stop id."""


class StubModel:
    """Deterministic: the same context, seed and parameters give the same ids and log-probs."""

    def __init__(
        self, vocab_size: int, *, stop_ids: Sequence[int] = (), script: Script | None = None, flat: bool = False
    ) -> None:
        """Take a vocabulary of ``vocab_size`` ids; ``stop_ids`` end every reply; ``flat`` makes all ids alike."""
        self.vocab_size = vocab_size
        self._stop_ids = frozenset(stop_ids)
        self._script = script
        self._stride = next(each for each in _STRIDES if math.gcd(each, vocab_size) == 1)
        self._inverse = pow(self._stride, -1, vocab_size)
        self._logits = [0.0 if flat else -_SHAPE * math.log1p(rank) for rank in range(vocab_size)]
        self._tables: dict[Law, Table] = {}

    def table(self, law: Law) -> Table:
        """Give the distribution over ranks under ``law``; computed once."""
        table = self._tables.get(law)
        if table is None:
            table = self._tables[law] = self._tabulate(law)
        return table

    def rank(self, token: int, previous: int, position: int) -> int:
        """Give the 0-based rank of ``token`` after ``previous``, at absolute ``position``."""
        return (token * self._stride + previous * 31 + position * 17) % self.vocab_size

    def logprob(self, table: Table, token: int, previous: int, position: int) -> float:
        """Score one id."""
        rank = self.rank(token, previous, position)
        return table.logprobs[rank] if rank < len(table.logprobs) else -math.inf

    def top(self, table: Table, n: int, previous: int, position: int) -> list[tuple[int, float]]:
        """Give the ``n`` best ids with their log-probs; -1 gives all that survive."""
        shift = previous * 31 + position * 17
        count = len(table.logprobs) if n < 0 else min(n, len(table.logprobs))
        return [((r - shift) * self._inverse % self.vocab_size, table.logprobs[r]) for r in range(count)]

    def draw(
        self, prompt: Sequence[int], *, law: Law, scored: Law, seed: int, max_tokens: int, stop_ids: Sequence[int]
    ) -> Drawn:
        """Sample a reply.

        Args:
            prompt: (P,) ids, at least one.
            law: What is sampled from.
            scored: What the log-probs describe.
            seed: Decides the draws.
            max_tokens: The most to say.
            stop_ids: Further ids that end the reply.
        """
        scoring = self.table(scored)
        stops = self._stop_ids.union(stop_ids)
        ids: list[int] = []
        logprobs: list[float] = []
        previous, shift = prompt[-1], len(prompt) * 17
        for token in self._said(prompt, seed, law, max_tokens):
            rank = (token * self._stride + previous * 31 + shift) % self.vocab_size
            ids.append(token)
            logprobs.append(scoring.logprobs[rank] if rank < len(scoring.logprobs) else -math.inf)
            if token in stops:
                return Drawn(ids, logprobs, True)
            previous, shift = token, shift + 17
        return Drawn(ids, logprobs, False)

    def _said(self, prompt: Sequence[int], seed: int, law: Law, max_tokens: int) -> Iterator[int]:
        """Give one id after another: those of the script, then sampled ones."""
        script = self._script(prompt, seed)[:max_tokens] if self._script is not None else ()
        yield from script
        if len(script) == max_tokens:
            return
        rng = random.Random(seed)  # noqa: S311  a test double
        drawing = self.table(law)
        previous = script[-1] if script else prompt[-1]
        for position in range(len(prompt) + len(script), len(prompt) + max_tokens):
            shift = previous * 31 + position * 17
            rank = 0
            if law.temperature:
                rank = bisect_left(drawing.cumulated, rng.random() * drawing.cumulated[-1])
            previous = (rank - shift) * self._inverse % self.vocab_size
            yield previous

    def _tabulate(self, law: Law) -> Table:
        temperature = law.temperature or 1.0
        weights = [math.exp(logit / temperature) for logit in self._logits]
        kept = min(law.top_k or self.vocab_size, self.vocab_size)
        kept = min(kept, sum(1 for weight in weights if weight >= law.min_p))
        cumulated = list(accumulate(weights))
        kept = min(kept, bisect_left(cumulated, law.top_p * cumulated[kept - 1]) + 1)
        log_z = math.log(cumulated[kept - 1])
        return Table(cumulated[:kept], [logit / temperature - log_z for logit in self._logits[:kept]])

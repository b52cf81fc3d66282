"""The contract suites of stores and of blobs: the journal passes them, and so do the fakes.

Use, in a test module::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def case(self):
            async with MyWriter(...) as writer:
                yield StoreCase(writer=writer, reader=MyReader(...))
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

import pytest

from agentenv.core.blobs import BlobSink, BlobSource
from agentenv.core.store import AttemptKey, FactReader, FactWriter
from agentenv.errors import DamagedJournal, OrderError, UsageError
from agentenv.records.axes import FaultDomain, Outcome, Scoring, StopReason
from agentenv.records.facts import EpisodeEnded, Fact, Stopped, SummaryAsked
from agentenv.records.messages import Message, Role, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCase:
    """One implementation: an open, empty writer, and a reader over what it writes."""

    writer: FactWriter
    """Closed by whoever made the case; a test may close it before."""
    reader: FactReader


def asked(text: str, **arguments: object) -> SummaryAsked:
    """Make a small fact that can be told from others."""
    call = ToolCall(id="c0", name="tool", arguments=dict(arguments))
    return SummaryAsked(messages=(Message(id="m0", role=Role.USER, text=text, calls=(call,)),), max_tokens=1)


def ended() -> EpisodeEnded:
    """Make the last fact of an attempt."""
    return EpisodeEnded(
        reason=StopReason.COMPLETED,
        terminated=True,
        truncated=False,
        budget=None,
        scoring=Scoring.NOT_REQUIRED,
        outcome=Outcome.UNKNOWN,
        fault=FaultDomain.NONE,
        budgets=(),
    )


class StoreContract:
    """What every store promises."""

    async def test_facts_are_read_in_order_while_the_writer_lives(self, case: StoreCase) -> None:
        """What is acknowledged is there, as it was, in the order of its appends."""
        key = AttemptKey("e", 1)
        written: list[Fact] = [asked("a"), asked("b"), asked("c")]
        await case.writer.append(key, written[0])
        await case.writer.append(key, *written[1:])
        assert case.reader.facts(key) == written
        await case.writer.append(key, ended())
        assert case.reader.facts(key) == [*written, ended()]

    async def test_episodes_that_write_at_once_keep_their_order(self, case: StoreCase) -> None:
        """Sharing a transaction mixes nothing up."""

        async def play(name: str) -> None:
            for number in range(8):
                await case.writer.append(AttemptKey(name, 1), asked(f"{name} {number}"), asked(f"{name} {number}'"))

        async with asyncio.TaskGroup() as group:
            for name in "abcdefgh":
                group.create_task(play(name))
        for name in "abcdefgh":
            texts = [fact.messages[0].text for fact in case.reader.facts(AttemptKey(name, 1))]  # type: ignore[union-attr]
            assert texts == [f"{name} {number}{mark}" for number in range(8) for mark in ("", "'")]

    async def test_all_attempts_are_kept_and_ordered(self, case: StoreCase) -> None:
        """An attempt never replaces another one."""
        keys = [AttemptKey("b", 1), AttemptKey("a", 10), AttemptKey("a", 2), AttemptKey(chr(0xD800), 1)]
        for key in keys:
            await case.writer.append(key, asked(f"{key!r}"))
        assert case.reader.attempts() == sorted(keys)
        for key in keys:
            assert case.reader.facts(key) == [asked(f"{key!r}")]

    async def test_last_facts_tell_which_attempts_ended(self, case: StoreCase) -> None:
        """One fact for each attempt, ordered by key."""
        await case.writer.append(AttemptKey("b", 1), asked("x"), ended())
        await case.writer.append(AttemptKey("a", 2), asked("y"))
        await case.writer.append(AttemptKey("a", 1), Stopped(reason=StopReason.CANCELLED))
        assert list(case.reader.last_facts()) == [
            (AttemptKey("a", 1), Stopped(reason=StopReason.CANCELLED)),
            (AttemptKey("a", 2), asked("y")),
            (AttemptKey("b", 1), ended()),
        ]

    async def test_an_attempt_goes_on_after_its_end_was_written(self, case: StoreCase) -> None:
        """The store keeps order and judges nothing."""
        key = AttemptKey("e", 1)
        await case.writer.append(key, ended())
        await case.writer.append(key, asked("late"))
        assert case.reader.facts(key) == [ended(), asked("late")]

    async def test_unknown_attempt(self, case: StoreCase) -> None:
        assert case.reader.attempts() == []
        with pytest.raises(KeyError):
            case.reader.facts(AttemptKey("nobody", 1))

    async def test_one_bad_fact_keeps_its_whole_call_out(self, case: StoreCase) -> None:
        """Nothing of a refused call is written, and nobody else is hurt."""
        key = AttemptKey("e", 1)
        refused, kept = await asyncio.gather(
            case.writer.append(key, asked("good"), asked("bad", value=object())),
            case.writer.append(AttemptKey("f", 1), asked("other")),
            return_exceptions=True,
        )
        assert isinstance(refused, UsageError)
        assert kept is None
        assert case.reader.attempts() == [AttemptKey("f", 1)]

    async def test_nothing_is_nothing(self, case: StoreCase) -> None:
        """An append of no facts makes no attempt."""
        await case.writer.append(AttemptKey("e", 1))
        assert case.reader.attempts() == []

    async def test_a_cancelled_append_has_written_nothing(self, case: StoreCase) -> None:
        """Whoever is told of a cancellation knows that nothing was written; else the cancellation comes afterwards.

        Otherwise there would be facts in the store that their owner does not know of, and what it writes next would
        contradict them.
        """
        for number in range(6):
            key = AttemptKey("e", number + 1)
            returned: list[bool] = []

            async def play(key: AttemptKey = key, returned: list[bool] = returned) -> None:
                await case.writer.append(key, asked("a"), asked("b"))
                returned.append(True)
                await asyncio.Event().wait()

            player = asyncio.ensure_future(play())
            for _ in range(number):
                await asyncio.sleep(0)
            player.cancel()
            await asyncio.wait([player], timeout=60)
            assert player.cancelled()
            await case.writer.append(key, asked("c"))
            before = [asked("a"), asked("b")] if returned else []
            assert case.reader.facts(key) == [*before, asked("c")]

    async def test_a_cancellation_is_put_off_by_one_append_at_most(self, case: StoreCase) -> None:
        """Whoever appends again and again is stopped all the same."""
        for number in range(6):
            key = AttemptKey("e", number + 1)

            async def play(key: AttemptKey = key) -> None:
                while True:
                    await case.writer.append(key, asked("a"))

            player = asyncio.ensure_future(play())
            for _ in range(number):
                await asyncio.sleep(0)
            before = len(case.reader.facts(key)) if key in case.reader.attempts() else 0
            player.cancel()
            await asyncio.wait([player], timeout=60)
            assert player.cancelled()
            after = len(case.reader.facts(key)) if key in case.reader.attempts() else 0
            assert after <= before + 1

    async def test_closing_twice_and_appending_after(self, case: StoreCase) -> None:
        """Closing keeps what was acknowledged; a closed store says so."""
        await case.writer.append(AttemptKey("e", 1), asked("a"))
        await case.writer.aclose()
        await case.writer.aclose()
        with pytest.raises(OrderError, match="closed"):
            await case.writer.append(AttemptKey("e", 1), asked("b"))
        assert case.reader.facts(AttemptKey("e", 1)) == [asked("a")]

    async def test_closing_while_others_wait(self, case: StoreCase) -> None:
        """Closing writes what was waiting; nobody waits for ever."""
        appends = [
            asyncio.ensure_future(case.writer.append(AttemptKey("e", 1 + number), asked("a"))) for number in range(3)
        ]
        await asyncio.sleep(0)
        await case.writer.aclose()
        done, pending = await asyncio.wait(appends, timeout=60)
        assert not pending
        assert [append.exception() for append in done] == [None] * 3
        assert len(case.reader.attempts()) == 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobCase:
    """One implementation, empty."""

    sink: BlobSink
    source: BlobSource


class BlobContract:
    """What every sink and source of blobs promises."""

    @pytest.mark.parametrize("content", [b"", b"x", b"\0\xff" * 100_000])
    def test_put_and_get(self, blobs: BlobCase, content: bytes) -> None:
        """A blob is named by its hash, comes back whole, and may be put twice."""
        spill = blobs.sink.put(content)
        assert spill.sha256 == hashlib.sha256(content).hexdigest()
        assert spill.size_bytes == len(content)
        assert blobs.sink.put(content) == spill
        assert blobs.source.get(spill.sha256) == content

    def test_pieces_and_whole_are_one_blob(self, blobs: BlobCase) -> None:
        """How it was written does not matter."""
        writer = blobs.sink.open()
        for piece in (b"ab", b"", b"c"):
            writer.write(piece)
        spill = writer.commit()
        writer.discard()
        assert spill == blobs.sink.put(b"abc")
        assert blobs.source.get(spill.sha256) == b"abc"

    def test_discarded_blob_is_not_there(self, blobs: BlobCase) -> None:
        """Discarding may be done twice, and leaves nothing."""
        writer = blobs.sink.open()
        writer.write(b"never")
        writer.discard()
        writer.discard()
        with pytest.raises(DamagedJournal, match="blob"):
            blobs.source.get(hashlib.sha256(b"never").hexdigest())

    def test_spent_writer(self, blobs: BlobCase) -> None:
        """A committed writer takes no more."""
        writer = blobs.sink.open()
        writer.commit()
        with pytest.raises(OrderError, match="committed"):
            writer.write(b"more")
        with pytest.raises(OrderError, match="committed"):
            writer.commit()

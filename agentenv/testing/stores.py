"""Working fakes of storage: a store and blobs in memory, which pass the contract suites of the real ones."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator

from agentenv.core.blobs import BlobSink, BlobSource, BlobWriter
from agentenv.core.store import AttemptKey, FactReader, FactWriter
from agentenv.errors import DamagedJournal, OrderError
from agentenv.records.codec import decode_fact, encode_fact
from agentenv.records.facts import Fact
from agentenv.records.messages import Spill


class InMemoryStore(FactWriter, FactReader):
    """Writer and reader in one. Facts rest encoded, so what could not be stored cannot be kept here either."""

    def __init__(self) -> None:
        self.closed = False
        self._facts: dict[AttemptKey, list[bytes]] = {}

    async def append(self, key: AttemptKey, *facts: Fact) -> None:
        if self.closed:
            raise OrderError("The store is closed; nothing can be appended.")
        bodies = [encode_fact(fact) for fact in facts]
        await asyncio.sleep(0)  # as a journal does, so that a cancelled append is met here too
        if bodies:
            self._facts.setdefault(key, []).extend(bodies)

    def attempts(self) -> list[AttemptKey]:
        return sorted(self._facts)

    def facts(self, key: AttemptKey) -> list[Fact]:
        return [decode_fact(body) for body in self._facts[key]]

    def last_facts(self) -> Iterator[tuple[AttemptKey, Fact]]:
        for key in self.attempts():
            yield key, decode_fact(self._facts[key][-1])

    async def aclose(self) -> None:
        self.closed = True


class InMemoryBlobs(BlobSink, BlobSource):
    """Blobs in a dictionary."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def open(self) -> BlobWriter:
        return _InMemoryBlobWriter(self)

    def put(self, content: bytes) -> Spill:
        spill = Spill(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))
        self.content[spill.sha256] = content
        return spill

    def get(self, sha256: str) -> bytes:
        if sha256 not in self.content:
            raise DamagedJournal(f"There is no blob {sha256}.")
        return self.content[sha256]


class _InMemoryBlobWriter(BlobWriter):
    def __init__(self, blobs: InMemoryBlobs) -> None:
        self._blobs = blobs
        self._chunks: list[bytes] | None = []

    def write(self, chunk: bytes) -> None:
        self._open().append(bytes(chunk))

    def commit(self) -> Spill:
        spill = self._blobs.put(b"".join(self._open()))
        self._chunks = None
        return spill

    def discard(self) -> None:
        self._chunks = None

    def _open(self) -> list[bytes]:
        if self._chunks is None:
            raise OrderError("The blob is committed or discarded; open another one.")
        return self._chunks

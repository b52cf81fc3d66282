"""Every store and every blob folder, real and fake, keeps the contracts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from agentenv.storage.blobs import FolderBlobs
from agentenv.storage.journal import Durability, Journal
from agentenv.storage.reader import JournalReader
from agentenv.testing.contracts.store import BlobCase, BlobContract, StoreCase, StoreContract
from agentenv.testing.stores import InMemoryBlobs, InMemoryStore


class TestJournal(StoreContract):
    @pytest.fixture(params=["process", "power"])
    async def case(self, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[StoreCase]:
        durability: Durability = request.param
        async with Journal.open(tmp_path / "journal" / "main.sqlite", durability=durability) as writer:
            with JournalReader(tmp_path / "journal") as reader:
                yield StoreCase(writer=writer, reader=reader)


class TestInMemoryStore(StoreContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[StoreCase]:
        async with InMemoryStore() as store:
            yield StoreCase(writer=store, reader=store)


class TestFolderBlobs(BlobContract):
    @pytest.fixture(params=["process", "power"])
    def blobs(self, tmp_path: Path, request: pytest.FixtureRequest) -> BlobCase:
        durability: Durability = request.param
        blobs = FolderBlobs(tmp_path / "blobs", durability=durability)
        return BlobCase(sink=blobs, source=blobs)


class TestInMemoryBlobs(BlobContract):
    @pytest.fixture
    def blobs(self) -> BlobCase:
        blobs = InMemoryBlobs()
        return BlobCase(sink=blobs, source=blobs)

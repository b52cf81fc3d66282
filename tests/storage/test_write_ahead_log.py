"""A damaged log is told from one whose writer died."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from agentenv.errors import DamagedJournal
from agentenv.storage.journal import Journal
from agentenv.storage.reader import JournalReader
from agentenv.storage.write_ahead_log import require_whole_log
from agentenv.testing.contracts.store import asked
from tests.storage.test_journal import KEY, WRITER, texts_of, write


@pytest.fixture
async def dead(tmp_path: Path) -> Path:
    """What a writer leaves that died: a file, and a log of eight transactions and the opening ones."""
    journal = Journal.open(tmp_path / "alive.sqlite")
    for number in range(8):
        await journal.append(KEY, asked(str(number)))
    path = tmp_path / "dead" / "main.sqlite"
    path.parent.mkdir()
    path.write_bytes((tmp_path / "alive.sqlite").read_bytes())
    path.with_name("main.sqlite-wal").write_bytes((tmp_path / "alive.sqlite-wal").read_bytes())
    await journal.aclose()
    return path


def flip(log: Path, at: int, bit: int = 4) -> None:
    content = bytearray(log.read_bytes())
    content[at] ^= 1 << bit
    log.write_bytes(content)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
async def test_flipped_bit_is_no_end(dead: Path, part: float) -> None:
    """Law 11: neither a writer nor `verify` takes a damaged log for a short one; what is behind can be given up."""
    log = dead.with_name("main.sqlite-wal")
    before = log.read_bytes()
    flip(log, int(len(before) * part))
    with pytest.raises(DamagedJournal, match="facts that were acknowledged lie behind") as refused:
        Journal.open(dead)
    with pytest.raises(DamagedJournal, match="damaged at byte"), JournalReader(dead.parent) as reader:
        reader.check()
    assert len(log.read_bytes()) == len(before), "nothing was written over"
    remedy = re.search(r"`(truncate .*)`", str(refused.value))
    assert remedy
    subprocess.run(remedy[1].split(), check=True)
    await write(dead, "after")
    *kept, after = texts_of(dead.parent)
    assert (kept, after) == ([str(number) for number in range(len(kept))], "after")


async def test_last_frame_is_where_the_writer_died(dead: Path) -> None:
    """Law 11: nothing that was acknowledged lies behind it."""
    log = dead.with_name("main.sqlite-wal")
    flip(log, log.stat().st_size - 100)
    require_whole_log(dead)
    await write(dead, "after")
    assert texts_of(dead.parent)[-1] == "after"


async def test_older_transactions_in_the_same_place_are_no_damage(tmp_path: Path) -> None:
    """A log that was folded is begun anew from its start; what is behind its end is of the time before."""
    path = tmp_path / "main.sqlite"
    journal = Journal.open(path)
    for number in range(8):
        await journal.append(KEY, asked(str(number)))
    with closing(sqlite3.connect(path)) as another:
        another.execute("PRAGMA wal_checkpoint(PASSIVE)")
    await journal.append(KEY, asked("anew"))
    require_whole_log(path)
    await journal.aclose()


def test_log_that_is_being_written_is_whole(tmp_path: Path) -> None:
    """Beside a live writer, at whatever moment."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "main.sqlite"), "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(8):
            process.stdout.readline()
            require_whole_log(tmp_path / "main.sqlite")
        process.kill()
    require_whole_log(tmp_path / "main.sqlite")


def test_no_log_is_whole(tmp_path: Path) -> None:
    require_whole_log(tmp_path / "main.sqlite")
    (tmp_path / "main.sqlite-wal").write_bytes(b"")
    require_whole_log(tmp_path / "main.sqlite")

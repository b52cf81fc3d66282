"""The journal: what it promises beyond the contract of stores.

- acknowledged facts survive ``kill -9`` at any moment (law 11), and a torn tail is cut;
- a full disk is a fault that names the folder and its free bytes, and nothing is partly written;
- a damaged, foreign or newer file is named as such;
- readers see every writer's file, while writers live, on read-only media too;
- the log is folded beside the commits, and nothing is lost over it.
"""

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from agentenv.core.store import AttemptKey
from agentenv.errors import DamagedJournal, HarnessFault, NewerSchema
from agentenv.storage import journal as journal_module
from agentenv.storage.journal import Journal
from agentenv.storage.reader import JournalReader
from agentenv.testing.contracts.store import asked, ended
from tests.at_once import AtOnce

KEY = AttemptKey("e", 1)


async def write(path: Path, *texts: str, key: AttemptKey = KEY) -> None:
    async with Journal.open(path) as journal:
        for text in texts:
            await journal.append(key, asked(text))


def texts_of(folder: Path, key: AttemptKey = KEY) -> list[str]:
    with JournalReader(folder) as reader:
        return [fact.messages[0].text for fact in reader.facts(key)]  # type: ignore[union-attr]


WRITER = """
import asyncio, sys
from pathlib import Path
from agentenv.core.store import AttemptKey
from agentenv.storage.journal import Journal
from agentenv.testing.contracts.store import asked

async def play(journal, attempt, name):
    for number in range(1_000_000):
        await journal.append(AttemptKey(name, attempt), asked(f"{number}", padding="x" * 400), asked(f"{number}'"))
        sys.stdout.write(f"{name} {number}\\n")
        sys.stdout.flush()

async def main(path, attempt):
    async with Journal.open(path) as journal, asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(play(journal, attempt, name))

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def test_acknowledged_facts_survive_kill(tmp_path: Path) -> None:
    """Law 11: after ``kill -9`` at any moment, every fact acknowledged before it is in the journal."""
    moments = random.Random(11)
    for attempt in range(1, 7):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "main.sqlite"), str(attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(moments.randint(1, 400))]
            process.kill()
            told += process.stdout.readlines()
        assert process.returncode == -signal.SIGKILL
        acknowledged = dict.fromkeys("abcd", -1)
        for line in told:
            if line.endswith("\n"):
                name, number = line.split()
                acknowledged[name] = int(number)
        assert max(acknowledged.values()) >= 0
        for name, last in acknowledged.items():
            if last < 0:
                continue
            found = texts_of(tmp_path, AttemptKey(name, attempt))
            assert len(found) % 2 == 0, "an append is written whole or not at all"
            assert found[: 2 * last + 2] == [f"{n}{mark}" for n in range(last + 1) for mark in ("", "'")]
            assert len(found) <= 2 * last + 4, "at most the append in flight is there besides"


async def test_torn_tail_is_cut(tmp_path: Path) -> None:
    """Law 11: half a transaction at the end of the log is not there, and what is before it is."""
    path = tmp_path / "main.sqlite"
    journal = Journal.open(path)
    await journal.append(KEY, asked("kept"))
    whole = (tmp_path / "main.sqlite-wal").read_bytes()
    await journal.append(KEY, asked("torn", padding="x" * 9000))
    torn = (tmp_path / "main.sqlite-wal").read_bytes()
    copy = tmp_path / "copy"
    for length in range(len(whole), len(torn), 997):
        copy.mkdir()
        (copy / "main.sqlite").write_bytes(path.read_bytes())
        (copy / "main.sqlite-wal").write_bytes(torn[:length])
        assert texts_of(copy) == ["kept"]
        await write(copy / "main.sqlite", "after")
        assert texts_of(copy) == ["kept", "after"]
        for file in copy.iterdir():
            file.unlink()
        copy.rmdir()
    await journal.aclose()


async def test_full_disk_names_the_folder_and_writes_nothing(tmp_path: Path) -> None:
    """A full disk ends in a harness fault; others that shared the transaction are not partly there either."""
    async with Journal.open(tmp_path / "main.sqlite", max_bytes=64 << 10) as journal:
        await journal.append(KEY, asked("first"))
        small, big = await asyncio.gather(
            journal.append(KEY, asked("small")),
            journal.append(AttemptKey("big", 1), asked("x", padding="y" * 200_000)),
            return_exceptions=True,
        )
        for fault in (small, big):
            assert isinstance(fault, HarnessFault)
            assert not fault.retryable
            assert str(tmp_path) in str(fault)
            assert "bytes free" in str(fault)
        assert small is not big
        with JournalReader(tmp_path) as reader:
            assert reader.attempts() == [KEY]
            assert reader.facts(KEY) == [asked("first")]
            await journal.append(AttemptKey("big", 1), asked("fits"))
            assert reader.facts(AttemptKey("big", 1)) == [asked("fits")]


_FILLER = """
import asyncio, resource, sys
from pathlib import Path
from agentenv.core.store import AttemptKey
from agentenv.errors import HarnessFault
from agentenv.storage.journal import Journal
from agentenv.testing.contracts.store import asked

async def main(path):
    async with Journal.open(path) as journal:
        await journal.append(AttemptKey("e", 1), asked("0"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        for number in range(1, 1000):
            try:
                await journal.append(AttemptKey("e", 1), asked(f"{number}", padding="x" * 9000))
            except HarnessFault as fault:
                print(number, fault)
                break
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await journal.append(AttemptKey("e", 1), asked("after"))

asyncio.run(main(Path(sys.argv[1])))
"""


def test_write_that_fails_half_way(tmp_path: Path) -> None:
    """The file system refuses in the middle of a transaction (a file size limit): a fault, and no half of it."""
    command = [sys.executable, "-c", _FILLER, str(tmp_path / "main.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    number, message = done.stdout.split(" ", 1)
    assert int(number) > 5
    assert str(tmp_path) in message
    assert texts_of(tmp_path) == [f"{n}" for n in range(int(number))] + ["after"]


_FULL = """
import asyncio
from pathlib import Path
from agentenv.core.store import AttemptKey
from agentenv.errors import HarnessFault
from agentenv.storage.journal import Journal
from agentenv.storage.reader import JournalReader
from agentenv.testing.contracts.store import asked

async def main():
    folder = Path("/mnt/run")
    async with Journal.open(folder / "main.sqlite") as journal:
        filler = folder / "filler"
        for number in range(10_000):
            try:
                await journal.append(AttemptKey("e", 1), asked(f"{number}", padding="x" * 3000))
            except HarnessFault as fault:
                print(fault)
                break
            if number == 5:
                filler.write_bytes(b"y" * 100_000)
        filler.unlink()
        await journal.append(AttemptKey("e", 1), asked("after"))
    with JournalReader(folder) as reader:
        texts = [fact.messages[0].text for fact in reader.facts(AttemptKey("e", 1))]
    print(number > 10, texts == [str(n) for n in range(number)] + ["after"])

asyncio.run(main())
"""


def test_disk_that_is_really_full() -> None:
    """On a file system without room: a fault with the folder and its free bytes; with room again it goes on."""
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--size", "600000"]
    command = [*sandbox, "--tmpfs", "/mnt", sys.executable, "-c", _FULL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    message, verdict = done.stdout.splitlines()
    assert "disk is full" in message
    assert "The folder /mnt/run has" in message
    assert verdict == "True True"


async def test_unwritable_folder_is_a_fault(tmp_path: Path) -> None:
    """A journal that cannot be made says where and why."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HarnessFault, match="make the folder"):
        Journal.open(tmp_path / "file" / "main.sqlite")
    (tmp_path / "main.sqlite").mkdir()
    with pytest.raises(HarnessFault, match="open the journal"):
        Journal.open(tmp_path / "main.sqlite")


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"x", b"\0" * 5000])
def test_foreign_file_is_damage(tmp_path: Path, content: bytes) -> None:
    """A file that is no SQLite file is named, for reading and for writing."""
    (tmp_path / "main.sqlite").write_bytes(content)
    with pytest.raises(DamagedJournal, match=r"main\.sqlite"):
        JournalReader(tmp_path)
    with pytest.raises(DamagedJournal, match=r"main\.sqlite"):
        Journal.open(tmp_path / "main.sqlite")
    assert (tmp_path / "main.sqlite").read_bytes() == content


def test_foreign_database_is_damage(tmp_path: Path) -> None:
    """An SQLite file of another program is left alone."""
    connection = sqlite3.connect(tmp_path / "main.sqlite")
    connection.execute("CREATE TABLE cookies (name)")
    connection.close()
    with pytest.raises(DamagedJournal, match="something else"):
        JournalReader(tmp_path)
    with pytest.raises(DamagedJournal, match="something else"):
        Journal.open(tmp_path / "main.sqlite")


async def test_newer_layout_is_refused(tmp_path: Path) -> None:
    """A journal of a later version is neither read nor written."""
    await write(tmp_path / "main.sqlite", "a")
    connection = sqlite3.connect(tmp_path / "main.sqlite")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(NewerSchema, match=r"layout version 2.*up to 1"):
        JournalReader(tmp_path)
    with pytest.raises(NewerSchema, match="layout version 2"):
        Journal.open(tmp_path / "main.sqlite")


async def test_newer_fact_is_refused(tmp_path: Path) -> None:
    """A fact of a later schema is refused with its place; older neighbours still read."""
    await write(tmp_path / "main.sqlite", "a")
    await write(tmp_path / "main.sqlite", "b", key=AttemptKey("f", 1))
    connection = sqlite3.connect(tmp_path / "main.sqlite")
    body = connection.execute("SELECT body FROM facts WHERE id = 2").fetchone()[0]
    newer = body.replace(b"\x94\x01\xad", b"\x94\x02\xad", 1)
    assert newer != body
    import zlib

    connection.execute("UPDATE facts SET body = ?, crc = ? WHERE id = 2", (newer, zlib.crc32(newer)))
    connection.commit()
    connection.close()
    with JournalReader(tmp_path) as reader:
        assert reader.facts(KEY) == [asked("a")]
        with pytest.raises(NewerSchema, match=r"main\.sqlite, fact 2"):
            reader.facts(AttemptKey("f", 1))


async def test_changed_byte_of_a_fact_is_damage(tmp_path: Path) -> None:
    """A flipped bit that SQLite cannot see is found by the fact's own sum."""
    await write(tmp_path / "main.sqlite", "needle", "b")
    path = tmp_path / "main.sqlite"
    content = path.read_bytes()
    assert content.count(b"needle") == 1
    path.write_bytes(content.replace(b"needle", b"noodle"))
    with JournalReader(tmp_path) as reader:
        with pytest.raises(DamagedJournal, match="fact 1: its bytes"):
            reader.facts(KEY)
        with pytest.raises(DamagedJournal, match="fact 1"):
            reader.check()


async def test_truncated_file_is_damage(tmp_path: Path) -> None:
    """A file cut in the middle (not a torn tail) is damage, not an empty run."""
    await write(tmp_path / "main.sqlite", *[f"{n}" * 500 for n in range(40)])
    path = tmp_path / "main.sqlite"
    path.write_bytes(path.read_bytes()[: 3 * 4096])
    with pytest.raises(DamagedJournal, match=r"main\.sqlite"), JournalReader(tmp_path) as reader:
        reader.check()


async def test_facts_of_nobody_are_damage(tmp_path: Path) -> None:
    """Facts whose attempt is not named, and facts that are gone, are damage with a place."""
    await write(tmp_path / "main.sqlite", "a", "b")
    with JournalReader(tmp_path) as reader:
        assert len(reader.facts(KEY)) == 2
        connection = sqlite3.connect(tmp_path / "main.sqlite")
        connection.execute("DELETE FROM facts WHERE id = 2")
        connection.execute("DELETE FROM attempts")
        connection.commit()
        connection.close()
        with pytest.raises(DamagedJournal, match="fact 2 is gone"):
            reader.facts(KEY)
    with JournalReader(tmp_path) as reader, pytest.raises(DamagedJournal, match="does not name"):
        reader.attempts()


async def test_overwritten_page_is_damage(tmp_path: Path) -> None:
    """Garbage in the middle of the file is named, whichever door meets it first."""
    await write(tmp_path / "main.sqlite", *[f"{n}" * 500 for n in range(40)])
    path = tmp_path / "main.sqlite"
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    path.write_bytes(content)
    for look in (JournalReader.attempts, JournalReader.wall_clock_s, JournalReader.check):
        with pytest.raises(DamagedJournal, match=r"main\.sqlite is damaged"), JournalReader(tmp_path) as reader:
            look(reader)


async def test_sound_journal_passes_the_check(tmp_path: Path) -> None:
    await write(tmp_path / "main.sqlite", "a", "b")
    with JournalReader(tmp_path) as reader:
        reader.check()


async def test_writers_are_read_together(tmp_path: Path) -> None:
    """One file per writer; a reader sees all of them, and those that come later."""
    with JournalReader(tmp_path) as reader:
        assert reader.attempts() == []
        await write(tmp_path / "w1.sqlite", "a")
        await write(tmp_path / "w2.sqlite", "b", key=AttemptKey("a", 1))
        assert reader.attempts() == [AttemptKey("a", 1), KEY]
        assert reader.facts(AttemptKey("a", 1)) == [asked("b")]


async def test_two_writers_of_one_attempt_are_damage(tmp_path: Path) -> None:
    """Nobody can say in which order two files' facts happened."""
    await write(tmp_path / "w1.sqlite", "a")
    await write(tmp_path / "w2.sqlite", "b")
    with JournalReader(tmp_path) as reader, pytest.raises(DamagedJournal, match=r"w1\.sqlite.*w2\.sqlite.*both hold"):
        reader.attempts()


async def test_writer_that_died_at_birth(tmp_path: Path) -> None:
    """An empty file is a run without facts, and is used again."""
    (tmp_path / "main.sqlite").write_bytes(b"")
    with JournalReader(tmp_path) as reader:
        assert reader.attempts() == []
    await write(tmp_path / "main.sqlite", "a")
    assert texts_of(tmp_path) == ["a"]


async def test_appending_to_an_existing_file(tmp_path: Path) -> None:
    """A resumed run goes on in the same file; attempts keep their facts."""
    await write(tmp_path / "main.sqlite", "a")
    await write(tmp_path / "main.sqlite", "b")
    await write(tmp_path / "main.sqlite", "c", key=AttemptKey("e", 2))
    assert texts_of(tmp_path) == ["a", "b"]
    assert texts_of(tmp_path, AttemptKey("e", 2)) == ["c"]


async def test_wall_clock_leaves_out_the_time_between_sessions(tmp_path: Path) -> None:
    """A run that rested a day did not take a day; two writers at once do not count twice."""
    for name in ("w1", "w2"):
        await write(tmp_path / f"{name}.sqlite", "a", key=AttemptKey(name, 1))
    connection = sqlite3.connect(tmp_path / "w1.sqlite")
    connection.execute("UPDATE sessions SET opened_at = 1000")
    connection.execute("INSERT INTO sessions (opened_at, last_fact) VALUES (90000, 1)")
    connection.execute("UPDATE facts SET at = 1010")
    connection.execute("INSERT INTO facts (attempt_id, at, crc, body) VALUES (1, 90005, 0, x'')")
    connection.execute("INSERT INTO sessions (opened_at, last_fact) VALUES (99000, 2)")
    connection.commit()
    connection.close()
    connection = sqlite3.connect(tmp_path / "w2.sqlite")
    connection.execute("UPDATE sessions SET opened_at = 1008")
    connection.execute("UPDATE facts SET at = 1012")
    connection.commit()
    connection.close()
    with JournalReader(tmp_path) as reader:
        assert reader.wall_clock_s() == pytest.approx(12 + 5)


@pytest.mark.parametrize("durability", ["process", "power"])
async def test_folding_the_log_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: journal_module.Durability
) -> None:
    """The log is folded beside the commits, and starts over instead of growing without end."""
    monkeypatch.setattr(journal_module, "_FOLD_BYTES", 100_000)
    async with Journal.open(tmp_path / "main.sqlite", durability=durability) as journal:

        async def play(name: str, attempt: int) -> None:
            for number in range(20):
                await journal.append(AttemptKey(name, attempt), asked(f"{number}", padding="x" * 3000))
            await journal.append(AttemptKey(name, attempt), ended())

        for attempt in range(1, 6):
            async with asyncio.TaskGroup() as group:
                for name in "abcdefgh":
                    group.create_task(play(name, attempt))
            while journal._folding or journal._held:
                await asyncio.sleep(0)
        assert (tmp_path / "main.sqlite").stat().st_size > 4 * 8 * 20 * 3000, "folded while the writer lives"
        assert (tmp_path / "main.sqlite-wal").stat().st_size < 3 * 8 * 20 * 5000, "the log started over"
    assert not (tmp_path / "main.sqlite-wal").exists()
    with JournalReader(tmp_path) as reader:
        assert [len(reader.facts(key)) for key in reader.attempts()] == [21] * 40


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("neighbours", [0, 2])
async def test_cancelled_at_every_pass_of_the_loop_it_is_known_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: journal_module.Durability, neighbours: int
) -> None:
    """Laws 4 and 11: an append that was cancelled has written nothing; one that wrote returns."""
    monkeypatch.setattr(journal_module, "ThreadPoolExecutor", AtOnce)
    outcomes: list[bool] = []
    async with Journal.open(tmp_path / "main.sqlite", durability=durability) as journal:
        for passes in range(12):
            returned = await _append_cancelled_after(passes, journal, AttemptKey(f"e{passes}", 1), neighbours)
            with JournalReader(tmp_path) as reader:
                assert (AttemptKey(f"e{passes}", 1) in reader.attempts()) == returned, f"cancelled at pass {passes}"
            outcomes.append(returned)
    assert outcomes == sorted(outcomes), "from some pass on it is written"
    assert set(outcomes) == {False, True}


async def _append_cancelled_after(passes: int, journal: Journal, key: AttemptKey, neighbours: int) -> bool:
    """Say whether the append returned to its caller."""
    returned = False

    async def play() -> None:
        nonlocal returned
        await journal.append(key, asked("a"))
        returned = True
        await asyncio.Event().wait()

    others = [asyncio.ensure_future(journal.append(AttemptKey("other", 1), asked("b"))) for _ in range(neighbours)]
    player = asyncio.ensure_future(play())
    for _ in range(passes):
        await asyncio.sleep(0)
    player.cancel()
    await asyncio.wait([player, *others])
    assert player.cancelled(), "the cancellation comes, at the next wait at the latest"
    return returned


async def test_closing_by_a_cancelled_task_still_closes(tmp_path: Path) -> None:
    """Cleanup that ends: the file is folded and closed although the closing task is cancelled."""
    journal = Journal.open(tmp_path / "main.sqlite")
    await journal.append(KEY, asked("a"))
    closing = asyncio.ensure_future(journal.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert not (tmp_path / "main.sqlite-wal").exists()
    assert texts_of(tmp_path) == ["a"]


async def test_read_only_medium(tmp_path: Path) -> None:
    """A finished run on a medium nobody can write to is read like any other."""
    await write(tmp_path / "main.sqlite", "a")
    code = (
        "import sys; from pathlib import Path; from agentenv.storage.reader import JournalReader\n"
        "with JournalReader(Path(sys.argv[1])) as reader: print(len(reader.attempts()))"
    )
    sandbox = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    done = subprocess.run(
        [*sandbox, sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=500, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["main.sqlite"]

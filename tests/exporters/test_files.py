"""Parquet and JSON lines: the same rows, exact, whole or not there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agentenv.core.exporter import LossReport
from agentenv.errors import HarnessFault
from agentenv.exporters import parquet
from agentenv.exporters.schema import COLUMNS, arrow_schema
from agentenv.exporters.table import EXPORTERS
from agentenv.records.episode import EpisodeRecord
from agentenv.testing.episodes import EpisodeBuilder, episode_records, reply
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def read(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def path_of(folder: Path, name: str) -> Path:
    return folder / f"rows.{name}"


@pytest.mark.parametrize("name", EXPORTERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(records=st.lists(episode_records(), max_size=2))
def test_file_holds_exactly_the_rows(tmp_path: Path, name: str, records: list[EpisodeRecord]) -> None:
    """What is read back is what `rows` gave, every float32 and every null included; the report is the same."""
    exporter = EXPORTERS[name](run_id="run-1")
    report = LossReport()
    expected = list(exporter.rows(records, report))
    assert exporter.write(records, path_of(tmp_path, name)) == report
    assert read(path_of(tmp_path, name)) == expected


@pytest.mark.parametrize("name", EXPORTERS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(values=st.lists(st.floats(max_value=0, allow_infinity=False, width=32), min_size=1, max_size=20))
def test_logprobs_survive_bit_for_bit(tmp_path: Path, name: str, values: list[float]) -> None:
    """Float32 in, the same float32 out: the smallest, the largest, the subnormal."""
    record = EpisodeBuilder().prompt([1]).turn(reply(range(len(values)), values)).end()
    EXPORTERS[name]().write([record], path_of(tmp_path, name))
    (row,) = read(path_of(tmp_path, name))
    back = np.array(row["logprobs"][1:], np.float32)
    assert back.tobytes() == np.array(values, np.float32).tobytes()


@settings(max_examples=15)
@given(st.lists(episode_records(), min_size=1, max_size=2))
def test_columns_are_those_of_the_table(records: list[EpisodeRecord]) -> None:
    """Every row has every documented column, in no other spelling."""
    for row in EXPORTERS["jsonl"]().rows(records, LossReport()):
        assert row.keys() == {name for name, _, _ in COLUMNS}


def test_parquet_types_and_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are int32, log-probs float32 with nulls, and memory holds one row group."""
    monkeypatch.setattr(parquet, "_GROUP_TOKENS", 10)
    path = tmp_path / "rows.parquet"
    records = [EpisodeBuilder(episode_id=f"e{n}").prompt([1]).turn(reply([2, 3])).end() for n in range(10)]
    report = EXPORTERS["parquet"]().write(iter(records), path)
    file = pq.ParquetFile(path)
    assert (report.rows, file.metadata.num_rows, file.metadata.num_row_groups) == (10, 10, 3)
    assert file.schema_arrow.field("token_ids").type == pa.list_(pa.int32())
    assert file.schema_arrow.field("logprobs").type == pa.list_(pa.float32())
    assert file.schema_arrow.metadata == {b"agentenv.row_version": b"1"}
    assert file.schema_arrow.equals(arrow_schema())
    file.close()


def test_lines_are_lines_however_they_are_split(tmp_path: Path) -> None:
    """What Unicode takes for a line's end is escaped inside a row."""
    odd = "a\u0085b\u2028c\u2029d\r\ne\x1cf"
    record = EpisodeBuilder().prompt([1]).turn(reply([2])).end(task_id=odd)
    EXPORTERS["jsonl"]().write([record], tmp_path / "rows.jsonl")
    (row,) = read(tmp_path / "rows.jsonl")
    assert row["task_id"] == odd


@pytest.mark.parametrize("name", EXPORTERS)
def test_nothing_to_export_is_an_empty_file(tmp_path: Path, name: str) -> None:
    assert EXPORTERS[name]().write([], path_of(tmp_path, name)) == LossReport()
    assert read(path_of(tmp_path, name)) == []


@pytest.mark.parametrize("name", EXPORTERS)
def test_failed_export_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    """Whatever stops it, the old file stays whole and nothing else is left."""
    path = path_of(tmp_path, name)
    path.write_bytes(b"old")

    def broken() -> Iterator[EpisodeRecord]:
        yield EpisodeBuilder().prompt([1]).turn(reply([2])).end()
        raise RuntimeError("reader gave way")

    with pytest.raises(RuntimeError, match="reader gave way"):
        EXPORTERS[name]().write(broken(), path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


_FILL = """
import random, resource, sys; from pathlib import Path
from agentenv.errors import HarnessFault
from agentenv.exporters.table import EXPORTERS
from agentenv.testing.episodes import EpisodeBuilder, reply
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
ids = [random.Random(1).randrange(2**31) for _ in range(30_000)]
record = EpisodeBuilder().prompt([1]).turn(reply(ids)).end()
try: EXPORTERS[sys.argv[1]]().write([record], Path(sys.argv[2]))
except HarnessFault as fault: print(fault)
"""


@pytest.mark.parametrize("name", EXPORTERS)
def test_full_disk_is_a_fault(tmp_path: Path, name: str) -> None:
    """A disk that gives way in the middle is a fault of the harness that names the file; nothing is left."""
    command = [sys.executable, "-c", _FILL, name, str(path_of(tmp_path, name))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    assert f"Cannot write {path_of(tmp_path, name)}" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HarnessFault, match="Cannot write"):
        EXPORTERS["jsonl"]().write([], tmp_path / "file" / "rows.jsonl")


def test_missing_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    """Without the optional dependency the error says how to get it; JSON lines works without."""
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path; from agentenv.errors import ConfigError\n"
        "from agentenv.exporters.table import EXPORTERS\n"
        "EXPORTERS['jsonl']().write([], Path(sys.argv[1]) / 'rows.jsonl')\n"
        "try: EXPORTERS['parquet']().write([], Path(sys.argv[1]) / 'rows.parquet')\n"
        "except ConfigError as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    assert "pip install pyarrow" in done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_file_says_what_its_columns_mean(tmp_path: Path) -> None:
    """Whoever has the file alone still reads what each column is."""
    path = tmp_path / "rows.parquet"
    EXPORTERS["parquet"]().write([EpisodeBuilder().prompt([1]).turn(reply([2])).end()], path)
    found = {field.name: (field.metadata or {}).get(b"meaning", b"").decode() for field in pq.read_schema(path)}
    assert found == {name: meaning for name, _, meaning in COLUMNS}

"""The model in the cache: whole and checked, or not there."""

from __future__ import annotations

import hashlib
import multiprocessing
import zipfile
from pathlib import Path

import pytest
from agentenv.errors import ConfigError, HarnessFault
from agentenv.local.models import SMOLLM2, PackagedModel, cache_folder, fetched, smollm2_path
from agentenv.local.wheels import Progress, silent

from tests.local.smollm2 import model_path

CONTENT = b"GGUF" + bytes(range(256)) * 400
MODEL = PackagedModel(
    file_name="tiny.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    requirement="tiny==1",
    wheel_sha256="0" * 64,
    wheel_bytes=1000,
    member="tiny/tiny.gguf",
)


class Index:
    """Gives a wheel with the model in it, and counts how often."""

    def __init__(self, content: bytes = CONTENT, member: str = MODEL.member) -> None:
        self.content = content
        self.member = member
        self.n_downloads = 0

    def __call__(self, model: PackagedModel, folder: Path, progress: Progress) -> Path:
        self.n_downloads += 1
        progress(500, 1000)
        wheel = folder / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(self.member, self.content)
        return wheel


def test_the_model_is_fetched_once_and_then_found(tmp_path: Path) -> None:
    index = Index()
    told: list[tuple[int, int]] = []
    path = fetched(MODEL, tmp_path, progress=lambda done, total: told.append((done, total)), download=index)
    assert path.read_bytes() == CONTENT
    assert fetched(MODEL, tmp_path, progress=silent, download=index) == path
    assert index.n_downloads == 1
    assert told == [(500, 1000)]
    assert sorted(found.suffix for found in path.parent.iterdir()) == [".gguf", ".lock"]


@pytest.mark.parametrize("damage", [CONTENT[:-1], CONTENT[:-1] + b"?", b""])
def test_a_damaged_copy_is_replaced(tmp_path: Path, damage: bytes) -> None:
    index = Index()
    path = fetched(MODEL, tmp_path, progress=silent, download=index)
    path.write_bytes(damage)
    assert fetched(MODEL, tmp_path, progress=silent, download=index).read_bytes() == CONTENT
    assert index.n_downloads == 2


def test_another_file_than_expected_never_enters_the_cache(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match=r"expected [0-9a-f]{64}.*--model PATH"):
        fetched(MODEL, tmp_path, progress=silent, download=Index(content=CONTENT[::-1]))
    assert [found.suffix for found in (tmp_path / "models").iterdir()] == [".lock"]


def test_a_wheel_without_the_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match=r"does not hold tiny/tiny\.gguf"):
        fetched(MODEL, tmp_path, progress=silent, download=Index(member="other/file"))


def test_what_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    part = tmp_path / "models" / "tiny.part"
    part.mkdir(parents=True)
    (part / "tiny.gguf").write_bytes(b"half")
    assert fetched(MODEL, tmp_path, progress=silent, download=Index()).read_bytes() == CONTENT
    assert not part.exists()


def test_a_cache_that_cannot_be_written_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(HarnessFault, match="AGENTENV_CACHE"):
        fetched(MODEL, tmp_path, progress=silent, download=Index())


def _fetch_and_count(cache: Path) -> int:
    index = Index()
    fetched(MODEL, cache, progress=silent, download=index)
    return index.n_downloads


def test_several_processes_fetch_it_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert sum(pool.map(_fetch_and_count, [tmp_path] * 6)) == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AGENTENV_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, Path("/a/b")),
        ({"XDG_CACHE_HOME": "/c"}, Path("/c/agentenv")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache" / "agentenv"),
        ({}, Path.home() / ".cache" / "agentenv"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], expected: Path) -> None:
    assert cache_folder(environment) == expected


def test_a_given_model_is_used_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"whatever")
    assert smollm2_path(own) == own
    with pytest.raises(ConfigError, match=r"There is no model file .*absent"):
        smollm2_path(tmp_path / "absent.gguf")


def test_the_pinned_hash_is_that_of_the_model() -> None:
    assert hashlib.sha256(model_path().read_bytes()).hexdigest() == SMOLLM2.sha256
    assert model_path().stat().st_size == SMOLLM2.size_bytes

"""Run folders: made once, held by one live process, resumed only as what they are."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agentenv.core.store import AttemptKey
from agentenv.errors import ConfigError, DamagedJournal, HarnessFault, NewerSchema, OrderError, RunInUse
from agentenv.storage.manifest import RESUME_MAY_DIFFER, canonical, differences, manifest_sha256
from agentenv.storage.run_folder import RunFolder
from agentenv.testing.contracts.store import asked
from hypothesis import given
from hypothesis import strategies as st

MANIFEST = {
    "suite": {"name": "arithmetic", "sha256": "aa"},
    "sampling": {"temperature": 0.3, "stop_token_ids": [2]},
    "concurrency": 16,
    "run": {"hostname": "a", "created_at": "2026-11-29"},
}


async def test_create_write_open(tmp_path: Path) -> None:
    """A run is made in a new folder, and read while it is being written."""
    with RunFolder.create(tmp_path / "deep" / "run", MANIFEST) as run:
        async with run.journal("w0") as journal:
            await journal.append(AttemptKey("e", 1), asked("a"))
            spill = run.blobs.put(b"long output")
            with RunFolder.open(run.path) as other, other.reader() as reader:
                assert reader.facts(AttemptKey("e", 1)) == [asked("a")]
                assert other.blobs.get(spill.sha256) == b"long output"
                assert other.manifest == MANIFEST
                with pytest.raises(OrderError, match="opened to read"):
                    other.journal()


def test_empty_folder_is_taken(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, MANIFEST).close()
    assert RunFolder.open(tmp_path).manifest == MANIFEST


def test_a_run_is_not_made_twice(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, MANIFEST).close()
    with pytest.raises(ConfigError, match=r"holds a run already.*--resume"):
        RunFolder.create(tmp_path, MANIFEST)


def test_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    """Nothing is written into a folder that is no run, by neither way."""
    (tmp_path / "thesis.tex").write_text("x", encoding="utf-8")
    for door in (RunFolder.create, RunFolder.resume):
        with pytest.raises(ConfigError, match=r"holds no run.*thesis\.tex"):
            door(tmp_path, MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(ConfigError, match="is a file"):
        RunFolder.create(tmp_path / "thesis.tex", MANIFEST)


def test_there_is_no_run(tmp_path: Path) -> None:
    for door in (RunFolder.open, lambda path: RunFolder.resume(path, MANIFEST)):
        with pytest.raises(ConfigError, match="no run in"):
            door(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no run in"):
        RunFolder.open(tmp_path)


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HarnessFault, match="Cannot write the run folder"):
        RunFolder.create(tmp_path / "file" / "run", MANIFEST)


def test_run_in_use_names_its_owner(tmp_path: Path) -> None:
    """A live writer keeps everybody else out, in the same process too; readers are let in."""
    with RunFolder.create(tmp_path, MANIFEST):
        for door in (RunFolder.create, RunFolder.resume):
            with pytest.raises(RunInUse, match=r"written by process \d+ on \S+ \(boot \S+\)"):
                door(tmp_path, MANIFEST)
        RunFolder.open(tmp_path).close()
    RunFolder.resume(tmp_path, MANIFEST).close()


def test_owner_that_cannot_be_read(tmp_path: Path) -> None:
    """The lock holds even if nobody can say whose it is."""
    with RunFolder.create(tmp_path, MANIFEST):
        (tmp_path / "lock").write_bytes(b"")
        with pytest.raises(RunInUse, match="by another process"):
            RunFolder.resume(tmp_path, MANIFEST)


_OWNER = """
import signal, sys
from pathlib import Path
from agentenv.storage.run_folder import RunFolder
run = RunFolder.create(Path(sys.argv[1]), {"suite": "x"})
print("held", flush=True)
signal.pause()
"""


def test_lock_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    """A killed collector does not keep its run locked."""
    with subprocess.Popen([sys.executable, "-c", _OWNER, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(RunInUse, match=f"process {owner.pid} "):
            RunFolder.resume(tmp_path, {"suite": "x"})
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    RunFolder.resume(tmp_path, {"suite": "x"}).close()


def test_resume_with_other_settings_shows_each_difference(tmp_path: Path) -> None:
    """Every differing key is shown, dotted, with both values; nothing is changed."""
    RunFolder.create(tmp_path, MANIFEST).close()
    other = {"suite": {"name": "arithmetic", "sha256": "bb"}, "sampling": {"temperature": 0.7}, "seed": 1}
    with pytest.raises(ConfigError) as caught:
        RunFolder.resume(tmp_path, other)
    lines = str(caught.value).splitlines()
    assert lines[1:-1] == [
        "  sampling.stop_token_ids: was [2], now (absent)",
        "  sampling.temperature: was 0.3, now 0.7",
        "  seed: was (absent), now 1",
        '  suite.sha256: was "aa", now "bb"',
    ]
    assert RunFolder.open(tmp_path).manifest == MANIFEST
    RunFolder.resume(tmp_path, MANIFEST).close()


def test_what_may_differ_may(tmp_path: Path) -> None:
    """Where and how fast a run is made does not decide what it consists of; the stored manifest stays."""
    RunFolder.create(tmp_path, MANIFEST).close()
    with RunFolder.resume(tmp_path, MANIFEST | {"concurrency": 1, "run": {"hostname": "b"}}) as run:
        assert run.manifest == MANIFEST
    for key in RESUME_MAY_DIFFER:
        assert differences({key: 1}, {}) == []
        assert differences({key: {key: 1}}, {key: {"b": 2}}) == []


def test_below_the_top_every_key_decides_the_run() -> None:
    """Law 13: a tool that is called ``run`` or ``paths`` is compared like any other."""
    for key in RESUME_MAY_DIFFER:
        assert differences({"tools": {key: "aa"}}, {"tools": {key: "bb"}}) == [(f"tools.{key}", "aa", "bb")]
        assert differences({"tools": {key: "aa"}}, {"tools": {}}) != []


def test_run_that_died_before_its_manifest(tmp_path: Path) -> None:
    """A kill between the folder and its manifest leaves a folder that can be resumed or made anew."""
    for door in (RunFolder.create, RunFolder.resume):
        run = tmp_path / door.__name__
        RunFolder.create(run, MANIFEST).close()
        (run / "manifest.json").rename(run / ".manifest.json.4711")
        door(run, MANIFEST).close()
        assert RunFolder.open(run).manifest == MANIFEST


def test_damaged_and_newer_manifests(tmp_path: Path) -> None:
    """A manifest that was edited, cut or written by a later version is not trusted."""
    RunFolder.create(tmp_path, MANIFEST).close()
    path = tmp_path / "manifest.json"
    content = path.read_text(encoding="utf-8")
    stored = json.loads(content)
    assert stored["sha256"] == manifest_sha256(MANIFEST)
    for bad in (content.replace("0.3", "0.4"), content[:50], "[]", "{}", "\0", json.dumps(stored | {"manifest": 3})):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(DamagedJournal, match=r"manifest\.json"):
            RunFolder.open(tmp_path)
    path.write_text(json.dumps(stored | {"manifest_version": 2}), encoding="utf-8")
    with pytest.raises(NewerSchema, match="version 2"):
        RunFolder.open(tmp_path)


def test_manifest_of_other_things_than_json(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="JSON values only"):
        RunFolder.create(tmp_path, {"a": {1, 2}})
    with pytest.raises(ConfigError, match="JSON values only"):
        RunFolder.create(tmp_path, {"a": float("nan")})
    RunFolder.create(tmp_path, MANIFEST).close()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), _json, max_size=4))
def test_canonical_form_is_stable(manifest: dict[str, object]) -> None:
    """Law 13: equal settings have equal hashes, whatever the order of their keys."""
    turned = dict(reversed(manifest.items()))
    assert canonical(turned) == canonical(manifest)
    assert json.loads(canonical(manifest)) == manifest
    assert differences(manifest, turned) == []

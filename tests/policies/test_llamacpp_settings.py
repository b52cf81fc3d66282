"""What the local policy refuses before it loads anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from agentenv.errors import ConfigError
from agentenv.policies.llamacpp import LlamaCppPolicy
from agentenv.rendering.byte_tokenizer import ByteTokenizer


@pytest.mark.parametrize("wrong", [{"n_ctx": 1}, {"n_parallel": 0}, {"n_threads": 0}, {"n_batch": -1}])
def test_settings_that_cannot_work_are_refused_at_once(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LlamaCppPolicy("model.gguf", tokenizer=ByteTokenizer(), **wrong)


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.gguf cannot be read"):
        await LlamaCppPolicy(tmp_path / "absent.gguf", tokenizer=ByteTokenizer()).start()


async def test_a_file_that_is_no_gguf_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ConfigError, match="is no GGUF file"):
        await LlamaCppPolicy(path, tokenizer=ByteTokenizer()).start()


async def test_a_damaged_gguf_is_a_config_error_and_its_reason_stays_visible(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"\xff" * 4096)
    with pytest.raises(ConfigError, match="what it said is on stderr"):
        await LlamaCppPolicy(path, tokenizer=ByteTokenizer(), n_ctx=256, n_parallel=1).start()
    assert "gguf" in capfd.readouterr().err


async def test_another_file_than_expected_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    policy = LlamaCppPolicy(path, tokenizer=ByteTokenizer(), model_sha256="0" * 64)
    with pytest.raises(ConfigError, match="not the model that is expected"):
        await policy.start()

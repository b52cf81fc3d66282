"""Every renderer passes the contract suite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agentenv.rendering.loading import byte_renderer
from agentenv.rendering.template_renderer import TemplateRenderer
from agentenv.testing.contracts.renderer import RendererCase, RendererContract

_ALL = ("tool", "error", "user", "tool tool", "tool error", "tool user")
_CASES: dict[str, dict[str, Any]] = {
    "qwen25": {"extends_after": _ALL, "control_texts": ("<|im_end|>", "<|im_start|>", "<tool_call>")},
    "qwen3": {"extends_after": _ALL, "control_texts": ("<|im_end|>", "</tool_call>", "<think>")},
    "llama3": {"extends_after": _ALL, "control_texts": ("<|eot_id|>", "<|python_tag|>")},
    "mistral": {"extends_after": ("tool", "tool tool", "tool error"), "control_texts": ("</s>", "[INST]")},
    "mistral_named": {"extends_after": _ALL, "control_texts": ("</s>", "[INST]", "[ARGS]")},
    "pythonic": {"extends_after": _ALL, "control_texts": ("<|eot_id|>",)},
    "gemma": {"extends_after": ("tool", "user", "error", "tool tool"), "control_texts": ("<end_of_turn>", "<bos>")},
}


class TestBytes(RendererContract):
    @pytest.fixture
    def case(self) -> RendererCase:
        return RendererCase(
            renderer=byte_renderer(), extends_after=_ALL, control_texts=("<|im_end|>", "<|im_start|>", "<|endoftext|>")
        )


class TestTemplates(RendererContract):
    @pytest.fixture(params=sorted(_CASES))
    def case(self, request: pytest.FixtureRequest, renderer_of: Callable[[str], TemplateRenderer]) -> RendererCase:
        return RendererCase(renderer=renderer_of(request.param), **_CASES[request.param])

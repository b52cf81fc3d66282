"""Every compressor of the table passes the contract suite, and stays within its few counts."""

from __future__ import annotations

import pytest
from agentenv.compressors.table import COMPRESSORS, parse_compressor
from agentenv.testing.contracts.compressor import CompressorCase, CompressorContract

SPECS = {
    "none": ("none",),
    "window": ("window:200", "window:600,target=1", "window:50,target=0.1"),
    "clear-tool-results": ("clear-tool-results:200", "clear-tool-results:50,keep=0", "clear-tool-results:400,keep=9"),
}


def _counts(name: str, n_messages: int) -> int:
    if name == "window":
        return 2 + 2 * n_messages.bit_length()
    return {"none": 0, "clear-tool-results": 1}[name]


def test_every_compressor_is_in_the_suite():
    """No compressor is registered without passing the contract."""
    assert set(SPECS) == set(COMPRESSORS)


@pytest.mark.parametrize("spec", [spec for specs in SPECS.values() for spec in specs])
class TestContract(CompressorContract):
    @pytest.fixture
    def case(self, spec: str) -> CompressorCase:
        name = spec.partition(":")[0]
        return CompressorCase(
            make=lambda: parse_compressor(spec), max_counts=lambda n: _counts(name, n), max_examples=60
        )
